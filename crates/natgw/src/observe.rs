//! The only reader: caches and cloud lists become a [`Snapshot`].

pub mod jobs;
pub mod network;
pub mod nodes;
pub mod snapshot;

use std::borrow::Borrow;
use std::collections::BTreeMap;

use common::k8s::{Job, Node};

use self::network::Cloud;
use self::snapshot::Snapshot;
use crate::config::Config;
use crate::error::Error;
use crate::plan;

/// Takes a Snapshot of the Nodes and Jobs given and of what the cloud says now.
///
/// # Errors
/// Any list that could not be read whole: then there is no Snapshot, and nothing is done.
pub async fn observe(
    config: &Config,
    nodes: &[impl Borrow<Node>],
    jobs: &[impl Borrow<Job>],
    cloud: &mut Cloud,
) -> Result<Snapshot, Error> {
    let view = cloud.view(nodes.iter().map(Borrow::borrow)).await?;
    let mut nodes: Vec<_> =
        nodes.iter().filter_map(|node| nodes::read(config, node.borrow(), &view)).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let mut by_node = BTreeMap::<String, Vec<snapshot::Job>>::new();
    for (node, job) in jobs.iter().filter_map(|job| jobs::read(job.borrow())) {
        by_node.entry(node).or_default().push(job);
    }
    for jobs in by_node.values_mut() {
        jobs.sort_by(|a, b| a.name.cmp(&b.name));
    }
    let mut snapshot = Snapshot { nodes, jobs: by_node, network: view.snapshot(), floating_ips: None };
    if plan::needs_floating_ips(config, &snapshot) {
        snapshot.floating_ips = Some(cloud.floating_ips().await?);
    }
    Ok(snapshot)
}
