//! The laws: invariants of every state, of every act, at rest, and in the end. They are written independently of the
//! rules of `plan`.

use super::act::Act;
use super::cluster::{Boot, Cluster, Hop, Ip, Kernel, Node, Probed, Ready};
use crate::config::{Config, OnNoCandidate};

/// Whether the Node is set up for its label since its boot, and no task is pending.
fn is_set_up(node: &Node) -> bool {
    node.label.is_some_and(|ip| {
        node.setup == Some(ip)
            && node.setup_boot == Some(Boot::This)
            && node.pending.is_none()
            && node.kernel[ip as usize] == Kernel::SetUp
    })
}

/// Whether this Node could forward the traffic of the network, apart from the assignment of its floating IP.
fn is_fit(node: &Node) -> bool {
    is_set_up(node) && node.ready == Ready::True && !node.cordoned && node.attached
}

/// Whether the floating IP in its label is assigned to this Node's server.
fn is_confirmed(cluster: &Cluster, i: u8) -> bool {
    let node = &cluster.nodes[usize::from(i)];
    node.label.is_some_and(|ip| cluster.assigned[ip as usize] == Some(i))
}

/// Whether the route may be moved to this Node.
pub fn is_candidate(cluster: &Cluster, i: u8) -> bool {
    could_be_primary(cluster, i) && !is_unavailable(cluster, i)
}

/// Whether this Node is a candidate apart from its health checks.
fn could_be_primary(cluster: &Cluster, i: u8) -> bool {
    is_fit(&cluster.nodes[usize::from(i)]) && is_confirmed(cluster, i)
}

/// The law of the health checks: a failure counts only while the third reference and another candidate respond, and a Node that has
/// the route is not left once it responds again.
fn is_unavailable(cluster: &Cluster, i: u8) -> bool {
    let Some(probed) = cluster.probed else { return false };
    let probed = |i: u8| probed[usize::from(i)];
    let mut others = (0..cluster.len).filter(|other| *other != i && could_be_primary(cluster, *other));
    let is_down = match probed(i) {
        Probed::Responds => false,
        Probed::Fails => true,
        Probed::Recovers => cluster.route != Hop::Node(i),
    };
    is_down && cluster.reference && others.any(|other| probed(other) == Probed::Responds)
}

fn candidates(cluster: &Cluster) -> impl Iterator<Item = u8> {
    (0..cluster.len).filter(|i| is_candidate(cluster, *i))
}

/// The law of every state.
pub fn always(cluster: &Cluster) -> Result<(), String> {
    for (i, node) in cluster.nodes().iter().enumerate() {
        let alive = |setup: bool| node.jobs().any(|job| job.is_alive() && job.work.setup == setup);
        if alive(true) && alive(false) {
            return Err(format!("node-{i} has a setup Job beside a teardown Job"));
        }
        if node.jobs().filter(|job| job.is_alive()).count() > 1 {
            return Err(format!("node-{i} has two Jobs at work"));
        }
        for ip in Ip::ALL {
            let kernel = node.kernel[ip as usize];
            let (recorded, marked) = (node.setup == Some(ip), node.pending.is_some_and(|work| work.ip == ip));
            if kernel != Kernel::Clean && !recorded && !marked {
                return Err(format!("node-{i}: {ip:?} is {kernel:?}, and nothing says so"));
            }
            let claimed = recorded && !marked && node.setup_boot == Some(Boot::This);
            if claimed && kernel != Kernel::SetUp {
                return Err(format!("node-{i}: the annotation says {ip:?}, the kernel {kernel:?}"));
            }
        }
    }
    Ok(())
}

