//! ADD: everything is read and decided before the pod is changed.

use std::path::Path;
use std::time::{Duration, Instant};

use common::netlink::link::Link;
use ipnet::IpNet;

use crate::apply::{self, Failure, Linux};
use crate::aws;
use crate::cni::{Code, Error};
use crate::config::interface::{InterfaceType, IpvlanMode, Kind, MacvlanMode, mac_text};
use crate::config::ip::Ip;
use crate::names;
use crate::observe::Pod;
use crate::plan::{self, Desired, Plan, Previous};
use crate::record::{Attachment, ElasticIp, Folder, Made, Owner, elastic_ip};

use super::ipvlan_mode;
use super::namespaces::Namespaces;
use super::resolve::{self, Master};
use super::{Context, del, result};

/// Time limit for releasing orphaned Elastic IPs.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of ADD.
///
/// # Errors
/// An invalid call, configuration or pod, before anything is changed; or a failed step, after the rollback.
pub fn add(context: &Context<'_>) -> Result<String, Error> {
    let mut attachment = AddCall::prepare(context)?;
    let pod = attachment.namespaces.pod()?;
    attachment.name(&pod);
    attachment.mac()?;
    let pod = attachment.remove_leftovers(pod)?;
    let mac = attachment.find_aws_master()?;
    attachment.reserve_mode()?;
    let made = attachment.acquire(mac).and_then(|()| attachment.plan(&pod)).and_then(|(desired, plan)| {
        let link = attachment.make(&desired, &plan)?;
        Ok((desired, plan, link))
    });
    match made {
        Ok((desired, plan, link)) => {
            let previous = context.network.previous.as_ref();
            let netns = context.call.netns.as_deref().unwrap_or(Path::new(""));
            let dns = context.network.dns.as_ref();
            let result = result::result(&desired, previous, &link, netns, &plan.primary_routes, dns);
            Ok(result.to_json(context.network.version))
        }
        Err(error) => Err(attachment.roll_back(error)),
    }
}

/// The plan of ADD, one step a line. It changes nothing, and sends requests to the API server only.
///
/// # Errors
/// As [`add`].
pub fn dry_run(context: &Context<'_>) -> Result<String, Error> {
    let mut attachment = AddCall::prepare(context)?;
    let pod = attachment.namespaces.pod()?;
    attachment.name(&pod);
    if attachment.interface_type == InterfaceType::AwsElasticIp {
        let message = "--dry-run does not support aws-elastic-ip: the private address is not known before EC2 assigns it";
        return Err(Error::invalid_config(message));
    }
    if let Some((master, mode)) = attachment.mode() {
        ipvlan_mode::check(&context.settings.run_directory, master, mode, &attachment.owner())?;
    }
    let (_, plan) = attachment.plan(&pod)?;
    let steps = plan.steps.iter().map(|step| format!("{}\n", apply::applying(step)));
    let warnings = plan.warnings.iter().map(|warning| format!("# {warning}\n"));
    Ok(steps.chain(warnings).collect())
}

/// Whether `CNI_IFNAME` belongs to a previous plugin: if the previous result lists it, or the pod has it. Some plugins do not list the pod's
/// interface, or not its namespace.
fn chained(context: &Context<'_>, pod: &Pod) -> bool {
    let name = &context.call.ifname;
    if context.network.previous.is_none() {
        return false;
    }
    let ours = pod.attachments.contains_key(name) || pod.tables.contains(name);
    context.network.was_made_before(name) || (!ours && pod.link_named(name).is_some())
}

struct AddCall<'a> {
    context: &'a Context<'a>,
    namespaces: Namespaces,
    interface: String,
    interface_type: InterfaceType,
    kind: Kind,
    ip: Ip,
    master: Option<Master>,
    /// Whether an Elastic IP must be released after a failure.
    acquired: bool,
}

