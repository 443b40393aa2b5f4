//! The role label: on the primary, and on no other Node.

use super::Output;
use super::action::{Action, NodeRef};
use super::primary::Primary;
use super::reason::Reason;
use crate::observe::snapshot::Snapshot;

/// Adds the label to the new primary first, then removes it from all others: at least one Node has it at any time.
pub(super) fn labels(snapshot: &Snapshot, primary: Option<Primary<'_>>, out: &mut Output) {
    if let Some(primary) = primary
        && !primary.node.role
    {
        out.step(Action::SetRole { node: NodeRef::from(primary.node) }, Reason::BecamePrimary);
    }
    let is_primary = |name: &str| primary.is_some_and(|primary| primary.node.name == name);
    for node in snapshot.nodes.iter().filter(|node| node.role && !is_primary(&node.name)) {
        out.step(Action::ClearRole { node: NodeRef::from(node) }, Reason::NoLongerPrimary);
    }
}
