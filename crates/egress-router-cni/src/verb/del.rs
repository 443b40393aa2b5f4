//! DEL: removes what is left of an attachment, and restores the pod if it keeps running. It is idempotent.

use std::collections::BTreeSet;
use std::time::Instant;

use common::netlink::link::Link;
use common::netlink::route::{Device, Route};

use crate::apply::{self, Linux};
use crate::aws;
use crate::cni::{Code, Error};
use crate::config::interface::mac_text;
use crate::config::settings::Settings;
use crate::names;
use crate::nftables;
use crate::observe::Pod;
use crate::plan::table_record::{self, TableRecord};
use crate::plan::{self, Identity, Step};
use crate::record::{Attachment, ElasticIp, Folder, Owned, attachment, elastic_ip};
use crate::sys;

use super::Context;
use super::ipvlan_mode;
use super::namespaces::{self, Namespaces};

/// Removes it in the pod, at EC2, and its records. It continues after a failure.
///
/// # Errors
/// The first failure, with the others in its details. Something is left then, and the runtime retries.
pub fn del(context: &Context<'_>) -> Result<(), Error> {
    sys::stay_on_processor();
    let identity = context.identity();
    let mut errors = Vec::new();
    let records = Records::of(context, &identity, &mut errors);
    match in_pod(context, &identity, &records) {
        Ok(()) => {}
        // The runtime has unmounted it but not yet removed the file, or its path belongs to another process, of the node: the pod no
        // longer exists.
        Err(error) if error.code == Code::InvalidNamespace => {
            context.log.verbose(format_args!("{error}: nothing to delete there"));
        }
        // ADD starts with a table, so without nf_tables it has changed nothing.
        Err(error) if !nftables::known() => {
            context
                .log
                .verbose(format_args!("{error}: this kernel has no nf_tables, so ADD has created nothing"));
        }
        Err(error) => errors.push(error),
    }
    errors.extend(records.forget(context.settings, &identity, errors.is_empty()));
    Error::first(errors)
}

/// The node's records of a container's interface: usually one attachment, with any name in the pod. DEL needs no `prevResult` to find a
/// chained one.
struct Records {
    attachments: Vec<Attachment>,
    elastic_ips: Vec<ElasticIp>,
}

impl Records {
    /// An unreadable record of an attachment must not block the deletion of the pod, because its table has everything that DEL needs. An
    /// unreadable record of an Elastic IP is an error.
    fn of(context: &Context<'_>, identity: &Identity, errors: &mut Vec<Error>) -> Self {
        let settings = context.settings;
        let (mut attachments, unread) =
            attachment::folder(&settings.run_directory).of_container::<Attachment>(&identity.container_id);
        for unreadable in unread {
            context.log.error(format_args!("{}", unreadable.error));
        }
        attachments.retain(|record| record.desired.identity.ifname == identity.ifname);
        let (mut elastic_ips, unread) =
            elastic_ip::folder(&settings.state_directory).of_container::<ElasticIp>(&identity.container_id);
        errors.extend(unread.into_iter().map(|unreadable| unreadable.error));
        elastic_ips.retain(|record| record.ifname == identity.ifname);
        Self { attachments, elastic_ips }
    }

    /// Releases Elastic IPs and removes the records; those of attachments only if nothing is left in the pod.
    fn forget(&self, settings: &Settings, identity: &Identity, ended: bool) -> Vec<Error> {
        let mut errors = Vec::new();
        let folder = elastic_ip::folder(&settings.state_directory);
        let released = self
            .elastic_ips
            .iter()
            .map(|record| release(settings, &folder, &record.container_id, &record.interface));
        errors.extend(released.filter_map(Result::err));
        let folder = attachment::folder(&settings.run_directory);
        let read = self.attachments.iter().map(Owned::interface);
        // The record with this name, also if it could not be read.
        for interface in read.chain([identity.ifname.as_str()]).filter(|_| ended) {
            errors.extend(folder.remove(&identity.container_id, interface).err());
            let released = ipvlan_mode::release(&settings.run_directory, &identity.container_id, interface);
            errors.extend(released.err());
        }
        errors
    }
}

/// Removes it in the pod, if the pod exists.
fn in_pod(context: &Context<'_>, identity: &Identity, records: &Records) -> Result<(), Error> {
    let Some((node, namespace)) = namespaces::find(context.call)? else { return Ok(()) };
    let path = context.call.netns.clone().unwrap_or_default();
    let mut namespaces = Namespaces::open(context, node, namespace, &path)?;
    let ended = end(context, identity, records, &mut namespaces);
    Error::first([ended, namespaces.leave()].into_iter().filter_map(Result::err))
}

fn end(
    context: &Context<'_>,
    identity: &Identity,
    records: &Records,
    namespaces: &mut Namespaces,
) -> Result<(), Error> {
    let mut errors = Vec::new();
    let mut pod = namespaces.pod()?;
    if namespaces.is_alone() {
        let temporary: Vec<Step> = plan::del::temporary(&pod).map(plan::del::delete_link).collect();
        errors.extend(apply::run_all(&temporary, &mut Linux::new(&mut namespaces.sockets)).err());
    }
    let mut interfaces = interfaces(identity, records, &pod).into_iter().peekable();
    while let Some(interface) = interfaces.next() {
        // Paths are reused: a record of another namespace does not apply to an interface with this name.
        let of_here = |record: &&Attachment| record.netns.identity == namespaces.netns.identity;
        let mut recorded = records.attachments.iter().filter(of_here);
        let record = recorded.find(|record| record.interface() == interface);
        let steps = steps(context, identity, &pod, &interface, record);
        if !steps.is_empty() {
            context.log.verbose(format_args!("{interface}: deleting it in {} steps", steps.len()));
            errors.extend(apply::run_all(&steps, &mut Linux::new(&mut namespaces.sockets)).err());
            if interfaces.peek().is_some() {
                pod = namespaces.pod()?;
            }
        }
    }
    Error::first(errors)
}