impl<'a> AddCall<'a> {
    fn prepare(context: &'a Context<'a>) -> Result<Self, Error> {
        let mut ip = resolve::ip(context)?;
        let (interface_type, kind) = resolve::interface(context)?;
        let mut namespaces = Namespaces::of_call(context)?;
        let master = match interface_type {
            InterfaceType::AwsElasticIp => None,
            _ => Some(resolve::master(context, &mut namespaces.host, &mut ip, kind)?),
        };
        let interface = context.call.ifname.clone();
        Ok(Self { context, namespaces, interface, interface_type, kind, ip, master, acquired: false })
    }

    fn owner(&self) -> Owner {
        Owner {
            container_id: self.context.call.container_id.clone(),
            ifname: self.context.call.ifname.clone(),
            network: self.context.network.name.clone(),
            interface: self.interface.clone(),
            netns: self.namespaces.netns.clone(),
        }
    }

    /// The interface's name in the pod: `CNI_IFNAME`, unless a previous plugin has created that.
    fn name(&mut self, pod: &Pod) {
        if chained(self.context, pod) {
            let given = self.context.network.chained_name.clone();
            self.interface = given.unwrap_or_else(|| names::CHAINED_INTERFACE.to_owned());
        }
    }

    /// The pod, after the leftovers of an interrupted ADD of this interface are removed.
    fn remove_leftovers(&mut self, pod: Pod) -> Result<Pod, Error> {
        let there = pod.link_named(&self.interface).is_some();
        let journal =
            self.namespaces.journals.iter().find(|journal| journal.owner.interface == self.interface);
        let interrupted =
            |journal: &Attachment| journal.made.is_none() && journal.owner.ifname == self.context.call.ifname;
        // Reported before the first request to EC2: a rollback would release the Elastic IP of the existing attachment.
        if there && !journal.is_some_and(interrupted) {
            let message = format!("the pod has an interface {} already", self.interface);
            return Err(Error::invalid_config(message));
        }
        let steps = del::steps(&self.namespaces, &pod, &self.interface, journal)?;
        if steps.is_empty() {
            return Ok(pod);
        }
        self.context
            .log
            .verbose(format_args!("{}: removing the leftovers of an interrupted call", self.interface));
        apply::run_all(&steps, &mut Linux::new(&mut self.namespaces.sockets), self.context.log)?;
        self.forget()?;
        self.namespaces.journals.retain(|journal| journal.owner.interface != self.interface);
        self.namespaces.pod()
    }

    /// Removes the journal.
    fn forget(&self) -> Result<(), Error> {
        self.namespaces.folder.remove(&self.context.call.container_id, &self.interface)
    }

    /// For aws-elastic-ip: the device of a network interface of the instance. It is validated before the Elastic IP is moved from another
    /// pod. Returns its hardware address.
    fn find_aws_master(&mut self) -> Result<Option<[u8; 6]>, Error> {
        if self.interface_type != InterfaceType::AwsElasticIp {
            return Ok(None);
        }
        let (context, kind) = (self.context, self.kind);
        let (mac, master) = self.namespaces.on_node(|socket| {
            let mac = match resolve::master_mac(context, socket)? {
                Some(mac) => mac,
                None => {
                    let deadline = Instant::now() + aws::TIMEOUT;
                    aws::over_network(context.settings, |cloud| cloud.metadata(deadline).primary())?
                }
            };
            Ok((mac, resolve::master_of_aws(context, socket, mac, kind)?))
        })?;
        self.master = Some(master);
        Ok(Some(mac))
    }

    /// For an ipvlan: its master, and the mode that it needs there.
    fn mode(&self) -> Option<(u32, IpvlanMode)> {
        match (self.kind, &self.master) {
            (Kind::Ipvlan(mode), Some(master)) => Some((master.port, mode)),
            _ => None,
        }
    }

    fn reserve_mode(&self) -> Result<(), Error> {
        let Some((master, mode)) = self.mode() else { return Ok(()) };
        ipvlan_mode::reserve(&self.context.settings.run_directory, master, mode, &self.owner())
    }

