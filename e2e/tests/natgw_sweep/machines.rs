//! What is true of the machines, whatever anybody's annotation says.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// One machine's kernel, and what works on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The floating IP that it translates to: from the end of a setup to the begin of a teardown, or to a reboot.
    pub translates_to: Option<String>,
    /// Its address in the network.
    pub ip: Option<Ipv4Addr>,
    /// Between the loss of the kernel and the kubelet's word about it: what the Node says meanwhile is nobody's lie.
    pub rebooting: bool,
    /// How often each Job type has begun.
    pub runs: BTreeMap<String, usize>,
    /// Pods at work, by name.
    pub at_work: Vec<String>,
}

/// All machines of a environment, by the names of their Nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machines {
    /// Grows with each change: equal before and after a look, nothing has changed meanwhile.
    pub version: u64,
    /// By name.
    pub all: BTreeMap<String, Machine>,
}

impl Machines {
    /// Changes a machine.
    pub fn change<R>(&mut self, name: &str, change: impl FnOnce(&mut Machine) -> R) -> R {
        self.version += 1;
        change(self.all.entry(name.to_owned()).or_default())
    }

    /// A Job's script begins. Returns what must not be: `runs` says whether a pod is still at work.
    pub fn begin(
        &mut self,
        name: &str,
        pod: &str,
        kind: &str,
        route: Option<Ipv4Addr>,
        runs: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let another =
            self.all.iter().any(|(other, machine)| other != name && machine.translates_to.is_some());
        self.change(name, |machine| {
            *machine.runs.entry(kind.to_owned()).or_default() += 1;
            machine.at_work.retain(|each| each != pod && runs(each));
            let beside = machine.at_work.clone();
            machine.at_work.push(pod.to_owned());
            if kind != "setup" {
                machine.translates_to = None;
                if another && machine.ip.is_some() && machine.ip == route {
                    return Some(format!(
                        "{name} is torn down while the route points to it, and another could have it"
                    ));
                }
            }
            (!beside.is_empty()).then(|| format!("{pod} works on {name} beside {beside:?}"))
        })
    }

    /// It has come to its end. One that was ended before has done we do not know what: then nothing is translated for sure.
    pub fn end(&mut self, name: &str, pod: &str, sets_up: Option<&str>) {
        self.change(name, |machine| {
            machine.at_work.retain(|each| each != pod);
            if let Some(ip) = sets_up {
                machine.translates_to = Some(ip.to_owned());
            }
        });
    }
}
