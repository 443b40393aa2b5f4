//! Keepers that are lost: their node is gone, or they were killed together with their Pod, so that no process removed their entry
//! from the store `hosts`.
//!
//! A keeper that is alive must stay registered: its notifications are refused without an entry. A status server that does not respond
//! proves nothing, because the network between this controller and the gateway may be cut, and the keeper may be frozen. The kubelet is
//! the second source: a Node that is ready runs the Pods that the API server has, and no other ones. A Node that is not ready proves
//! nothing either.

use std::fmt;

use common::plan::{self, Regarding};
use serde::Serialize;

use crate::api::stores::Host;

/// The Node of a keeper, as the API server has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// It does not exist.
    Absent,
    /// Its kubelet reports that it is ready.
    Ready,
    /// It exists, and its kubelet may be stopped.
    NotReady,
}

/// The facts about a keeper whose status server has not responded for long. All of them were read completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Its Node.
    pub node: Node,
    /// Pods of keepers on this Node that have not finished.
    pub pods: usize,
    /// Keepers of this Node whose status servers respond.
    pub responding: usize,
}

/// Why a keeper is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Lost {
    /// Its Node and its Pod do not exist.
    NodeGone,
    /// Its Node is ready and has no Pod of this keeper.
    PodGone,
}

/// Whether the keeper is proven to be lost.
#[must_use]
pub fn lost(facts: Facts) -> Option<Lost> {
    match facts {
        Facts { node: Node::Absent, pods: 0, responding: 0 } => Some(Lost::NodeGone),
        // Each Pod has one keeper. If all of them respond, none is left for the entry that does not.
        Facts { node: Node::Ready, pods, responding } if pods <= responding => Some(Lost::PodGone),
        _ => None,
    }
}

/// Removes the entry of a keeper, if the store has not changed since it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unregister {
    /// The entry.
    pub host: Host,
}

impl fmt::Display for Unregister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Host { node, vrid, .. } = &self.host;
        write!(
            f,
            "remove the entry of the keeper {} of virtual router {vrid} on Node {node}",
            self.host.status()
        )
    }
}

impl plan::Action for Unregister {
    type Reason = Lost;

    fn name(&self) -> &'static str {
        "RemoveKeeper"
    }

    fn regarding(&self) -> Regarding {
        let name = self.host.node.clone();
        Regarding { api_version: "v1", kind: "Node", namespace: None, name, uid: None }
    }
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lost::NodeGone => "its status server does not respond, and its Node does not exist",
            Lost::PodGone => "its status server does not respond, and its Node is ready and has no Pod of it",
        })
    }
}

impl plan::Reason for Lost {
    fn code(&self) -> &'static str {
        match self {
            Lost::NodeGone => "NodeGone",
            Lost::PodGone => "PodGone",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_is_lost_only_if_no_process_can_be_it() {
        use Node::{Absent, NotReady, Ready};
        for (node, pods, responding, expected) in [
            (Absent, 0, 0, Some(Lost::NodeGone)),
            // The Node was deleted, and its machine runs.
            (Absent, 0, 1, None),
            (Absent, 1, 0, None),
            (Ready, 0, 0, Some(Lost::PodGone)),
            // A frozen keeper, or one that starts.
            (Ready, 1, 0, None),
            // The keeper of another virtual router, or of the same one at another address.
            (Ready, 1, 1, Some(Lost::PodGone)),
            (Ready, 2, 1, None),
            // The kubelet does not report: a Pod that was deleted by force may run.
            (NotReady, 0, 0, None),
            (NotReady, 1, 1, None),
        ] {
            assert_eq!(lost(Facts { node, pods, responding }), expected, "{node:?} {pods} {responding}");
        }
    }
}