    /// For aws-elastic-ip: address and gateway come from EC2. `mac` is the master's.
    fn acquire(&mut self, mac: Option<[u8; 6]>) -> Result<(), Error> {
        if self.interface_type != InterfaceType::AwsElasticIp {
            return Ok(());
        }
        let (context, owner) = (self.context, self.owner());
        let Self { namespaces, ip, .. } = self;
        let deadline = Instant::now() + aws::TIMEOUT;
        let folder = elastic_ip::folder(&context.settings.state_directory);
        release_orphaned_elastic_ips(context, namespaces, &folder)?;
        // Until a record of this namespace is written: an ADD in another pod may be releasing this one as orphaned.
        let before = folder.lock::<ElasticIp>(&owner.container_id, &owner.interface, deadline)?;
        let mut journal = elastic_ip::Journal { folder: &folder, owner: &owner };
        let acquired = namespaces.on_node(|_| {
            let request = aws::Request {
                addresses: &ip.addresses,
                master: mac,
                before: before.as_ref().map(|locked| &locked.record.state),
            };
            aws::over_network(context.settings, |cloud| aws::acquire(cloud, request, &mut journal, deadline))
        })?;
        context.log.verbose(format_args!("{} is associated with {}", acquired.public, acquired.private));
        ip.addresses = vec![IpNet::V4(acquired.private)];
        ip.gateways.v4.get_or_insert(acquired.gateway);
        self.acquired = true;
        Ok(())
    }

    fn plan(&mut self, pod: &Pod) -> Result<(Desired, Plan), Error> {
        let (network, settings) = (self.context.network, self.context.settings);
        let master = self.master.clone().ok_or_else(|| Error::invalid_config("no master is known"))?;
        let mut cluster_networks = settings.cluster_networks.clone();
        cluster_networks.extend(&network.cluster_networks);
        let desired = Desired {
            interface: self.interface.clone(),
            kind: self.kind,
            master: master.index,
            node_addresses: master.addresses,
            mtu: network.mtu,
            mac: self.mac()?,
            addresses: self.ip.addresses.clone(),
            gateways: self.ip.gateways,
            destinations: self.ip.destinations.clone(),
            cluster_networks,
            previous: self.previous(),
        };
        let plan = plan::add::add(&desired, pod)?;
        for warning in &plan.warnings {
            self.context.log.verbose(format_args!("{}: {warning}", self.interface));
        }
        Ok((desired, plan))
    }

    /// An ipvlan always has its master's hardware address, and so has a macvlan of mode passthru, for which the kernel ignores the requested one
    /// (macvlan_common_newlink).
    fn mac(&self) -> Result<Option<[u8; 6]>, Error> {
        if self.context.network.mac_by_arguments && self.interface != self.context.call.ifname {
            return Ok(None);
        }
        match (self.kind, self.context.network.mac) {
            (Kind::Ipvlan(_) | Kind::Macvlan(MacvlanMode::Passthru), Some(mac)) => {
                Err(Error::invalid_config(format!(
                    "the pod requests the MAC address {}: an ipvlan and a macvlan of mode passthru use their master's MAC address",
                    mac_text(mac)
                )))
            }
            (_, mac) => Ok(mac),
        }
    }

    fn previous(&self) -> Option<Previous> {
        let previous = self.context.network.previous.as_ref()?;
        let of_pod =
            previous.interfaces.iter().enumerate().filter(|(_, interface)| interface.sandbox.is_some());
        let named = of_pod.clone().find(|(_, interface)| interface.name == self.context.call.ifname);
        let (index, interface) = named.or_else(|| of_pod.clone().next())?;
        let ips = previous.ips.iter().filter(|ip| ip.interface.is_none_or(|of| of == index));
        Some(Previous {
            interface: interface.name.clone(),
            gateways: ips.filter_map(|ip| ip.gateway).collect(),
        })
    }

