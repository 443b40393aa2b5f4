//! The record of an Elastic IP, written before and after each request, so that the next call can complete or undo it.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use super::ec2::{Association, Taken};
use crate::cni;

/// The Elastic IP of one attachment. It contains no secret. Fields of a later version are ignored: after a downgrade, DEL must release it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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

impl State {
    /// Whether the association is with the private address, which no other attachment has.
    pub(super) fn is_at(&self, association: &Association) -> bool {
        association.interface.as_deref() == Some(&self.interface)
            && association.private == Some(self.private.addr())
    }

    /// Whether the private address is assigned, and is neither the node's nor used for another Elastic IP.
    pub(super) fn is_assigned(&self, listed: &Taken) -> bool {
        listed
            .find(self.private.addr())
            .is_some_and(|found| !found.primary && found.public.is_none_or(|public| public == self.public))
    }
}

/// The stage of the operation. Its own request may have taken effect; all earlier ones have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "stage")]
pub enum Stage {
    /// The private address is being assigned.
    Assigning,
    /// Complete.
    Associated {
        /// `eipassoc-…`: the ID of this association, so that a later association of another node is never removed.
        association: String,
    },
    /// It is assigned, and the Elastic IP is being associated with it. Also any stage of a later version: in this stage the current
    /// association is read from EC2 before it is removed.
    #[serde(other)]
    Associating,
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

    #[test]
    fn fields_and_stages_of_a_later_version_are_ignored() {
        for (stage, expected) in [
            (
                r#"{"stage": "associated", "association": "eipassoc-1", "at": 7}"#,
                Stage::Associated { association: "eipassoc-1".into() },
            ),
            (r#"{"stage": "assigning", "attempt": 2}"#, Stage::Assigning),
            (r#"{"stage": "verifying", "since": 7}"#, Stage::Associating),
        ] {
            let text = format!(
                r#"{{"instance": "i-1", "interface": "eni-1", "mac": [2, 0, 0, 0, 0, 1], "public": "203.0.113.9", "tags": {{"a": "b"}},
                    "allocation": "eipalloc-1", "private": "10.0.0.77/24", "gateway": "10.0.0.1", "stage": {stage}}}"#
            );
            assert_eq!(serde_json::from_str::<State>(&text).unwrap().stage, expected, "{text}");
        }
    }
}
