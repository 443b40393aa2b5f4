//! natgw's acts in the modelled cluster, one at a time. Each is accepted or refused as by the API server and the cloud.

use super::cluster::{Boot, Cluster, End, Hop, Ip, Job, Kernel, Retry, Work};
use super::flaw::Flaw;
use super::view::{boot_of, index};
use crate::observe::snapshot::Snapshot;
use crate::plan::Action;

/// One write of a plan. A move of the route consists of two, as in the cloud: the old route is deleted, the new one
/// added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    MoveRoute {
        from: Hop,
        to: u8,
    },
    AddRoute {
        to: u8,
    },
    RemoveRoute {
        from: Hop,
    },
    SetRole(u8),
    ClearRole(u8),
    Delete(u8, Job),
    Mark(u8, Work, u8),
    Create(u8, Job),
    RecordSetup(u8, Work, Boot),
    RecordTeardown(u8, Work),
    RecordFailure(u8, u8),
    Label(u8, Option<Ip>),
    /// An act that must not occur, because no Node of the model has the annotation `forget`.
    Uncalled(u8),
}

/// The outcome of an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The first part is done; this act is left to do.
    Then(Act),
    /// Refused: the cluster is not in the state that the decision was made on.
    Outdated,
    /// Refused by the API server or the cloud for another reason.
    Refused,
}

impl Act {
    /// Converts an action of a plan. `seen` is the cluster of the Snapshot, in which a Job that is to be deleted is
    /// found.
    pub fn of(action: &Action, snapshot: &Snapshot, seen: &Cluster) -> Act {
        let node = index(&action.node().name);
        match action {
            Action::MoveRoute { from, to, .. } => {
                let Hop::Node(to) = Hop::of(Some(*to)) else { panic!("{action}") };
                Act::MoveRoute { from: Hop::of(*from), to }
            }
            Action::RemoveRoute { gateway, .. } => Act::RemoveRoute { from: Hop::of(Some(*gateway)) },
            Action::SetRole { .. } => Act::SetRole(node),
            Action::ClearRole { .. } => Act::ClearRole(node),
            Action::DeleteJob { node: of, uid, .. } => {
                let place = snapshot.jobs_of(&of.name).iter().position(|job| &job.uid == uid).unwrap();
                Act::Delete(node, seen.nodes[usize::from(node)].jobs[place].unwrap())
            }
            Action::RecordPending { task, failures, .. } => Act::Mark(node, Work::of(*task), *failures as u8),
            Action::CreateJob { job, .. } => Act::Create(
                node,
                Job {
                    work: Work::of(job.task),
                    boot: boot_of(node, &job.generation),
                    attempt: job.attempt as u8,
                    terminating: false,
                    end: End::Running,
                },
            ),
            Action::RecordSetup { task, .. } => Act::RecordSetup(node, Work::of(*task), Boot::This),
            Action::RecordTeardown { task, .. } => Act::RecordTeardown(node, Work::of(*task)),
            Action::RecordFailure { failures, .. } => Act::RecordFailure(node, *failures as u8),
            Action::LabelFloatingIP { ip, .. } => Act::Label(node, ip.map(Ip::of)),
            Action::Forget { .. } => Act::Uncalled(node),
        }
    }

    /// The Node that it is about.
    pub fn node(self) -> Option<u8> {
        match self {
            Act::MoveRoute { to, .. } | Act::AddRoute { to } => Some(to),
            Act::RemoveRoute { from: Hop::Node(node) } => Some(node),
            Act::RemoveRoute { .. } => None,
            Act::SetRole(node)
            | Act::ClearRole(node)
            | Act::Delete(node, _)
            | Act::Mark(node, ..)
            | Act::Create(node, _)
            | Act::RecordSetup(node, ..)
            | Act::RecordTeardown(node, _)
            | Act::RecordFailure(node, _)
            | Act::Label(node, _)
            | Act::Uncalled(node) => Some(node),
        }
    }

    /// Whether it writes the route or a role label.
    pub fn is_route_or_role(self) -> bool {
        matches!(
            self,
            Act::MoveRoute { .. }
                | Act::AddRoute { .. }
                | Act::RemoveRoute { .. }
                | Act::SetRole(_)
                | Act::ClearRole(_)
        )
    }

    fn tears_down(self) -> bool {
        matches!(self, Act::Mark(_, Work { setup: false, .. }, _))
            || matches!(self, Act::Create(_, Job { work: Work { setup: false, .. }, .. }))
    }

    /// The same rule as `Action::is_prevented_by`.
    fn is_prevented_by(self, failed: Act, is_outdated: bool) -> bool {
        let same_node = self.node() == failed.node();
        match failed {
            Act::MoveRoute { from, .. } => {
                self.is_route_or_role()
                    || self.tears_down() && matches!(from, Hop::Node(holder) if self.node() == Some(holder))
                    || same_node && is_outdated
            }
            Act::AddRoute { .. } => self.is_route_or_role() || same_node && is_outdated,
            Act::RemoveRoute { .. } => {
                self.is_route_or_role() || same_node && (is_outdated || self.tears_down())
            }
            Act::SetRole(_) => matches!(self, Act::ClearRole(_)) || same_node && is_outdated,
            Act::ClearRole(_) => same_node && is_outdated,
            _ => same_node,
        }
    }