/// Candidates: by the pod's tables, by the node's records, and by name.
fn interfaces(identity: &Identity, records: &Records, pod: &Pod) -> BTreeSet<String> {
    let tables =
        table_record::all(pod).into_iter().filter(|(_, table_record)| table_record.belongs_to(identity));
    let mut interfaces: BTreeSet<String> = tables.map(|(interface, _)| interface).collect();
    interfaces.extend(records.attachments.iter().map(|record| record.interface().to_owned()));
    interfaces.insert(identity.ifname.clone());
    interfaces
}

/// By the table's record; after a flush by the file's; without both, only the link, if `prevResult` proves that this program created it.
fn steps(
    context: &Context<'_>,
    identity: &Identity,
    pod: &Pod,
    interface: &str,
    record: Option<&Attachment>,
) -> Vec<Step> {
    if let Some(lines) = pod.attachments.get(interface) {
        return match TableRecord::parse(lines) {
            Some(table_record) if table_record.belongs_to(identity) => {
                plan::del::del(pod, interface, &table_record)
            }
            Some(_) => Vec::new(),
            // A table without a readable record: only its name is known.
            None if interface == identity.ifname => plan::del::del(pod, interface, &TableRecord::default()),
            None => Vec::new(),
        };
    }
    if let Some(table_record) = record.and_then(|record| TableRecord::parse(&record.table_record)) {
        return plan::del::del(pod, interface, &table_record);
    }
    // Results are in the order of the chain: if this plugin created CNI_IFNAME, it is the last one.
    let in_pod = |sandbox: &Option<String>| sandbox.as_deref().is_some_and(|sandbox| !sandbox.is_empty());
    let mut all = context.network.previous.iter().flat_map(|previous| &previous.interfaces);
    let listed = all.rfind(|listed| in_pod(&listed.sandbox)).filter(|listed| listed.name == interface);
    let routed = |link: &&Link| {
        let of_ours = |route: &Route| {
            route.protocol == names::PROTOCOL && route.device == Some(Device::Index(link.index))
        };
        pod.routes.iter().any(of_ours)
    };
    // A macvlan of the previous plugin would be listed in the same way, if this plugin was added to the list after its ADD.
    let link = pod.links.iter().find(|link| link.name == interface && plan::del::ours(link)).filter(routed);
    match (listed, link) {
        (Some(listed), Some(link))
            if link.mac.map(mac_text) == listed.mac.as_deref().map(str::to_ascii_lowercase) =>
        {
            vec![plan::del::delete_link(link)]
        }
        _ => Vec::new(),
    }
}

/// Releases an Elastic IP and removes its record, which no other call uses meanwhile: a released private address is free for the next pod,
/// and a second call that has read the record would take it away. Other Elastic IPs are released at the same time. Does nothing if there is
/// no record any more.
pub(super) fn release(
    settings: &Settings,
    folder: &Folder,
    container_id: &str,
    interface: &str,
) -> Result<(), Error> {
    let deadline = Instant::now() + aws::TIMEOUT;
    let Some(locked) = folder.lock::<ElasticIp>(container_id, interface, deadline)? else { return Ok(()) };
    aws::release(&locked.record.state, settings, deadline)?;
    folder.remove(container_id, interface)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::config::settings::Aws;
    use crate::record::PodNetns;

    #[test]
    fn an_elastic_ip_that_another_call_released_is_not_released_again() {
        let directory = tempfile::tempdir().unwrap();
        let folder = elastic_ip::folder(directory.path());
        let record = ElasticIp {
            container_id: "c".into(),
            interface: "net1".into(),
            ifname: "net1".into(),
            network: "n".into(),
            netns: PodNetns { path: "/proc/none".into(), identity: (1, 2) },
            state: aws::State {
                instance: "i-1".into(),
                interface: "eni-1".into(),
                mac: [2, 0, 0, 0, 0, 1],
                public: [203, 0, 113, 9].into(),
                allocation: "eipalloc-1".into(),
                private: "10.0.0.50/24".parse().unwrap(),
                gateway: [10, 0, 0, 1].into(),
                stage: aws::Stage::Associating,
            },
        };
        folder.write(&record).unwrap();
        // No server listens there: a request fails.
        let nowhere = Some("http://127.0.0.1:1".to_owned());
        let aws = Aws { ec2_endpoint: nowhere.clone(), metadata_endpoint: nowhere, ..Aws::default() };
        let settings = Settings { aws, ..Settings::default() };
        let lock = folder.lock::<ElasticIp>("c", "net1", Instant::now()).unwrap().unwrap();
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let (folder, settings) = (&folder, &settings);
            scope.spawn(move || sender.send(release(settings, folder, "c", "net1")).unwrap());
            let early = receiver.recv_timeout(Duration::from_millis(100));
            assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout), "it waits for its turn");
            folder.remove("c", "net1").unwrap();
            drop(lock);
            assert_eq!(receiver.recv_timeout(Duration::from_secs(10)), Ok(Ok(())));
        });
    }
}
