//! `Deorbit`, group `deorbiter.perimeter.dev`: one clean-up of one cluster, from the inventory to the proof.
//!
//! The doc comments are what `kubectl explain deorbit` says.

// Each printer column has a name, a type and a path of its own; clippy takes them for one attribute said twice.
#![allow(clippy::duplicated_attributes)]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{IdentityRef, Period, SecretKeyRef};

pub mod resources;
pub mod status;

pub use resources::{Choice, Resources, Routes};
pub use status::{Debris, DeorbitStatus, Inventory, Kind, Phase, Recorded};

/// Group of the kind.
pub const GROUP: &str = "deorbiter.perimeter.dev";
/// Finalizer: while it stands, a freeze of this Deorbit may be in the target cluster.
pub const FINALIZER: &str = "deorbiter.perimeter.dev/freeze";
/// Annotation, `"true"`: nothing is deleted while it stands on the Deorbit.
pub const PROTECT: &str = "deorbiter.perimeter.dev/protect";
/// Annotation, `"true"`: this object of the target cluster, and what it holds in the cloud, is left alone.
pub const KEEP: &str = "deorbiter.perimeter.dev/keep";

/// One clean-up of one cluster before it dies: deletes what the cluster made in OpenStack, and proves that it is gone.
/// Create it while the cluster's API server, cloud controller manager and Cinder CSI driver still run; wait for its
/// condition Complete; then delete the cluster. Deleting the Deorbit aborts the run and lifts its freeze.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "deorbiter.perimeter.dev",
    version = "v1alpha1",
    kind = "Deorbit",
    namespaced,
    status = "DeorbitStatus",
    derive = "PartialEq",
    category = "perimeter",
    doc = "One clean-up of one cluster before it dies: deletes what the cluster made in OpenStack, and proves that it is gone. Deleting it aborts the run and lifts its freeze.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Remaining", type_ = "integer", json_path = ".status.remaining"),
    printcolumn(name = "Debris", type_ = "integer", json_path = ".status.debrisCount"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Complete\")].message",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.kubeconfig) != self.inCluster").message("exactly one of kubeconfig and inCluster: true must be given"))]
#[x_kube(validation = Rule::new("!self.sweep || (self.clusterName != '' && self.clusterName != 'kubernetes')").message("sweep needs a clusterName, and not the default name \"kubernetes\", which other clusters of the project may have too"))]
#[x_kube(validation = Rule::new("!self.sweep || has(self.openstack)").message("sweep needs openstack"))]
#[x_kube(validation = Rule::new("self.leftovers == 'Report' || has(self.openstack)").message("leftovers: Delete needs openstack"))]
#[x_kube(validation = Rule::new("!has(self.resources.routes) || has(self.openstack)").message("resources.routes needs openstack"))]
#[x_kube(validation = Rule::new("has(self.kubeconfig) == has(oldSelf.kubeconfig) && (!has(self.kubeconfig) || self.kubeconfig == oldSelf.kubeconfig) && self.inCluster == oldSelf.inCluster").message("the target cluster cannot be changed: make another Deorbit"))]
#[x_kube(validation = Rule::new("has(self.openstack) == has(oldSelf.openstack) && (!has(self.openstack) || self.openstack == oldSelf.openstack) && self.clusterName == oldSelf.clusterName").message("openstack and clusterName cannot be changed: make another Deorbit"))]
#[x_kube(validation = Rule::new("self.resources == oldSelf.resources && self.retained == oldSelf.retained && self.freeze == oldSelf.freeze && self.podEviction == oldSelf.podEviction && self.sweep == oldSelf.sweep && self.dryRun == oldSelf.dryRun").message("what is deleted and how cannot be changed: only timeouts, onTimeout and leftovers can; make another Deorbit"))]
pub struct DeorbitSpec {
    /// Kubeconfig of the target cluster. Exactly one of kubeconfig and inCluster is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<Kubeconfig>,
    /// The target is the cluster that the deorbiter itself runs in.
    #[serde(default)]
    pub in_cluster: bool,
    /// Credentials of the target cluster's OpenStack project. Without them nothing can be proven: load balancers are given
    /// timeouts.loadBalancerGrace instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub openstack: Option<OpenStack>,
    /// Name of the target cluster as its cloud controller manager (--cluster-name) and CSI driver (--cluster) have it.
    #[serde(default)]
    #[schemars(length(max = 253))]
    pub cluster_name: String,
    /// The kinds of resources that are deleted.
    #[serde(default)]
    pub resources: Resources,
    /// Handling of volumes and snapshots whose reclaim or deletion policy is Retain: Keep leaves them, their claims and
    /// their data alone; Delete sets the policy to Delete before it deletes them.
    #[serde(default)]
    pub retained: Retained,
    /// How new PersistentVolumeClaims, VolumeSnapshots and Services of type LoadBalancer are kept from being created
    /// meanwhile: Policy (a ValidatingAdmissionPolicy, or a webhook where the cluster has none), Webhook (one that refuses
    /// by being unreachable), or None. It is lifted at the end, however the end comes.
    #[serde(default)]
    pub freeze: Freeze,
    /// Whether pods that hold claims which shall go are deleted: a claim in use is not removed.
    #[serde(default)]
    pub pod_eviction: PodEviction,
    /// How long is waited for what.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// Result of a run that reaches a timeout: Release (phase CompletedWithDebris, the cluster may be deleted, the
    /// debris is listed) or Block (phase Failed).
    #[serde(default)]
    pub on_timeout: OnTimeout,
    /// Handling of recorded objects that are still in OpenStack when the cluster's own controllers have finished or
    /// have stopped: Report lists them, Delete deletes them by the recorded ID.
    #[serde(default)]
    pub leftovers: Leftovers,
    /// Also find objects by clusterName that no object of the cluster names any more, and treat them as leftovers.
    #[serde(default)]
    pub sweep: bool,
    /// Only take the inventory, and say what would be deleted.
    #[serde(default)]
    pub dry_run: bool,
}

