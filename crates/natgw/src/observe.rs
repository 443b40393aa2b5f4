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
/// Any list that could not be read whole: then there is no Snapshot, and nothing is done. The floating IPs are one of them only
/// where labels are written from them and they were never read; later the last list stands.
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
    let mut snapshot = Snapshot {
        nodes,
        jobs: by_node,
        network: view.snapshot(),
        floating_ips: None,
        floating_ips_unread: None,
    };
    if plan::needs_floating_ips(config, &snapshot) {
        match cloud.floating_ips().await {
            Ok(floating_ips) => snapshot.floating_ips = Some(floating_ips),
            // A label that was taken off by mistake is put back: not to know of that would cost the Node its role.
            Err(error) if config.keeps_labels() && cloud.last_floating_ips().is_none() => return Err(error),
            // Otherwise the route is not left at a dead gateway for want of them.
            Err(error) => {
                snapshot.floating_ips_unread = Some(error.to_string());
                snapshot.floating_ips = cloud.last_floating_ips().filter(|_| config.keeps_labels()).cloned();
            }
        }
    }
    Ok(snapshot)
}