/// The law of an act that was accepted. `before`: the cluster before the act. `touched`: Nodes, as bits, that have
/// changed since the observation, by other clients or by an act that was not observed. The decision may be wrong about
/// them now, and no controller can know this.
pub fn of_act(config: &Config, before: &Cluster, act: Act, touched: u8) -> Result<(), String> {
    let known = |i: u8| touched & (1 << i) == 0;
    let may_leave = |from: Hop| match from {
        Hop::Node(i) => !(known(i) && is_candidate(before, i)),
        Hop::Foreign => config.adopt_foreign_route,
        Hop::None => true,
    };
    match act {
        Act::MoveRoute { to, .. } if before.route == Hop::Node(to) => Ok(()),
        Act::MoveRoute { .. } | Act::RemoveRoute { .. } if !may_leave(before.route) => {
            Err(format!("the route left {:?}, where it should have stayed", before.route))
        }
        Act::MoveRoute { to, .. } | Act::AddRoute { to } if known(to) && !is_candidate(before, to) => {
            Err(format!("the route was moved to node-{to}, which is no candidate"))
        }
        Act::RemoveRoute { from } => {
            let ours = match from {
                Hop::Node(i) => {
                    let node = &before.nodes[usize::from(i)];
                    node.setup.is_some() || node.pending.is_some() || node.role || !known(i)
                }
                Hop::Foreign => false,
                Hop::None => true,
            };
            if config.on_no_candidate == OnNoCandidate::Remove && ours {
                Ok(())
            } else {
                Err(format!("the route to {from:?} was removed"))
            }
        }
        // The traffic leaves a Node before its rules are removed.
        Act::Create(i, job)
            if !job.work.setup
                && before.route == Hop::Node(i)
                && before.nodes[usize::from(i)].attached
                && candidates(before).any(|other| other != i && known(other)) =>
        {
            Err(format!("node-{i} is torn down under the route, though there is another candidate"))
        }
        Act::Uncalled(i) => Err(format!("node-{i}: annotations of a person were changed")),
        Act::Label(i, _) if !config.floating_ips.label => Err(format!("the label of node-{i} was changed")),
        // The last gateway stays, whatever the list of floating IPs says, and however often.
        Act::Label(i, None) if is_set_up(&before.nodes[usize::from(i)]) => {
            let mut others = (0..before.len).filter(|other| *other != i);
            let stays = others.any(|other| !known(other) || is_set_up(&before.nodes[usize::from(other)]));
            if stays { Ok(()) } else { Err(format!("node-{i}, the last gateway, lost its label")) }
        }
        _ => Ok(()),
    }
}

/// The law of a cluster in which natgw has nothing to do.
pub fn at_rest(config: &Config, cluster: &Cluster) -> Result<(), String> {
    let roles: Vec<u8> = (0..cluster.len).filter(|i| cluster.nodes[usize::from(*i)].role).collect();
    let primary = match cluster.route {
        Hop::Node(i) if is_candidate(cluster, i) => Some(i),
        _ => None,
    };
    if roles.len() > 1 {
        return Err(format!("two role labels at rest: {roles:?}"));
    }
    if roles != Vec::from_iter(primary) {
        return Err(format!("the role label at rest is at {roles:?}, the primary is {primary:?}"));
    }
    let kept = cluster.route == Hop::Foreign && !config.adopt_foreign_route;
    if primary.is_none() && !kept && candidates(cluster).next().is_some() {
        return Err(format!("there is a candidate, and the route is at {:?}", cluster.route));
    }
    Ok(())
}

/// The law of a cluster in which natgw has nothing to do and no Job is running: each Node is as its label requires.
/// `route_refused`: the Node at the next hop is exempt, since the route could not be moved away from it.
pub fn in_the_end(cluster: &Cluster, route_refused: bool) -> Result<(), String> {
    let is_left = |i: usize| route_refused && cluster.route == Hop::Node(i as u8);
    for (i, node) in cluster.nodes().iter().enumerate().filter(|(_, node)| node.ready != Ready::Unknown) {
        if is_left(i) {
            continue;
        }
        let desired = |ip: Ip| node.label == Some(ip);
        for ip in Ip::ALL {
            let kernel = node.kernel[ip as usize];
            if !desired(ip) && kernel != Kernel::Clean {
                return Err(format!("node-{i}: {ip:?} is {kernel:?} in the end, and is not desired"));
            }
        }
        if node.jobs().any(super::cluster::Job::is_alive) {
            return Err(format!("node-{i} has Jobs in the end"));
        }
        let is_so = match node.label {
            Some(_) if node.attached => is_set_up(node),
            // A setup needs an address in the network; the pending annotation of a setup that was started may stay.
            Some(_) => node.setup.is_none_or(desired) && node.pending.is_none_or(|work| desired(work.ip)),
            None => node.setup.is_none() && node.pending.is_none(),
        };
        if !is_so {
            return Err(format!("node-{i} is not as its label wants it in the end"));
        }
    }
    Ok(())
}
