//! The record of an Elastic IP, written before and after each request, so that the next call can complete or undo it.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::cni;

/// The Elastic IP of one attachment. It contains no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct State {
    /// `i-…`: the instance of this record. A copied disk must not cause requests for another instance.
    pub instance: String,
    /// `eni-…`.
    pub interface: String,
    /// Of the device on this node.
    pub mac: [u8; 6],
    /// The Elastic IP.
    pub public: Ipv4Addr,
    /// `eipalloc-…`. The plugin never allocates or releases it.
    pub allocation: String,
    /// The secondary private address that was chosen for the attachment, with its subnet's prefix length.
    pub private: Ipv4Net,
    /// The subnet's router.
    pub gateway: Ipv4Addr,
    /// The stage of the operation.
    pub stage: Stage,
}

/// The stage of the operation. Its own request may have taken effect; all earlier ones have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "stage", deny_unknown_fields)]
pub enum Stage {
    /// The private address is being assigned.
    Assigning,
    /// It is assigned, and the Elastic IP is being associated with it.
    Associating,
    /// Complete.
    Associated {
        /// `eipassoc-…`: the ID of this association, so that a later association of another node is never removed.
        association: String,
    },
}

/// Storage of the state.
pub trait Journal {
    /// Replaces the record by `state`. It is durable when this returns.
    ///
    /// # Errors
    ///
    /// It could not be written; the previous record is unchanged.
    fn write(&mut self, state: &State) -> Result<(), cni::Error>;

    /// Removes the record, because nothing is left to be completed or undone.
    ///
    /// # Errors
    ///
    /// It could not be removed.
    fn clear(&mut self) -> Result<(), cni::Error>;

    /// Private addresses in all records of this node. EC2 may list one as free that another call will unassign once more, after a lost
    /// response or a kill. A recorded address is not chosen.
    fn recorded(&self) -> Vec<Ipv4Addr> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_state_is_read_unchanged() {
        let stages =
            [Stage::Assigning, Stage::Associating, Stage::Associated { association: "eipassoc-1".into() }];
        for stage in stages {
            let state = State {
                instance: "i-1".into(),
                interface: "eni-1".into(),
                mac: [2, 0, 0, 0, 0, 1],
                public: Ipv4Addr::new(203, 0, 113, 9),
                allocation: "eipalloc-1".into(),
                private: "10.0.0.77/24".parse().unwrap(),
                gateway: Ipv4Addr::new(10, 0, 0, 1),
                stage,
            };
            let text = serde_json::to_string(&state).unwrap();
            assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state, "{text}");
        }
    }
}
