//! What is written down of an Elastic IP before and after each act, so that whoever comes next can finish or undo it.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::cni;

/// One attachment's Elastic IP. It holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct State {
    /// `i-…`: whose state this is. A disk that was copied into another instance must not act for the first one.
    pub instance: String,
    /// `eni-…`.
    pub interface: String,
    /// Of the device on this node.
    pub mac: [u8; 6],
    /// The Elastic IP.
    pub public: Ipv4Addr,
    /// `eipalloc-…`. It is only ever associated and disassociated: the administrator allocates and releases.
    pub allocation: String,
    /// The secondary private address that was chosen for the attachment, with its subnet's prefix length.
    pub private: Ipv4Net,
    /// The subnet's router.
    pub gateway: Ipv4Addr,
    /// How far it came.
    pub stage: Stage,
}

/// How far it came. What a stage names may have happened, and everything before it has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "stage", deny_unknown_fields)]
pub enum Stage {
    /// The private address is being assigned.
    Assigning,
    /// It is assigned, and the Elastic IP is being associated with it.
    Associating,
    /// All is done.
    Associated {
        /// `eipassoc-…`: this association and no other, so that nothing that was moved away is taken from where it is now.
        association: String,
    },
}

/// Where a state is kept.
pub trait Journal {
    /// `state` takes the place of what was there, and outlives a crash once this returns.
    ///
    /// # Errors
    ///
    /// It could not be written; what was there before is still there.
    fn write(&mut self, state: &State) -> Result<(), cni::Error>;

    /// Nothing is left to be finished or undone.
    ///
    /// # Errors
    ///
    /// It could not be removed.
    fn clear(&mut self) -> Result<(), cni::Error>;

    /// Private addresses that are written down on this node, whoever's they are. EC2 may call one free that somebody is about
    /// to give back once more, after a lost answer or a kill: as long as it is written down, it is not chosen.
    fn recorded(&self) -> Vec<Ipv4Addr> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_read_as_it_was_written() {
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
