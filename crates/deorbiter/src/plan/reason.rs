//! Why a step is executed, or what is wrong.

use std::fmt;

use common::plan::{self, Related};
use serde::Serialize;

use crate::names;

/// A closed set; each is one word in Events and metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all_fields = "camelCase")]
pub enum Reason {
    /// The Deorbit asks for it.
    Requested,
    /// The object uses a claim that is to be deleted.
    UsesClaim {
        /// Name of the claim, in the namespace of the Pod that uses it.
        claim: String,
    },
    /// The volume's policy is Retain, and spec.retainedVolumes is Delete.
    RetainOverridden,
    /// New objects must not be created meanwhile.
    CreationBlocked,
    /// The Deorbit is being deleted.
    DeorbitDeleted,
    /// The run is over, and the cluster survives.
    ClusterSurvives,
    /// `ttlSecondsAfterFinished` is over.
    Expired,
    /// The cluster's own controllers have not removed it.
    LeftInCloud {
        /// Its state there.
        state: String,
    },
    /// No object of the cluster names it any more; it has the cluster's name.
    Unreferenced,
    /// Everything else is gone, and was verified.
    NothingLeft,
    /// A run begins: its block must be lifted when the Deorbit is deleted.
    RunStarted,
    /// Its block is not in the cluster any more.
    BlockLifted,
    /// The cluster did not respond, or refused to lift the block, for so long that it is left to you.
    BlockMayRemain {
        /// Name of the block's objects, which you have to delete in the target cluster.
        name: String,
    },
    /// It is kept.
    Kept {
        /// Why.
        why: String,
    },
    /// It is deleted without a step of its own at the beginning: only a preview reports it.
    DeletedWithOwner {
        /// The resource, and how it is deleted or reported.
        what: String,
    },
    /// The target cluster cannot be read.
    TargetUnavailable {
        /// The response.
        why: String,
    },
    /// OpenStack cannot be read.
    CloudUnavailable {
        /// The response.
        why: String,
    },
    /// The target cluster, or the Secret of its kubeconfig, refuses.
    TargetRefused {
        /// The response.
        why: String,
    },
    /// The kubeconfig leads to the cluster that deorbiter runs in.
    TargetIsManagementCluster {
        /// How that is known.
        why: String,
    },
    /// OpenStack, or the Secret of its login, refuses.
    CloudRefused {
        /// The response.
        why: String,
    },
    /// Nodes or objects of the target name servers and resources in OpenStack, and the login shows none of them.
    LoginNotProven {
        /// The project, the region, and what was searched.
        why: String,
    },
    /// The stale routes are unknown.
    RoutesUnknown {
        /// The router's ID.
        router: String,
        /// The error: of a read, or of the pod networks in the spec.
        why: String,
    },
    /// Routes were removed, and are there again.
    RoutesRecreated {
        /// The router's ID.
        router: String,
    },
    /// Resources are not deleted within `timeouts.perObject`, or their driver has given up.
    Overdue {
        /// How many.
        count: usize,
        /// The first of them, with the reason.
        first: String,
    },
    /// A controller that deletes resources in the cloud does not renew its Lease.
    ProviderStopped {
        /// The Lease.
        lease: String,
        /// Whether deorbiter could delete them itself.
        has_login: bool,
    },
    /// Records are missing: nothing is done without them, until a limit is over.
    RecordsLost {
        /// The error message, with the name of the missing or invalid ConfigMap.
        why: String,
    },
    /// Another version of deorbiter wrote the status.
    UnknownPhase,
    /// The block could not be created; the run goes on without it after `timeouts.apiUnavailable`.
    BlockFailed {
        /// Why.
        why: String,
    },
    /// Something is left.
    DebrisLeft {
        /// How much.
        count: usize,
        /// Kind of the first of them.
        kind: String,
        /// Its ID or name.
        first: String,
    },
}

