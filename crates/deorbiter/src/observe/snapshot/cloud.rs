//! The observed state of OpenStack.

use std::collections::BTreeMap;

use common::api::deorbit::Kind;
use common::cloud::openstack::{ApplicationCredential, FloatingIp, LoadBalancer, SecurityGroup};
use common::routes::Route;

use crate::record::Recorded;

/// The resources in OpenStack that the records and the cluster name. A resource that was requested and is missing here
/// does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cloud {
    /// ID of the project.
    pub project: String,
    /// The region that the login names, if it names one.
    pub region: Option<String>,
    /// A server of this project that a Node of the target names. It is searched only until one was found.
    pub own_server: Option<String>,
    /// The application credential of the login, if it is one.
    pub credential: Option<ApplicationCredential>,
    /// By ID.
    pub volumes: BTreeMap<String, BlockStorage>,
    /// By ID.
    pub snapshots: BTreeMap<String, BlockStorage>,
    /// By ID. Each has one tag for each Service that shares it.
    pub load_balancers: BTreeMap<String, LoadBalancer>,
    /// By ID: all of the project where any load balancer is read.
    pub floating_ips: BTreeMap<String, FloatingIp>,
    /// By ID: all of the project where any load balancer is read.
    pub security_groups: BTreeMap<String, SecurityGroup>,
    /// The routes of the router, where the spec names one: in the phases Inventory and Finishing.
    pub routes: Option<Result<Routes, String>>,
    /// Whether the lists above are those of the whole project, for the discovery by the cluster's name.
    pub whole: bool,
}

impl Cloud {
    /// The ID of the project and, where the login names one, the region, for messages: `ID, region NAME`.
    #[must_use]
    pub fn place(&self) -> String {
        let region = self.region.as_deref().map_or_else(String::new, |region| format!(", region {region}"));
        format!("{}{region}", self.project)
    }

    /// Whether the object of this record exists, its own or shared.
    #[must_use]
    pub fn shows(&self, record: &Recorded) -> bool {
        record.id.as_deref().is_some_and(|id| match record.kind {
            Kind::Volume | Kind::Snapshot => self.block_storage(record.kind, id).is_some(),
            Kind::LoadBalancer => self.load_balancers.contains_key(id),
            Kind::FloatingIP => self.floating_ips.contains_key(id),
            Kind::SecurityGroup => self.security_groups.contains_key(id),
        })
    }

    /// The volume or snapshot of this ID; None for other kinds, which Cinder does not have.
    #[must_use]
    pub fn block_storage(&self, kind: Kind, id: &str) -> Option<&BlockStorage> {
        match kind {
            Kind::Volume => self.volumes.get(id),
            Kind::Snapshot => self.snapshots.get(id),
            Kind::LoadBalancer | Kind::FloatingIP | Kind::SecurityGroup => None,
        }
    }

    /// The only load balancer that matches, with its ID; None where two do, since either may be meant.
    pub fn only_load_balancer(
        &self,
        is_it: impl Fn(&LoadBalancer) -> bool,
    ) -> Option<(&String, &LoadBalancer)> {
        let mut found = self.load_balancers.iter().filter(|(_, seen)| is_it(seen));
        found.next().filter(|_| found.next().is_none())
    }
}

/// A volume or a snapshot of Cinder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockStorage {
    /// `pvc-...`, `snapshot-...`
    pub name: String,
    /// `available`, `in-use`, `deleting`, `error_deleting`, ...
    pub status: String,
    /// The volume that a snapshot was taken of; empty for a volume.
    pub volume: String,
    /// It has the keep metadata.
    pub keep: bool,
    /// The CSI driver's cluster name.
    pub cluster: Option<String>,
}

/// The routes of a router into the pod networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// All of them.
    pub all: Vec<Route>,
    /// Those that are stale.
    pub stale: Vec<Route>,
    /// Those with a next hop that may exist.
    pub doubtful: Vec<DoubtfulRoute>,
    /// Why it is unknown which of them are stale, where it is.
    pub unread: Option<String>,
}

/// A route of the router that is kept, because its next hop may exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoubtfulRoute {
    /// The route that is kept.
    pub route: Route,
    /// Why that is unknown.
    pub why: String,
}
