//! The kinds of resources that a `Deorbit` deletes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether a kind is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Choice {
    /// Its objects are deleted, except those with an annotation that keeps them.
    Delete,
    /// It is left alone.
    Keep,
}

/// The kinds that are deleted in the target cluster. Only objects that hold something in the cloud are ever touched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Resources {
    /// VolumeSnapshots of Cinder; with provider: Any, of every driver. A volume whose snapshot is kept is kept too: Cinder, as other
    /// storage, refuses to delete it.
    pub snapshots: Choice,
    /// PersistentVolumeClaims that are bound to volumes of Cinder, or wait for one; with provider: Any, of every CSI driver.
    pub persistent_volume_claims: Choice,
    /// Services of type LoadBalancer without a foreign loadBalancerClass; with provider: Any, of every class.
    pub services: Choice,
    /// Ingresses of the class "openstack", which octavia-ingress-controller serves.
    pub ingresses: Choice,
    /// Routes of the cluster's pods on a Neutron router, removed at the end: those to the Nodes that the inventory recorded, whether
    /// these still exist, and stale ones. Left alone where it is not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routes: Option<Routes>,
}

impl Default for Resources {
    fn default() -> Self {
        Resources {
            snapshots: Choice::Delete,
            persistent_volume_claims: Choice::Delete,
            services: Choice::Delete,
            ingresses: Choice::Keep,
            routes: None,
        }
    }
}

/// Routes of one cluster on one router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Routes {
    /// ID of the Neutron router.
    #[serde(rename = "routerID")]
    #[schemars(length(min = 1, max = 64))]
    pub router_id: String,
    /// The cluster's pod networks: a route is the cluster's where its destination lies within one of them.
    #[serde(rename = "podCIDRs")]
    #[schemars(length(min = 1, max = 16), inner(length(min = 1, max = 43)))]
    pub pod_cidrs: Vec<String>,
}