impl plan::Reason for Reason {
    fn code(&self) -> &'static str {
        match self {
            Reason::Requested => "Requested",
            Reason::UsesClaim { .. } => "UsesClaim",
            Reason::RetainOverridden => "RetainOverridden",
            Reason::CreationBlocked => "CreationBlocked",
            Reason::DeorbitDeleted => "DeorbitDeleted",
            Reason::ClusterSurvives => "ClusterSurvives",
            Reason::Expired => "Expired",
            Reason::LeftInCloud { .. } => "LeftInCloud",
            Reason::Unreferenced => "Unreferenced",
            Reason::NothingLeft => "NothingLeft",
            Reason::RunStarted => "RunStarted",
            Reason::BlockLifted => "BlockLifted",
            Reason::BlockMayRemain { .. } => "BlockMayRemain",
            Reason::Kept { .. } => "Kept",
            Reason::DeletedWithOwner { .. } => "DeletedWithOwner",
            Reason::TargetUnavailable { .. } => "TargetUnavailable",
            Reason::CloudUnavailable { .. } => "CloudUnavailable",
            Reason::TargetRefused { .. } => "TargetRefused",
            Reason::TargetIsManagementCluster { .. } => "TargetIsManagementCluster",
            Reason::CloudRefused { .. } => "CloudRefused",
            Reason::LoginNotProven { .. } => "LoginNotProven",
            Reason::RoutesUnknown { .. } => "RoutesUnknown",
            Reason::RoutesRecreated { .. } => "RoutesRecreated",
            Reason::Overdue { .. } => "Overdue",
            Reason::ProviderStopped { .. } => "ProviderStopped",
            Reason::RecordsLost { .. } => "RecordsLost",
            Reason::UnknownPhase => "UnknownPhase",
            Reason::BlockFailed { .. } => "BlockFailed",
            Reason::DebrisLeft { .. } => "DebrisLeft",
        }
    }

    fn is_trouble(&self) -> bool {
        matches!(self, Reason::BlockMayRemain { .. } | Reason::DebrisLeft { .. })
    }

    fn related(&self) -> Option<Related> {
        match self {
            Reason::ProviderStopped { lease, .. } => Some(Related {
                kind: "Lease".to_owned(),
                namespace: Some(names::LEASES.to_owned()),
                name: lease.clone(),
            }),
            Reason::DebrisLeft { kind, first, .. } => {
                Some(Related { kind: kind.clone(), namespace: None, name: first.clone() })
            }
            _ => None,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Requested => f.write_str("the Deorbit asks for it"),
            Reason::UsesClaim { claim } => write!(f, "it uses claim {claim}, which is to be deleted"),
            Reason::RetainOverridden => {
                f.write_str("its policy is Retain, and spec.retainedVolumes is Delete")
            }
            Reason::CreationBlocked => f.write_str("nothing new may be created while the rest is deleted"),
            Reason::DeorbitDeleted => f.write_str("the Deorbit is being deleted"),
            Reason::ClusterSurvives => f.write_str("the run has ended, and the cluster survives"),
            Reason::Expired => f.write_str("spec.ttlSecondsAfterFinished is over"),
            Reason::LeftInCloud { state } => write!(f, "the cluster has not removed it; it is {state}"),
            Reason::Unreferenced => f.write_str("no object of the cluster names it any more"),
            Reason::NothingLeft => {
                f.write_str("everything else is gone, and spec.openstack.applicationCredential is Delete")
            }
            Reason::RunStarted => {
                f.write_str("a run starts, and its block must be lifted when the Deorbit is deleted")
            }
            Reason::BlockLifted => f.write_str("its block is not in the target cluster"),
            Reason::BlockMayRemain { name } => {
                write!(
                    f,
                    "the target cluster does not respond, or refuses to lift the block; as soon as it can be done, delete the ValidatingAdmissionPolicy, its binding and the ValidatingWebhookConfiguration {name} there"
                )
            }
            Reason::Kept { why } => write!(f, "it is kept: {why}"),
            Reason::DeletedWithOwner { what } => f.write_str(what),
            Reason::TargetUnavailable { why } => write!(f, "the target cluster cannot be read: {why}"),
            Reason::CloudUnavailable { why } => write!(f, "OpenStack cannot be read: {why}"),
            Reason::TargetRefused { why } => {
                write!(f, "the run waits until this is fixed: the target cluster cannot be used: {why}")
            }
            Reason::TargetIsManagementCluster { why } => f.write_str(why),
            Reason::CloudRefused { why } => {
                write!(f, "the run waits until this is fixed: OpenStack cannot be used: {why}")
            }
            Reason::LoginNotProven { why } => write!(f, "the run waits until this is fixed: {why}"),
            Reason::RoutesUnknown { router, why } => {
                write!(f, "the stale routes of router {router} cannot be determined: {why}")
            }
            Reason::RoutesRecreated { router } => {
                write!(f, "routes of router {router}: {}", super::routes::RECREATED)
            }
            Reason::Overdue { count, first } => {
                write!(
                    f,
                    "{count} are not deleted in time, first {first}; the run waits until timeouts.total"
                )
            }
            Reason::ProviderStopped { lease, has_login } => {
                let or = if *has_login { ", or set spec.orphanPolicy to Delete" } else { "" };
                write!(f, "{lease} no longer renews its Lease: start it again{or}")
            }
            Reason::RecordsLost { why } => f.write_str(why),
            Reason::UnknownPhase => f.write_str(
                "another version of deorbiter wrote its phase, so nothing is done: delete the Deorbit, which lifts its block, and create another",
            ),
            Reason::BlockFailed { why } => write!(f, "the block of new objects cannot be created: {why}"),
            Reason::DebrisLeft { count, kind, first } => {
                write!(f, "{count} left, first {kind} {first}; status.debris lists them")
            }
        }
    }
}
