//! The acts of the keeper, as log lines, Events of the Node and metrics show them.

use std::fmt;

use common::plan::{Action, Reason, Regarding, Step};
use serde::Serialize;

use crate::api::http::VrrpState;

/// An act on the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Act {
    /// Name of the Node.
    pub node: String,
    /// Virtual router ID.
    pub vrid: u8,
    /// The act.
    pub kind: Kind,
}

/// The kinds of acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Kind {
    /// The VRRP instance is in another state.
    ChangeState(VrrpState),
    /// VIPs were removed from the node's interfaces.
    StripVips(usize),
    /// keepalived is started again.
    RestartKeepalived,
    /// The controller is notified.
    NotifyController,
}

/// Why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Because {
    /// keepalived reported MASTER.
    Promoted,
    /// keepalived reported another state, or does not run.
    Demoted,
    /// keepalived ended.
    KeepalivedExited(String),
    /// keepalived makes no progress.
    KeepalivedFrozen(String),
    /// An earlier process left them.
    VipsStale,
    /// The guard removed them, because the keeper did not run.
    KeeperStopped,
    /// The controller has confirmed the gateway.
    GatewayConfirmed,
    /// The controller has not confirmed the gateway.
    GatewayUnconfirmed,
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vrid = self.vrid;
        match &self.kind {
            Kind::ChangeState(state) => {
                write!(f, "virtual router {vrid} is {state} on {}", self.node)
            }
            Kind::StripVips(count) => write!(f, "remove {count} addresses of virtual router {vrid}"),
            Kind::RestartKeepalived => write!(f, "restart keepalived of virtual router {vrid}"),
            Kind::NotifyController => write!(f, "notify the controller about virtual router {vrid}"),
        }
    }
}

impl Action for Act {
    type Reason = Because;

    fn name(&self) -> &'static str {
        match self.kind {
            Kind::ChangeState(_) => "ChangeState",
            Kind::StripVips(_) => "StripVips",
            Kind::RestartKeepalived => "RestartKeepalived",
            Kind::NotifyController => "NotifyController",
        }
    }

    fn regarding(&self) -> Regarding {
        Regarding { api_version: "v1", kind: "Node", namespace: None, name: self.node.clone(), uid: None }
    }
}

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Because::Promoted => f.write_str("keepalived reported MASTER"),
            Because::Demoted => f.write_str("the node is no longer MASTER"),
            Because::KeepalivedExited(why) => write!(f, "keepalived ended: {why}"),
            Because::KeepalivedFrozen(why) => write!(f, "keepalived makes no progress: {why}"),
            Because::VipsStale => f.write_str("an earlier process left them"),
            Because::KeeperStopped => f.write_str("the keeper did not run, and its guard removed them"),
            Because::GatewayConfirmed => f.write_str("the controller has confirmed the gateway"),
            Because::GatewayUnconfirmed => f.write_str("the controller has not confirmed the gateway"),
        }
    }
}

impl Reason for Because {
    fn code(&self) -> &'static str {
        match self {
            Because::Promoted => "MasterPromoted",
            Because::Demoted => "MasterDemoted",
            Because::KeepalivedExited(_) => "KeepalivedExited",
            Because::KeepalivedFrozen(_) => "KeepalivedFrozen",
            Because::VipsStale => "VipsStale",
            Because::KeeperStopped => "KeeperStopped",
            Because::GatewayConfirmed => "GatewayConfirmed",
            Because::GatewayUnconfirmed => "GatewayUnconfirmed",
        }
    }

    fn is_trouble(&self) -> bool {
        matches!(
            self,
            Because::KeepalivedExited(_)
                | Because::KeepalivedFrozen(_)
                | Because::VipsStale
                | Because::KeeperStopped
        )
    }
}

/// An act with its reason.
#[must_use]
pub fn step(node: &str, vrid: u8, kind: Kind, because: Because) -> Step<Act> {
    Step { action: Act { node: node.to_owned(), vrid, kind }, because }
}
