//! The bounds of the exploration, and its counts.

use super::act::Act;
use super::cluster::{Cluster, Ip};
use super::environment::{Alphabet, Event};
use super::flaw::Flaw;
use crate::config::Config;

/// What is explored.
pub struct Bounds {
    pub config: Config,
    pub nodes: usize,
    pub alphabet: Alphabet,
    /// How many disturbances there may be in all; None for any number.
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

/// Where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With no label anywhere.
    Nothing,
    /// With each way to label the Nodes.
    Labels,
    /// With gateways that are set up, one for each floating IP, and the route at the oldest.
    Gateways,
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
                (Start::Gateways, Some(ip)) => clusters = vec![labelled(&clusters[0], *ip).with_gateway(i)],
                _ => {}
            }
        }
        clusters
    }
}

/// What happened on the way: a proof about nothing would show here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    pub states: usize,
    pub clusters: usize,
    pub transitions: usize,
    /// The longest way to a state.
    pub depth: u32,
    /// The most reconciliations that a cluster needs to come to rest.
    pub reconciles_to_rest: u32,
    pub crashes: usize,
    pub refused: usize,
    pub route_moves: usize,
    /// Moves of the route to a Node that had changed since the observation: the next reconciliation corrects them.
    pub overtaken: usize,
    pub teardowns: usize,
    pub failures: usize,
}
