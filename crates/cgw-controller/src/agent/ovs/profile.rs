//! Tables and priorities of openshift-sdn, by release.

use std::fmt;

use clap::{ValueEnum, builder::PossibleValue};

/// Where the driver's flows stand in openshift-sdn's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// As `--ovs-profile` names it.
    pub name: &'static str,
    /// Its releases, for the help of `--ovs-profile`.
    pub releases: &'static str,
    /// The table that a pod's packet enters after its address was checked (table 20).
    pub pod_next: u8,
    /// Reads conntrack before that table: without it, the reply of a pod to a client of a NodePort would leave by the VIP's gateway.
    pub tracks_pods: bool,
    /// The table that sends packets out of the cluster.
    pub egress_table: u8,
    /// Priority of the driver's egress flows: above openshift-sdn's egressIP (100), below its rule for replies (150) where it has one.
    pub egress_priority: u16,
    /// The driver's own rule for replies, where openshift-sdn has none: priority.
    pub reply_priority: Option<u16>,
    /// Priority of packets to excluded destinations. They leave as if their pod were not bound, if they are no reply to a client of the
    /// VIP. The next two priorities are used as well; all are above the rules for replies.
    pub excluded_priority: u16,
    /// The last step of a packet that leaves on this node: EgressNetworkPolicy in a later table, or tun0.
    pub exit: Exit,
    /// A remote gateway's flow records the connection in conntrack, so that NetworkPolicy admits the replies over VXLAN.
    pub commits: bool,
    /// Packets that arrive over VXLAN for a bound pod, and may be from a client of the VIP: priority above openshift-sdn's (200), and
    /// after its conntrack. Packets between pods have a priority 5 above it.
    pub client_priority: u16,
    /// Packets that arrive over VXLAN on a candidate: priority of the flows between pods.
    pub between_pods_priority: u16,
    /// The same, for packets to the outside.
    pub arrival_priority: u16,
    /// The step after [`Profile::arrival_priority`].
    pub arrival: Exit,
    /// openshift-sdn reads conntrack in table 0. The driver's flows of table 0 precede it, because netfilter tracks the same
    /// connections in the same zone.
    pub precedes_conntrack: bool,
}

/// How a packet leaves on this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By a later table.
    Table(u8),
    /// By tun0.
    Tunnel,
}

/// openshift-sdn of OpenShift 3.7 to 4.7: the layout of the seed.
pub const V3_7: Profile = Profile {
    name: "3.7",
    releases: "3.7 to 4.7: egress in table 100",
    pod_next: 21,
    tracks_pods: true,
    egress_table: 100,
    // 4.6 and 4.7 have their rule for replies at 150 of this table.
    egress_priority: 140,
    reply_priority: Some(160),
    excluded_priority: 161,
    exit: Exit::Table(101),
    commits: false,
    client_priority: 215,
    between_pods_priority: 220,
    arrival_priority: 210,
    arrival: Exit::Table(100),
    precedes_conntrack: false,
};

/// openshift-sdn of OpenShift 4.10 to 4.16.
pub const V4_10: Profile = Profile {
    name: "4.10",
    releases: "4.10 to 4.16: egress in table 101",
    pod_next: 27,
    tracks_pods: false,
    egress_table: 101,
    egress_priority: 140,
    reply_priority: None,
    excluded_priority: 151,
    exit: Exit::Tunnel,
    commits: true,
    client_priority: 215,
    between_pods_priority: 1120,
    arrival_priority: 1110,
    arrival: Exit::Tunnel,
    precedes_conntrack: true,
};

/// All profiles.
pub const ALL: [Profile; 2] = [V3_7, V4_10];

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl ValueEnum for Profile {
    fn value_variants<'a>() -> &'a [Profile] {
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name).help(self.releases))
    }
}
