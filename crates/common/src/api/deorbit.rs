//! `Deorbit`, group `deorbiter.perimeter.dev`: one clean-up of one cluster, from the inventory to the verification.
//!
//! The doc comments are the text of `kubectl explain deorbit`.

// Each printer column has a name, a type and a path of its own; clippy takes them for one attribute said twice.
#![allow(clippy::duplicated_attributes)]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{IdentityRef, Period, SecretKeyRef};

pub mod resources;
pub mod status;

pub use resources::{Choice, Resources, Routes};
pub use status::{Debris, DeorbitStatus, Kind, Phase, Trigger};

/// Group of the kind.
pub const GROUP: &str = "deorbiter.perimeter.dev";
/// Finalizer: while a Deorbit has it, its block of new objects may be in the target cluster.
pub const FINALIZER: &str = "deorbiter.perimeter.dev/creation-block";
/// Annotation, `"true"`: nothing is deleted while the Deorbit has it.
pub const PROTECT: &str = "deorbiter.perimeter.dev/protect";
/// Annotation, `"true"`: this object of the target cluster, and what it holds in the cloud, is kept.
pub const KEEP: &str = "deorbiter.perimeter.dev/keep";

/// One clean-up of one cluster before it is deleted: deletes the resources that the cluster created in OpenStack, and verifies that
/// they are gone. Create it while the cluster's API server, cloud controller manager and Cinder CSI driver still run; wait for its
/// condition Complete; then delete the cluster. New objects stay blocked in the cluster as long as the Deorbit exists; deleting it
/// lifts the block, and aborts a run.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "deorbiter.perimeter.dev",
    version = "v1alpha1",
    kind = "Deorbit",
    namespaced,
    status = "DeorbitStatus",
    derive = "PartialEq",
    category = "perimeter",
    shortname = "deo",
    doc = "One clean-up of one cluster before it is deleted: deletes the resources that the cluster created in OpenStack, and verifies that they are gone. New objects stay blocked in the cluster as long as the Deorbit exists; deleting it lifts the block, and aborts a run.",
    printcolumn(
        name = "Phase",
        type_ = "string",
        json_path = ".status.phase",
        description = "The phase of the run."
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason",
        description = "What the run waits for, or how it ended."
    ),
    printcolumn(
        name = "Target",
        type_ = "string",
        json_path = ".status.target",
        description = "The cluster that is cleaned up."
    ),
    printcolumn(
        name = "Trigger",
        type_ = "string",
        json_path = ".status.trigger",
        description = "What created the Deorbit: a user, a binding or Cluster API."
    ),
    printcolumn(
        name = "Remaining",
        type_ = "integer",
        json_path = ".status.remaining",
        description = "Resources that are to be deleted and still exist."
    ),
    printcolumn(
        name = "Kept",
        type_ = "integer",
        json_path = ".status.kept",
        description = "Resources that are kept on purpose."
    ),
    printcolumn(
        name = "Debris",
        type_ = "integer",
        json_path = ".status.debrisCount",
        description = "Resources that were left at the end."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Age of this object."
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].message",
        description = "Details of the reason.",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("[has(self.kubeconfig), self.inCluster, has(self.clusterGone)].exists_one(given, given)").message("exactly one of kubeconfig, inCluster: true and clusterGone must be given"))]
