//! The bounds of the exploration, and its counts.

use super::act::Act;
use super::cluster::{Cluster, Ip, MOST, Probed};
use super::environment::{Alphabet, Event};
use super::flaw::Flaw;
use crate::config::Config;

/// The parameters of one exploration.
pub struct Bounds {
    pub config: Config,
    pub nodes: usize,
    pub alphabet: Alphabet,
    /// Maximum number of disturbances in all; None for any number.
    pub disturbances: Option<usize>,
    pub start: Start,
    pub flaw: Flaw,
    /// Every write of the route and of role labels is refused, as for a read-only token and an admission webhook.
    pub refuses_route_and_role: bool,
}

impl Bounds {
    pub fn refuses(&self, act: Act) -> bool {
        self.refuses_route_and_role && act.is_route_or_role()
    }
}

/// The clusters that an exploration begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A cluster without labels.
    Nothing,
    /// One cluster for each labelling of the Nodes.
    Labels,
    /// A cluster with gateways that are set up, one for each floating IP, and the route at the oldest.
    Gateways,
    /// The same, with health checks.
    Probed,
    /// The same, with labels that natgw writes.
    Managed,
}

impl Start {
    pub fn clusters(self, nodes: usize) -> Vec<Cluster> {
        let mut clusters = vec![Cluster::new(nodes)];
        for i in 0..nodes as u8 {
            let labelled = |cluster: &Cluster, ip: Ip| {
                let mut cluster = *cluster;
                Event::Label(i, Some(ip)).happen(&mut cluster);
                cluster
            };
            match (self, Ip::ALL.get(usize::from(i))) {
                (Start::Labels, _) => {
                    let more = clusters.iter().flat_map(|cluster| Ip::ALL.map(|ip| labelled(cluster, ip)));
                    clusters.extend(more.collect::<Vec<_>>());
                }
                (Start::Gateways | Start::Probed | Start::Managed, Some(ip)) => {
                    clusters = vec![labelled(&clusters[0], *ip).with_gateway(i)]
                }
                _ => {}
            }
        }
        if self == Start::Managed {
            clusters.iter_mut().for_each(|cluster| cluster.confirmed = Some(false));
        }
        if self == Start::Probed {
            clusters.iter_mut().for_each(|cluster| cluster.probed = Some([Probed::Responds; MOST]));
        }
        clusters
    }
}

/// The counts of one exploration. A count of zero reveals an exploration that proves nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub states: usize,
    pub clusters: usize,
    pub transitions: usize,
    /// The most moves that lead to a state.
    pub depth: u32,
    /// The most reconciliations that any cluster needs to come to rest.
    pub reconciles_to_rest: u32,
    pub crashes: usize,
    pub refused: usize,
    pub route_moves: usize,
    /// Moves of the route to a Node that had changed since the observation: the next reconciliation corrects them.
    pub overtaken: usize,
    pub teardowns: usize,
    pub failures: usize,
}
