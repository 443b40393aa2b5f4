//! The only reader: caches and cloud lists become a [`Snapshot`].

pub mod health;
pub mod jobs;
pub mod network;
pub mod nodes;
pub mod prober;
pub mod snapshot;

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::time::Instant;

use common::k8s::{Job, Node};

use self::health::Health;
use self::network::Cloud;
use self::snapshot::Snapshot;
use crate::config::{Config, Mode};
use crate::error::Error;
use crate::plan;

/// Takes a Snapshot of the given Nodes, Jobs and health checks and of the present state of the cloud.
///
/// # Errors
/// Any list that could not be read completely: there is no Snapshot, and nothing is done. This includes the floating IPs only if
/// labels are written from them and there is no earlier list.
pub async fn observe(
    config: &Config,
    nodes: &[impl Borrow<Node>],
    jobs: &[impl Borrow<Job>],
    cloud: &mut Cloud,
    health: Health,
) -> Result<Snapshot, Error> {
    let view = cloud.view(nodes.iter().map(Borrow::borrow)).await?;
    let read = |node: &Node| nodes::read(config, node, |name, provider_id| view.server_of(name, provider_id));
    let mut nodes: Vec<_> = nodes.iter().filter_map(|node| read(node.borrow())).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    let hashed = nodes.iter().filter(|_| !jobs.is_empty());
    let names: BTreeMap<String, &String> =
        hashed.map(|node| (plan::jobs::node_hash(&node.name), &node.name)).collect();
    let mut by_node = BTreeMap::<String, Vec<snapshot::Job>>::new();
    for (hash, job) in jobs.iter().filter_map(|job| jobs::read(job.borrow())) {
        // The Jobs of a deleted Node are garbage-collected.
        let Some(name) = names.get(&hash) else { continue };
        by_node.entry((*name).clone()).or_default().push(job);
    }
    for jobs in by_node.values_mut() {
        jobs.sort_by(|a, b| a.name.cmp(&b.name));
    }
    let mut snapshot = Snapshot {
        nodes,
        jobs: by_node,
        network: view.snapshot(),
        floating_ips: None,
        floating_ip_polls: 0,
        floating_ips_error: None,
        health,
    };
    if config.mode == Mode::Run {
        let started = Instant::now();
        list_floating_ips(config, cloud, &mut snapshot, None).await?;
        // The route follows a label only by a list that is current. One that has just failed is not requested once more: without a
        // response, that takes half a minute each time, and the route waits.
        if snapshot.floating_ips_error.is_none() && plan::moves_route(config, &snapshot) {
            list_floating_ips(config, cloud, &mut snapshot, Some(started)).await?;
        }
    }
    Ok(snapshot)
}

/// Lists the floating IPs into the Snapshot. The last list counts if they cannot be listed: without it, a label that was removed
/// by mistake would not be restored, and the route would stay at a gateway that has stopped.
async fn list_floating_ips(
    config: &Config,
    cloud: &mut Cloud,
    snapshot: &mut Snapshot,
    since: Option<Instant>,
) -> Result<(), Error> {
    snapshot.floating_ips_error = match cloud.list_floating_ips(&snapshot.nodes, since).await {
        Ok(()) => None,
        Err(error) if config.keeps_labels() && cloud.floating_ips().is_none() => return Err(error),
        Err(error) => Some(error.to_string()),
    };
    if let Some((floating_ips, polls)) = cloud.floating_ips() {
        snapshot.floating_ips = Some(floating_ips.clone());
        snapshot.floating_ip_polls = polls;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