#[x_kube(validation = Rule::new("!has(self.clusterGone) || (self.discoverByClusterName && has(self.openstack))").message("clusterGone needs openstack and discoverByClusterName: nothing else shows what the cluster left"))]
#[x_kube(validation = Rule::new("!has(self.clusterGone) || !self.clusterSurvives").message("a cluster that is gone does not survive: leave clusterSurvives out"))]
#[x_kube(validation = Rule::new("!self.discoverByClusterName || (self.clusterName != '' && self.clusterName != 'kubernetes')").message("discoverByClusterName needs a clusterName, and not the default name \"kubernetes\", which other clusters of the project may have too"))]
#[x_kube(validation = Rule::new("self.provider == 'Any' || !self.discoverByClusterName || has(self.openstack)").message("discoverByClusterName needs openstack"))]
#[x_kube(validation = Rule::new("self.provider == 'Any' || self.orphanPolicy == 'Report' || has(self.openstack)").message("orphanPolicy: Delete needs openstack"))]
#[x_kube(validation = Rule::new("self.provider == 'Any' || !has(self.resources.routes) || has(self.openstack)").message("resources.routes needs openstack"))]
#[x_kube(validation = Rule::new("self.provider != 'Any' || !has(self.openstack)").message("provider: Any reads no cloud: leave openstack out, or set provider: OpenStack"))]
#[x_kube(validation = Rule::new("self.provider != 'Any' || !self.discoverByClusterName").message("provider: Any searches nothing in a cloud: discoverByClusterName needs provider: OpenStack"))]
#[x_kube(validation = Rule::new("self.provider != 'Any' || self.orphanPolicy == 'Report'").message("provider: Any deletes nothing in a cloud: orphanPolicy: Delete needs provider: OpenStack"))]
#[x_kube(validation = Rule::new("self.provider != 'Any' || (!has(self.resources.routes) && self.resources.ingresses == 'Keep')").message("provider: Any deletes neither routes nor Ingresses: resources.routes and resources.ingresses: Delete need provider: OpenStack"))]
#[x_kube(validation = Rule::new("!has(self.openstack) || self.openstack.applicationCredential == 'Keep' || self.openstack.identityRef.type == 'Secret'").message("applicationCredential: Delete needs a Secret of this cluster alone: an OpenStackClusterIdentity is for many clusters"))]
#[x_kube(validation = Rule::new("!has(self.openstack) || self.openstack.applicationCredential == 'Keep' || !self.clusterSurvives").message("a cluster that survives may need its login: set clusterSurvives to false, or applicationCredential to Keep"))]
#[x_kube(validation = Rule::new("has(self.kubeconfig) == has(oldSelf.kubeconfig) && (!has(self.kubeconfig) || self.kubeconfig == oldSelf.kubeconfig) && self.inCluster == oldSelf.inCluster && has(self.clusterGone) == has(oldSelf.clusterGone) && (!has(self.clusterGone) || self.clusterGone == oldSelf.clusterGone)").message("the target cluster cannot be changed: create another Deorbit"))]
#[x_kube(validation = Rule::new("has(self.openstack) == has(oldSelf.openstack) && (!has(self.openstack) || self.openstack == oldSelf.openstack) && self.clusterName == oldSelf.clusterName").message("openstack and clusterName cannot be changed: create another Deorbit"))]
#[x_kube(validation = Rule::new("self.provider == oldSelf.provider && self.resources == oldSelf.resources && self.retainedVolumes == oldSelf.retainedVolumes && self.creationBlock == oldSelf.creationBlock && self.podDeletion == oldSelf.podDeletion && self.discoverByClusterName == oldSelf.discoverByClusterName").message("what is deleted and how cannot be changed: only timeouts, onTimeout, orphanPolicy, clusterSurvives, ttlSecondsAfterFinished and dryRun can; create another Deorbit"))]
#[x_kube(validation = Rule::new("!self.dryRun || oldSelf.dryRun").message("dryRun can be switched off, not on: a run that deletes cannot become a dry run"))]
pub struct DeorbitSpec {
    /// Kubeconfig of the target cluster. Exactly one of kubeconfig, inCluster and clusterGone is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubeconfig: Option<Kubeconfig>,
    /// The target is the cluster that deorbiter itself runs in.
    #[serde(default)]
    pub in_cluster: bool,
    /// The API server of the target cluster does not exist any more: what the cluster left in OpenStack is found by clusterName alone, and
    /// handled by orphanPolicy. The cluster is neither read nor written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_gone: Option<ClusterGone>,
    /// The cloud of the target cluster. OpenStack: volumes and snapshots of Cinder and load balancers of Octavia are deleted and, with
    /// openstack, verified there by their IDs. Any: volumes and snapshots of every CSI driver and load balancers of every class are
    /// deleted by the cluster's own controllers, and their objects are waited for until these are gone with their finalizers. No cloud is
    /// read then, so nothing is verified in one.
    #[serde(default)]
    pub provider: Provider,
    /// Credentials of the target cluster's OpenStack project. Without them nothing is verified in OpenStack: load balancers get
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
    pub retained_volumes: RetainedVolumes,
    /// How new PersistentVolumeClaims, VolumeSnapshots and Services of type LoadBalancer are blocked in the target cluster: Policy
    /// (a ValidatingAdmissionPolicy, or a webhook where the cluster has none), Webhook (one that refuses by being unreachable), or
    /// None. The block stays as long as the Deorbit exists, unless clusterSurvives is true.
    #[serde(default)]
    pub creation_block: CreationBlock,
    /// Whether pods that use claims which are to be deleted are deleted: a claim in use is not removed.
    #[serde(default)]
    pub pod_deletion: PodDeletion,
    /// Time limits.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// Result of a run that reaches a timeout with resources left: Release (phase Succeeded, the cluster may be deleted, status.debris
    /// lists what is left) or Block (phase Failed).
    #[serde(default)]
    pub on_timeout: OnTimeout,
    /// Handling of recorded resources that are still in OpenStack when the cluster's own controllers have finished, have stopped or
    /// take longer than timeouts.perObject: Report lists them, Delete deletes them by their recorded ID.
    #[serde(default)]
    pub orphan_policy: OrphanPolicy,
    /// Also find resources by clusterName that no object of the cluster names any more, and handle them by orphanPolicy. Volumes
    /// and snapshots are deleted only with retainedVolumes: Delete, since the policy Retain may have kept them.
    #[serde(default)]
    pub discover_by_cluster_name: bool,
    /// The cluster is not deleted afterwards: the block of new objects is lifted at the end of the run.
    #[serde(default)]
    pub cluster_survives: bool,
    /// Deletes the Deorbit so many seconds after its end, as that of a Job. One that a binding or Cluster API created stays at least
    /// five minutes, and one that failed for them stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31536000))]
    pub ttl_seconds_after_finished: Option<i64>,
    /// Only take the inventory, and report what would be deleted: phase Planned. Set it to false to delete exactly that.
    #[serde(default)]
    pub dry_run: bool,
}

