//! What OpenStack shows.

use std::collections::BTreeMap;

use common::api::deorbit::{Kind, Recorded};
use common::routes::Route;

/// OpenStack, as far as the records and the cluster name things in it. What was asked for and is not here does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cloud {
    /// ID of the project.
    pub project: String,
    /// By ID.
    pub volumes: BTreeMap<String, CloudVolume>,
    /// By ID.
    pub snapshots: BTreeMap<String, CloudSnapshot>,
    /// By ID.
    pub load_balancers: BTreeMap<String, LoadBalancer>,
    /// By ID: all of the project where any load balancer is looked at.
    pub floating_ips: BTreeMap<String, FloatingIp>,
    /// By ID: all of the project where any load balancer is looked at.
    pub security_groups: BTreeMap<String, SecurityGroup>,
    /// The router's routes within the pod networks that lead to nobody: in the phases Inventory and Routes.
    pub routes: Vec<Route>,
    /// Those within the pod networks of which nobody can say whether they lead to somebody: in the same phases.
    pub doubtful_routes: Vec<DoubtfulRoute>,
    /// Why both are not known, where they are not.
    pub routes_unread: Option<String>,
    /// Whether the lists above are those of the whole project, for the sweep.
    pub whole: bool,
}

impl Cloud {
    /// Whether what this names is there, its own or shared.
    #[must_use]
    pub fn shows(&self, record: &Recorded) -> bool {
        record.id.as_deref().is_some_and(|id| match record.kind {
            Kind::Volume => self.volumes.contains_key(id),
            Kind::Snapshot => self.snapshots.contains_key(id),
            Kind::LoadBalancer => self.load_balancers.contains_key(id),
            Kind::FloatingIP => self.floating_ips.contains_key(id),
            Kind::SecurityGroup => self.security_groups.contains_key(id),
        })
    }

    /// The only load balancer of which this is true, with its ID: of two, nobody knows which is meant.
    pub fn only_load_balancer(
        &self,
        is_it: impl Fn(&LoadBalancer) -> bool,
    ) -> Option<(&String, &LoadBalancer)> {
        let mut found = self.load_balancers.iter().filter(|(_, seen)| is_it(seen));
        found.next().filter(|_| found.next().is_none())
    }
}

/// A Cinder volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudVolume {
    /// `pvc-...`
    pub name: String,
    /// `available`, `in-use`, `deleting`, `error_deleting`, ...
    pub status: String,
    /// Its keep mark is set.
    pub keep: bool,
    /// The CSI driver's cluster name.
    pub cluster: Option<String>,
}

/// A Cinder snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudSnapshot {
    /// `snapshot-...`
    pub name: String,
    /// `available`, `deleting`, `error_deleting`, ...
    pub status: String,
    /// The volume that it was taken of.
    pub volume: String,
    /// Its keep mark is set.
    pub keep: bool,
    /// The CSI driver's cluster name.
    pub cluster: Option<String>,
}

/// An Octavia load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadBalancer {
    /// `kube_service_...`
    pub name: String,
    /// `Kubernetes external service ...`
    pub description: String,
    /// `ACTIVE`, `ERROR`, `PENDING_DELETE`, ...
    pub status: String,
    /// One for each Service that shares it.
    pub tags: Vec<String>,
    /// Its own address.
    pub address: Option<String>,
    /// The port of its address.
    pub port: Option<String>,
}

/// A Neutron floating IP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FloatingIp {
    /// The address.
    pub address: String,
    /// Says which Service it was made for.
    pub description: String,
    /// The port that it leads to.
    pub port: Option<String>,
}

/// A Neutron security group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecurityGroup {
    /// `lb-sg-...`
    pub name: String,
    /// Says which Service it was made for.
    pub description: String,
}

/// A route of the router that is left alone, because somebody unseen may be its next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoubtfulRoute {
    /// Which.
    pub route: Route,
    /// What keeps it from being judged, for a person.
    pub why: String,
}