    /// The journal is written first and completed last. It is removed if nothing is left of a failed call.
    fn make(&mut self, desired: &Desired, plan: &Plan) -> Result<Link, Error> {
        let journal = Attachment { owner: self.owner(), undo: plan.undo.clone(), made: None };
        let Namespaces { namespace, host, sockets, folder, .. } = &mut self.namespaces;
        folder.write(&journal)?;
        let mut kernel = Linux::new(sockets).making_links(host, namespace);
        let made = apply::run(&plan.steps, &mut kernel).and_then(|()| {
            complete(journal, desired, folder, &mut kernel).map_err(|error| {
                let left = apply::rollback(&plan.steps, &mut kernel).err();
                Failure { error, left: left.into_iter().collect() }
            })
        });
        let filters_frames = kernel.filters_frames();
        let link = made.map_err(|failure| {
            let forgotten = if failure.left.is_empty() { self.forget() } else { Ok(()) };
            let error = Error::from(failure);
            match forgotten {
                Ok(()) => error,
                Err(left) => error.with("not rolled back", &left),
            }
        })?;
        if desired.destinations.allowed.is_some() && !filters_frames {
            self.context.log.verbose(format_args!("{}: {}", desired.interface, names::NO_FRAME_FILTER));
        }
        Ok(link)
    }

    /// Releases the reserved mode and the Elastic IP if nothing else is left, and returns `error`.
    fn roll_back(&mut self, error: Error) -> Error {
        let (settings, container_id) = (self.context.settings, &self.context.call.container_id);
        // What is left of the attachment uses them. DEL releases them with the journal.
        if !matches!(self.namespaces.folder.read::<Attachment>(container_id, &self.interface), Ok(None)) {
            return error;
        }
        // A reservation that stays is void once the pod's namespace is gone.
        let _ = ipvlan_mode::release(&settings.run_directory, container_id, &self.interface);
        if !self.acquired {
            return error;
        }
        let folder = elastic_ip::folder(&settings.state_directory);
        let Self { namespaces, interface, .. } = self;
        let given_back = namespaces.on_node(|_| del::release(settings, &folder, container_id, interface));
        match given_back {
            Ok(()) => error,
            Err(left) => error.with("not rolled back", &left),
        }
    }
}

/// Completes the journal, after the last step.
fn complete(
    mut journal: Attachment<Made>,
    desired: &Desired,
    folder: &Folder,
    kernel: &mut Linux<'_>,
) -> Result<Link, Error> {
    let deleted =
        || Error::new(Code::Kernel, format!("another program has deleted {} meanwhile", desired.interface));
    let link = kernel.link().cloned().ok_or_else(deleted)?;
    let firewall = kernel.fingerprint(&desired.interface)?.ok_or_else(deleted)?;
    journal.undo.link = Some(link.index);
    journal.made = Some(Made::new(desired, &link, firewall));
    folder.write(&journal)?;
    Ok(link)
}

/// Multus forwards no GC, so an ADD releases orphaned Elastic IPs: those whose pod's network namespace is gone.
fn release_orphaned_elastic_ips(
    context: &Context<'_>,
    namespaces: &mut Namespaces,
    folder: &Folder,
) -> Result<(), Error> {
    let is_stale = |record: &ElasticIp| record.owner.netns.is_gone();
    let (records, errors) = folder.all::<ElasticIp>();
    for unreadable in errors {
        context.log.error(format_args!("{}", unreadable.error));
    }
    let stale: Vec<ElasticIp> = records.into_iter().filter(is_stale).collect();
    if stale.is_empty() {
        return Ok(());
    }
    namespaces.on_node(|_| {
        let deadline = Instant::now() + RELEASE_TIMEOUT;
        for ElasticIp { owner: Owner { container_id, interface, .. }, .. } in stale {
            // This pod does not wait for another call that is releasing it.
            let Ok(Some(locked)) = folder.lock::<ElasticIp>(&container_id, &interface, Instant::now()) else {
                continue;
            };
            let record = &locked.record;
            if !is_stale(record) {
                continue;
            }
            let release = |cloud: &aws::Cloud<'_>| aws::release(cloud, &record.state, deadline);
            let released = aws::over_network(context.settings, release)
                .and_then(|()| folder.remove(&container_id, &interface));
            match released {
                Ok(()) => {
                    context.log.verbose(format_args!("{} of a deleted pod is released", record.state.public))
                }
                Err(error) => context
                    .log
                    .error(format_args!("cannot release {} of a deleted pod: {error}", record.state.public)),
            }
        }
        Ok(())
    })
}