/// Location of the kubeconfig of the target cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kubeconfig {
    /// A Secret in the Deorbit's namespace.
    pub secret_ref: SecretKeyRef,
}

/// The OpenStack project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenStack {
    /// Credentials, in the shape of Cluster API Provider OpenStack.
    pub identity_ref: IdentityRef,
}

/// Handling of volumes and snapshots whose policy is Retain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Retained {
    /// They stay.
    #[default]
    Keep,
    /// They go.
    Delete,
}

/// How creation is stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Freeze {
    /// A ValidatingAdmissionPolicy; where the cluster has no such kind, as Webhook.
    #[default]
    Policy,
    /// A ValidatingWebhookConfiguration with an address that never answers.
    Webhook,
    /// Not at all.
    None,
}

/// Whether pods are deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodEviction {
    /// They are deleted.
    #[default]
    Delete,
    /// They are left alone.
    None,
}

/// Result of a run that reaches a timeout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnTimeout {
    /// CompletedWithDebris.
    #[default]
    Release,
    /// Failed.
    Block,
}

/// Handling of a recorded object that is still in OpenStack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Leftovers {
    /// It is listed.
    #[default]
    Report,
    /// It is deleted by its recorded ID.
    Delete,
}

/// How long is waited for what. Durations are written as 24h, 10m, 1h30m, 90s.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Timeouts {
    /// The whole run, from the first delete. 24h
    pub hang: Period,
    /// Since when the target's API server or OpenStack has not answered once. 10m
    pub api_unavailable: Period,
    /// One object, from its deletion, and not before the run's first delete; with leftovers: Delete, again from when deorbiter
    /// itself begins to delete. 30m
    pub per_object: Period,
    /// Without OpenStack credentials: how long load balancers are given after the last Service is gone. Before load balancers
    /// of Ingresses are deleted as leftovers: how long octavia-ingress-controller is given for each of them, half of perObject
    /// at most. 2m
    pub load_balancer_grace: Period,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            hang: Period::hours(24),
            api_unavailable: Period::minutes(10),
            per_object: Period::minutes(30),
            load_balancer_grace: Period::minutes(2),
        }
    }
}

#[cfg(test)]
mod tests;
