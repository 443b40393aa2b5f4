//! Driver for openshift-sdn: flows in its bridge, chains in iptables.
//!
//! ```text
//!   ovs-vsctl, ovs-ofctl dump-flows ── facts ──┐
//!   Datapath ──────────────────────────────── plan ── flows, chains ── difference ── ovs-ofctl bundle, iptables-restore
//!   ovs-ofctl dump-flows, iptables-save ──────────────────────────────────┘
//! ```
//!
//! * [`profile`]: tables and priorities of openshift-sdn's releases, as data.
//! * [`flow`], [`iptables`]: what is written and read, in one canonical form.
//! * [`facts`]: ports, the MAC address of tun0, and the VNIDs of pods.
//! * [`plan`], [`balance`], [`difference`]: the decisions. Pure.
//! * [`command`]: executes the programs. `sysctl` writes settings of the kernel.
//!
//! Flows of openshift-sdn are never changed: the driver's have a cookie of their own and higher priorities. The programmed state is
//! read by each [`Driver::apply`], because openshift-sdn removes the driver's flow of a pod together with its own, and openshift-sdn
//! and kube-proxy insert their jumps before the driver's.

pub mod balance;
pub mod command;
pub mod difference;
pub mod facts;
pub mod flow;
pub mod iptables;
pub mod plan;
pub mod profile;
mod sysctl;

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use common::netlink::{
    self, conntrack,
    socket::{Protocol, Socket},
};

use command::Programs;
use difference::FlowChange;
use facts::Facts;
use flow::Flow;
use iptables::{Rules, Step};
use plan::PortMode;
use profile::Profile;

use super::{
    datapath::Datapath,
    driver::{Change, Driver, Error},
};

/// Settings of the driver.
#[derive(Clone, Debug)]
pub struct Config {
    /// Tables of the installed openshift-sdn.
    pub profile: Profile,
    /// The program that translates the destination of packets to a VIP.
    pub ports: PortMode,
    /// Name of openshift-sdn's bridge.
    pub bridge: String,
    /// The folder with the sockets of ovsdb-server and ovs-vswitchd.
    pub run_dir: PathBuf,
    /// The longest that one program (`ovs-ofctl`, `ovs-vsctl`, `iptables-save`, `iptables-restore`) may run.
    pub timeout: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            profile: profile::V3_7,
            ports: PortMode::Own,
            bridge: "br0".into(),
            run_dir: "/var/run/openvswitch".into(),
            timeout: Duration::from_secs(10),
        }
    }
}

/// The driver.
#[derive(Debug)]
pub struct Ovs {
    config: Config,
    flows: Option<Written<BTreeSet<Flow>>>,
    rules: Option<Written<Rules>>,
    /// The datapath that was applied last.
    last: Option<Datapath>,
}

/// The last state that was written, and how the kernel or the switch prints it. Other releases may print an equal flow or rule in
/// another form; without this, they would be written each time.
#[derive(Debug)]
struct Written<T> {
    desired: T,
    observed: T,
}

impl<T: PartialEq> Written<T> {
    fn is(written: Option<&Written<T>>, observed: &T, desired: &T) -> bool {
        written.is_some_and(|written| written.observed == *observed && written.desired == *desired)
    }
}

/// Whether changes are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Write,
    Preview,
}

impl Ovs {
    /// A driver that has not read anything yet.
    #[must_use]
    pub fn new(config: Config) -> Ovs {
        Ovs { config, flows: None, rules: None, last: None }
    }