/// Location of the kubeconfig of the target cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Kubeconfig {
    /// A Secret in the Deorbit's namespace: a kubeconfig under its key, or the certificates of a Kluster of Kubernikus, which need
    /// server.
    pub secret_ref: SecretKeyRef,
    /// URL of the target's API server, for the Secret of a Kluster, which does not have it. Ignored for a kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048), regex(pattern = "^https://"))]
    pub server: Option<String>,
}

/// A cluster without an API server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterGone {
    /// ID of the project that the cluster was in. No Node and no object of the cluster can prove any more that the login is the cluster's
    /// own: a login for another project is refused.
    #[serde(rename = "projectID")]
    #[schemars(length(min = 1, max = 64))]
    pub project_id: String,
}

/// The cloud of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Provider {
    /// Cinder's volumes and Octavia's load balancers.
    #[default]
    OpenStack,
    /// Volumes of every CSI driver, and load balancers of every class.
    Any,
}

/// The OpenStack project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OpenStack {
    /// Credentials, in the shape of Cluster API Provider OpenStack.
    pub identity_ref: IdentityRef,
    /// Delete: the application credential that deorbiter logs in with is deleted in Keystone when everything else is gone and verified. It
    /// has to be unrestricted, and no other program may need it any more: Cluster API deletes servers and networks after the Deorbit.
    /// The Secret stays.
    #[serde(default)]
    pub application_credential: ApplicationCredential,
}

/// Handling of the application credential of the login.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ApplicationCredential {
    /// It stays.
    #[default]
    Keep,
    /// It is deleted at the end of a run that leaves nothing.
    Delete,
}

/// Handling of volumes and snapshots whose policy is Retain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RetainedVolumes {
    /// They stay.
    #[default]
    Keep,
    /// They are deleted.
    Delete,
}

/// How new objects are blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CreationBlock {
    /// A ValidatingAdmissionPolicy; where the cluster has no such kind, as Webhook.
    #[default]
    Policy,
    /// A ValidatingWebhookConfiguration with an address that never responds.
    Webhook,
    /// They are not blocked.
    None,
}

/// Whether pods are deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PodDeletion {
    /// They are deleted.
    #[default]
    Delete,
    /// They are left alone.
    None,
}

/// Result of a run that reaches a timeout with resources left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnTimeout {
    /// Phase Succeeded, with the list of what is left.
    #[default]
    Release,
    /// Phase Failed.
    Block,
}

/// Handling of a recorded resource that is still in OpenStack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OrphanPolicy {
    /// It is listed.
    #[default]
    Report,
    /// It is deleted by its recorded ID.
    Delete,
}

/// Time limits. Durations are written as 24h, 10m, 1h30m, 90s.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Timeouts {
    /// The whole run, without the time in which it was protected or an access was refused. Only this limit ends the wait for resources
    /// that are not deleted, and for OpenStack. 24h
    pub total: Period,
    /// How long the target's API server may not respond at all before the run ends without it. A response with an error does not
    /// count. 10m
    pub api_unavailable: Period,
    /// One object, from its deletion. After this time it is reported; with orphanPolicy: Delete, deorbiter deletes its resource
    /// in OpenStack itself. 30m
    pub per_object: Period,
    /// Without OpenStack credentials: the time for load balancers after the last Service is gone and, with provider: Any, for volumes
    /// that were not provisioned yet. Before load balancers of Ingresses are deleted as orphans: the time for octavia-ingress-controller
    /// for each of them, half of perObject at most. 2m
    pub load_balancer_grace: Period,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            total: Period::hours(24),
            api_unavailable: Period::minutes(10),
            per_object: Period::minutes(30),
            load_balancer_grace: Period::minutes(2),
        }
    }
}

#[cfg(test)]
mod tests;
