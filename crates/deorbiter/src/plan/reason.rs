//! Why a step is executed, or what is wrong.

use common::plan::{self, Related};
use serde::Serialize;

use crate::names;

/// A closed set; each is one word in Events and metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "reason", rename_all_fields = "camelCase")]
pub enum Reason {
    /// The Deorbit asks for it.
    #[error("the Deorbit asks for it")]
    Requested,
    /// The object uses a claim that is to be deleted.
    #[error("it uses claim {claim}, which is to be deleted")]
    UsesClaim {
        /// Name of the claim, in the namespace of the Pod that uses it.
        claim: String,
    },
    /// The volume's policy is Retain, and spec.retainedVolumes is Delete.
    #[error("its policy is Retain, and spec.retainedVolumes is Delete")]
    RetainOverridden,
    /// New objects must not be created meanwhile.
    #[error("nothing new may be created while the rest is deleted")]
    CreationBlocked,
    /// The Deorbit is being deleted.
    #[error("the Deorbit is being deleted")]
    DeorbitDeleted,
    /// The run is over, and the cluster survives.
    #[error("the run has ended, and the cluster survives")]
    ClusterSurvives,
    /// `ttlSecondsAfterFinished` is over.
    #[error("spec.ttlSecondsAfterFinished is over")]
    Expired,
    /// The cluster's own controllers have not removed it.
    #[error("the cluster has not removed it; it is {state}")]
    LeftInCloud {
        /// Its state there.
        state: String,
    },
    /// No object of the cluster names it any more; it has the cluster's name.
    #[error("no object of the cluster names it any more")]
    Unreferenced,
    /// Everything else is gone, and was verified.
    #[error("everything else is gone, and spec.openstack.applicationCredential is Delete")]
    NothingLeft,
    /// A run begins: its block must be lifted when the Deorbit is deleted.
    #[error("a run starts, and its block must be lifted when the Deorbit is deleted")]
    RunStarted,
    /// Its block is not in the cluster any more.
    #[error("its block is not in the target cluster")]
    BlockLifted,
    /// The cluster did not respond, or refused to lift the block, for so long that it is left to you.
    #[error(
        "the target cluster does not respond, or refuses to lift the block; as soon as it can be done, delete the ValidatingAdmissionPolicy, its binding and the ValidatingWebhookConfiguration {name} there"
    )]
    BlockMayRemain {
        /// Name of the block's objects, which you have to delete in the target cluster.
        name: String,
    },
    /// It is kept.
    #[error("it is kept: {why}")]
    Kept {
        /// Why.
        why: String,
    },
    /// It is deleted without a step of its own at the beginning: only a preview reports it.
    #[error("{what}")]
    DeletedWithOwner {
        /// The resource, and how it is deleted or reported.
        what: String,
    },
    /// The target cluster cannot be read.
    #[error("the target cluster cannot be read: {why}")]
    TargetUnavailable {
        /// The response.
        why: String,
    },
    /// OpenStack cannot be read.
    #[error("OpenStack cannot be read: {why}")]
    CloudUnavailable {
        /// The response.
        why: String,
    },
    /// The target cluster, or the Secret of its kubeconfig, refuses.
    #[error("the run waits until this is fixed: the target cluster cannot be used: {why}")]
    TargetRefused {
        /// The response.
        why: String,
    },
    /// The kubeconfig leads to the cluster that deorbiter runs in.
    #[error("{why}")]
    TargetIsManagementCluster {
        /// How that is known.
        why: String,
    },
    /// OpenStack, or the Secret of its login, refuses.
    #[error("the run waits until this is fixed: OpenStack cannot be used: {why}")]
    CloudRefused {
        /// The response.
        why: String,
    },
    /// Nodes or objects of the target name servers and resources in OpenStack, and the login shows none of them.
    #[error("the run waits until this is fixed: {why}")]
    LoginNotProven {
        /// The project, the region, and what was searched.
        why: String,
    },
    /// The stale routes are unknown.
    #[error("the stale routes of router {router} cannot be determined: {why}")]
    RoutesUnknown {
        /// The router's ID.
        router: String,
        /// The error: of a read, or of the pod networks in the spec.
        why: String,
    },
    /// Routes were removed, and are there again.
    #[error("routes of router {router}: {}", super::routes::RECREATED)]
    RoutesRecreated {
        /// The router's ID.
        router: String,
    },
    /// Resources are not deleted within `timeouts.perObject`, or their driver has given up.
    #[error("{count} are not deleted in time, first {first}; the run waits until timeouts.total")]
    Overdue {
        /// How many.
        count: usize,
        /// The first of them, with the reason.
        first: String,
    },
    /// A controller that deletes resources in the cloud does not renew its Lease.
    #[error("{lease} no longer renews its Lease: start it again{}", if *has_login { ", or set spec.orphanPolicy to Delete" } else { "" })]
    ProviderStopped {
        /// The Lease.
        lease: String,
        /// Whether deorbiter could delete them itself.
        has_login: bool,
    },
    /// Records are missing: nothing is done without them, until a limit is over.
    #[error("{why}")]
    RecordsLost {
        /// The error message, with the name of the missing or invalid ConfigMap.
        why: String,
    },
    /// Another version of deorbiter wrote the status.
    #[error(
        "another version of deorbiter wrote its phase, so nothing is done: delete the Deorbit, which lifts its block, and create another"
    )]
    UnknownPhase,
    /// The block could not be created; the run goes on without it after `timeouts.apiUnavailable`.
    #[error("the block of new objects cannot be created: {why}")]
    BlockFailed {
        /// Why.
        why: String,
    },
    /// Something is left.
    #[error("{count} left, first {kind} {first}; status.debris lists them")]
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