    fn programs(&self) -> Programs<'_> {
        Programs(&self.config)
    }

    fn run(&mut self, desired: &Datapath, mode: Mode) -> Result<Vec<Change>, Error> {
        // Chains first: they need no bridge, and a pod that is tagged before its gateway has the guards would leave with the address
        // of the gateway.
        let mut changes = self.set_rules(&plan::rules(self.config.ports, desired), mode)?;
        changes.extend(sysctl::set(&plan::sysctls(desired), mode)?);
        let observed = self.observe_flows()?;
        let facts = self.facts(&observed)?;
        if desired.node.candidate && facts.has_egress_ip {
            return Err(self.bridge_error(
                "this node is a gateway candidate, and openshift-sdn uses it for an egressIP".into(),
            ));
        }
        changes.extend(self.set_flows(
            &observed,
            plan::flows(&self.config.profile, desired, &facts),
            mode,
        )?);
        if mode == Mode::Write && self.last.as_ref() != Some(desired) {
            self.end_connections(desired)?;
            self.last = Some(desired.clone());
        }
        Ok(changes)
    }

    /// Without its conntrack entry, the next packet of a connection is translated as the first of a new one is.
    fn end_connections(&self, desired: &Datapath) -> Result<(), Error> {
        let pods = self.last.as_ref().map(|last| plan::with_other_snat(last, desired));
        if pods.as_ref().map_or(!desired.node.candidate, BTreeSet::is_empty) {
            return Ok(());
        }
        let has_other_snat = plan::has_other_snat(desired);
        let is_stale = |entry: &conntrack::Entry| match &pods {
            Some(pods) => pods.contains(&entry.original.0),
            None => has_other_snat(entry.original, entry.reply.1),
        };
        let failure = |error: netlink::Error| Error {
            operation: "deleting conntrack entries".into(),
            cause: error.to_string(),
            is_permanent: false,
        };
        let mut socket = Socket::open(Protocol::Netfilter).map_err(failure)?;
        conntrack::delete(&mut socket, is_stale).map_err(failure)?;
        Ok(())
    }

    fn bridge_error(&self, cause: String) -> Error {
        let operation = format!("reading the bridge {}", self.config.bridge);
        Error { operation, cause, is_permanent: false }
    }

    fn observe_flows(&self) -> Result<BTreeSet<Flow>, Error> {
        flow::parse_dump(&self.programs().dump_flows()?).map_err(|error| self.bridge_error(error.to_string()))
    }

    fn observe_rules(&self) -> Result<Rules, Error> {
        iptables::parse_save(&self.programs().save()?).map_err(|cause| Error {
            operation: "reading the chains of iptables".into(),
            cause,
            is_permanent: false,
        })
    }

    fn facts(&self, flows: &BTreeSet<Flow>) -> Result<Facts, Error> {
        let interfaces = facts::parse_interfaces(&self.programs().interfaces()?);
        interfaces
            .and_then(|interfaces| facts::facts(&self.config.profile, &interfaces, flows))
            .map_err(|cause| self.bridge_error(cause))
    }

    fn set_rules(&mut self, desired: &Rules, mode: Mode) -> Result<Vec<Change>, Error> {
        let observed = self.observe_rules()?;
        if Written::is(self.rules.as_ref(), &observed, desired) {
            return Ok(Vec::new());
        }
        let steps = difference::rules(&observed, desired);
        let last = self.rules.as_ref().map(|written| &written.desired);
        let changes = steps.iter().map(|step| Change {
            object: "iptables",
            description: step.to_string(),
            is_repair: last.is_some_and(|last| match step {
                Step::Replace(chain, rules) => last.chains.get(chain) == Some(rules),
                Step::InsertJump(chain, _) | Step::DeleteJump(chain, _) => {
                    last.jumps.get(chain) == desired.jumps.get(chain)
                }
                Step::Remove(chain) => !last.chains.contains_key(chain),
            }),
        });
        let changes: Vec<Change> = changes.collect();
        if mode == Mode::Preview {
            return Ok(changes);
        }
        let mut present = observed;
        if !steps.is_empty() {
            let (first, second) = difference::guarded(&present, &steps);
            for steps in [first, second].iter().filter(|steps| !steps.is_empty()) {
                self.programs().restore(&iptables::render(steps))?;
            }
            present = self.observe_rules()?;
        }
        // A jump that another program displaced meanwhile is repaired by the next call.
        let is_written = present.jumps == desired.jumps
            && present.chains.keys().eq(desired.chains.keys())
            && present.chains.values().map(Vec::len).eq(desired.chains.values().map(Vec::len));
        self.rules = Some(Written {
            observed: if is_written { present } else { desired.clone() },
            desired: desired.clone(),
        });
        Ok(changes)
    }

    fn set_flows(
        &mut self,
        observed: &BTreeSet<Flow>,
        desired: BTreeSet<Flow>,
        mode: Mode,
    ) -> Result<Vec<Change>, Error> {
        if Written::is(self.flows.as_ref(), &ours(observed), &desired) {
            return Ok(Vec::new());
        }
        let steps = difference::flows(observed, &desired);
        let last = self.flows.as_ref().map(|written| &written.desired);
        // Many flows are removed when many pods are unbound.
        let last = last.map(|last| (last, last.iter().map(|flow| &flow.key).collect::<BTreeSet<_>>()));
        let changes = steps.iter().map(|step| Change {
            object: "flow",
            description: match step {
                FlowChange::Add(flow) => format!("add {flow}"),
                FlowChange::Delete(key) => format!("remove {key}"),
            },
            is_repair: last.as_ref().is_some_and(|(last, keys)| match step {
                FlowChange::Add(flow) => last.contains(flow),
                FlowChange::Delete(key) => !keys.contains(key),
            }),
        });
        let changes: Vec<Change> = changes.collect();
        if mode == Mode::Preview {
            return Ok(changes);
        }
        let mut present = ours(observed);
        if !steps.is_empty() {
            self.programs().bundle(&difference::bundle(&steps))?;
            present = ours(&self.observe_flows()?);
        }
        let is_written = present.len() == desired.len();
        self.flows = Some(Written { observed: if is_written { present } else { desired.clone() }, desired });
        Ok(changes)
    }
}

fn ours(flows: &BTreeSet<Flow>) -> BTreeSet<Flow> {
    flows.iter().filter(|flow| flow.is_ours()).cloned().collect()
}

impl Driver for Ovs {
    fn apply(&mut self, desired: &Datapath) -> Result<Vec<Change>, Error> {
        self.run(desired, Mode::Write)
    }

    fn preview(&mut self, desired: &Datapath) -> Result<Vec<Change>, Error> {
        self.run(desired, Mode::Preview)
    }

    fn uninstall(&mut self) -> Result<Vec<Change>, Error> {
        self.last = None;
        // Flows first: a pod without a tag is dropped by the guards until these are removed as well. Without ovs-vswitchd there are
        // no flows.
        let mut changes = Vec::new();
        if self.programs().has_bridge() {
            let observed = self.observe_flows()?;
            changes = self.set_flows(&observed, BTreeSet::new(), Mode::Write)?;
        }
        changes.extend(self.set_rules(&Rules::default(), Mode::Write)?);
        changes.extend(sysctl::reset()?);
        Ok(changes)
    }
}