    /// Removes from `acts`, the rest of the plan, the acts that the failure of this one prevents.
    pub fn prune(self, acts: &mut Vec<Act>, is_outdated: bool, flaw: Flaw) {
        if flaw == Flaw::SharedFate {
            return acts.clear();
        }
        if flaw == Flaw::IgnoresFailures && !is_outdated {
            return;
        }
        let mut stopped = 0_u8;
        acts.retain(|act| {
            let node = act.node().map_or(0, |node| 1_u8 << node);
            let is_job_work = !act.is_route_or_role();
            let prevented = is_job_work && stopped & node != 0 || act.is_prevented_by(self, is_outdated);
            if prevented && is_job_work {
                stopped |= node;
            }
            !prevented
        });
    }

    /// Whether the law of this act depends on the set of candidates.
    pub fn needs_candidates(self) -> bool {
        match self {
            Act::MoveRoute { .. } | Act::AddRoute { .. } | Act::RemoveRoute { .. } => true,
            Act::Create(_, job) => !job.work.setup,
            Act::Label(_, ip) => ip.is_none(),
            _ => false,
        }
    }

    /// The same act after a reboot of the Node `of`: the boot that it refers to is an earlier one now.
    pub fn after_reboot(self, of: u8) -> Act {
        match self {
            Act::Delete(node, job) if node == of => Act::Delete(node, Job { boot: Boot::Earlier, ..job }),
            Act::Create(node, job) if node == of => Act::Create(node, Job { boot: Boot::Earlier, ..job }),
            Act::RecordSetup(node, work, _) if node == of => Act::RecordSetup(node, work, Boot::Earlier),
            other => other,
        }
    }

    /// Executes the act. `stale`: Nodes, as bits, whose object has changed since the decision; writes to them are
    /// refused.
    pub fn apply(self, cluster: &mut Cluster, stale: u8, flaw: Flaw) -> Outcome {
        match self {
            Act::MoveRoute { from, to } => {
                if cluster.route == Hop::Node(to) {
                    return Outcome::Done;
                }
                if cluster.route != from && !flaw.moves_blindly() || !cluster.node(to).attached {
                    return Outcome::Outdated;
                }
                if cluster.route == Hop::None {
                    cluster.route = Hop::Node(to);
                    return Outcome::Done;
                }
                cluster.route = Hop::None;
                Outcome::Then(Act::AddRoute { to })
            }
            // The cloud takes no second route for a destination, and none to an address without a server.
            Act::AddRoute { to } if cluster.route == Hop::None && cluster.node(to).attached => {
                cluster.route = Hop::Node(to);
                Outcome::Done
            }
            Act::RemoveRoute { from } if cluster.route == from || cluster.route == Hop::None => {
                cluster.route = Hop::None;
                Outcome::Done
            }
            Act::AddRoute { .. } | Act::RemoveRoute { .. } => Outcome::Outdated,
            Act::Delete(node, job) => {
                for there in cluster.node(node).jobs.iter_mut().flatten() {
                    there.terminating |= there.is(&job);
                }
                Outcome::Done
            }
            Act::Create(node, job) => create(cluster, node, job, flaw),
            _ => {
                let Some(node) = self.node() else { unreachable!("{self:?}") };
                if stale & (1 << node) != 0 {
                    return Outcome::Outdated;
                }
                self.patch(cluster.node(node));
                if matches!(self, Act::Label(..)) {
                    cluster.confirmed = cluster.confirmed.map(|_| false);
                }
                Outcome::Done
            }
        }
    }

    fn patch(self, node: &mut super::cluster::Node) {
        match self {
            Act::SetRole(_) => node.role = true,
            Act::ClearRole(_) => node.role = false,
            Act::Label(_, ip) => node.label = ip,
            Act::Mark(_, work, failures) => {
                node.pending = Some(work);
                node.failures = failures;
                node.retry = Retry::None;
            }
            Act::RecordSetup(_, work, boot) => {
                settle(node);
                node.setup = Some(work.ip);
                node.setup_boot = Some(boot);
            }
            Act::RecordTeardown(..) => {
                settle(node);
                node.setup = None;
                node.setup_boot = None;
            }
            Act::RecordFailure(_, failures) => {
                node.failures = failures;
                node.retry = Retry::Later;
            }
            other => unreachable!("{other:?} writes to no Node"),
        }
    }
}

fn settle(node: &mut super::cluster::Node) {
    node.pending = None;
    node.failures = 0;
    node.retry = Retry::None;
}

/// Creates a Job, if the API server has no other Job of the Node. From the creation on, the script may have changed the
/// kernel.
fn create(cluster: &mut Cluster, node: u8, job: Job, flaw: Flaw) -> Outcome {
    let node = cluster.node(node);
    if let Some(same) = node.jobs().find(|there| there.is(&job)) {
        return if same.terminating { Outcome::Outdated } else { Outcome::Done };
    }
    if node.jobs().next().is_some() && !flaw.creates_blindly() {
        return Outcome::Outdated;
    }
    if !node.add(job) {
        return Outcome::Outdated;
    }
    *node.kernel(job.work.ip) = Kernel::Dirty;
    Outcome::Done
}
