//! The observed state of a target cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use common::api::deorbit::Kind;
use jiff::Timestamp;
use serde::Deserialize;

/// The objects of the target cluster that hold something in the cloud.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cluster {
    /// UID of its namespace kube-system, which identifies the cluster; None where it may not be read.
    pub uid: Option<String>,
    /// All claims.
    pub claims: Vec<Claim>,
    /// PersistentVolumes of drivers in the scope of the run; no others.
    pub volumes: Vec<Volume>,
    /// Names of the StorageClasses with a provisioner in the scope of the run.
    pub classes: BTreeSet<String>,
    /// All VolumeSnapshots; none where the cluster has no such kind.
    pub snapshots: Vec<VolumeSnapshot>,
    /// VolumeSnapshotContents of drivers in the scope of the run; no others.
    pub contents: Vec<Content>,
    /// Services that have a load balancer.
    pub services: Vec<Service>,
    /// All Ingresses.
    pub ingresses: Vec<Ingress>,
    /// Pods that name claims.
    pub pods: Vec<Pod>,
    /// Nodes that PersistentVolumes are attached to, by the PersistentVolume's name.
    pub attachments: BTreeMap<String, String>,
    /// Leases of the controllers that delete resources in the cloud.
    pub providers: Vec<Provider>,
    /// Its Nodes; None where they may not be listed: then nothing follows from a Node that is not here.
    pub nodes: Option<Vec<Node>>,
    /// The objects of this Deorbit's block that exist.
    pub block: Block,
    /// Names of the CSI drivers; with the provider Any only.
    pub drivers: BTreeSet<String>,
}

impl Cluster {
    /// A cluster without an API server: it has no objects, and no Nodes.
    #[must_use]
    pub fn gone() -> Cluster {
        Cluster { nodes: Some(Vec::new()), ..Cluster::default() }
    }

    /// Whether a claim waits for a volume in the scope of the run: its provisioner decides or, where it names none, its class.
    pub fn awaits_volume(&self, claim: &Claim) -> bool {
        let has_class = || claim.class.as_ref().is_some_and(|class| self.classes.contains(class));
        claim.volume.is_none() && claim.provisioner_in_scope.unwrap_or_else(has_class)
    }

    /// The Nodes that are known.
    pub fn known_nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().flatten()
    }

    /// The metadata of every object that a record can be about.
    pub fn metas(&self) -> impl Iterator<Item = &Meta> {
        let claims = self.claims.iter().map(|one| &one.meta);
        claims
            .chain(self.volumes.iter().map(|one| &one.meta))
            .chain(self.snapshots.iter().map(|one| &one.meta))
            .chain(self.contents.iter().map(|one| &one.meta))
            .chain(self.services.iter().map(|one| &one.meta))
            .chain(self.ingresses.iter().map(|one| &one.meta))
    }

    /// The PersistentVolumes and VolumeSnapshotContents with an ID, by the volume or snapshot that each holds.
    pub fn holders(&self) -> impl Iterator<Item = ((Kind, &str), &Meta)> {
        let volumes = self.volumes.iter().map(|one| ((Kind::Volume, one.id.as_str()), &one.meta));
        let contents = self.contents.iter();
        volumes.chain(contents.filter_map(|one| Some(((Kind::Snapshot, one.id.as_deref()?), &one.meta))))
    }
}

/// The metadata of an object of any kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// metadata.namespace; empty for kinds without one.
    pub namespace: String,
    /// metadata.name
    pub name: String,
    /// metadata.uid
    pub uid: String,
    /// metadata.resourceVersion
    pub version: String,
    /// metadata.deletionTimestamp
    pub deleting: Option<Timestamp>,
    /// It carries the keep annotation.
    pub keep: bool,
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Metadata.
    pub meta: Meta,
    /// spec.volumeName; None where it is not bound.
    pub volume: Option<String>,
    /// spec.storageClassName, where it is not bound: a bound one has the class of its volume.
    pub class: Option<String>,
    /// Whether the provisioner in its annotation is in the scope of the run, where it is not bound; None without the annotation.
    pub provisioner_in_scope: Option<bool>,
}

/// A PersistentVolume of a driver in the scope of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// Metadata.
    pub meta: Meta,
    /// The volume's ID.
    pub id: String,
    /// Its reclaim policy is not Delete.
    pub retain: bool,
    /// UID of the claim that it is bound to; empty where it is reserved for a claim by name.
    pub claim: Option<String>,
    /// status.phase
    pub phase: String,
}

/// A VolumeSnapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeSnapshot {
    /// Metadata.
    pub meta: Meta,
    /// Its VolumeSnapshotContent.
    pub content: Option<String>,
    /// The claim that it was taken of, in its namespace.
    pub claim: Option<String>,
}

/// A VolumeSnapshotContent of a driver in the scope of the run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Metadata.
    pub meta: Meta,
    /// The snapshot's ID, once it is known.
    pub id: Option<String>,
    /// Its deletion policy is not Delete.
    pub retain: bool,
    /// ID of the volume that it was taken of, where it was taken here.
    pub volume: Option<String>,
    /// UID of its VolumeSnapshot.
    pub snapshot: Option<String>,
}

/// A Service of type LoadBalancer, or one that was until its load balancer is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Metadata.
    pub meta: Meta,
    /// spec.loadBalancerClass
    pub class: Option<String>,
    /// The load balancer's ID, as the cloud controller manager wrote it.
    pub load_balancer: Option<String>,
    /// Addresses of its status: what the cloud controller manager wrote when its load balancer was ready.
    pub addresses: Vec<String>,
    /// Its floating IP is to be kept.
    pub keep_floating_ip: bool,
    /// Its type has changed, and it waits until its load balancer is gone.
    pub former: bool,
}

/// An Ingress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ingress {
    /// Metadata.
    pub meta: Meta,
    /// The annotation of older Ingresses, or spec.ingressClassName.
    pub class: Option<String>,
    /// Addresses of its status: what octavia-ingress-controller wrote when its load balancer was ready.
    pub addresses: Vec<String>,
    /// It names a floating IP that existed before.
    pub names_floating_ip: bool,
    /// Its floating IP is to be kept.
    pub keep_floating_ip: bool,
}

/// A Pod that names claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Metadata.
    pub meta: Meta,
    /// Names of the claims, in its namespace.
    pub claims: Vec<String>,
    /// It is on no Node, so it does not block the deletion of its claims.
    pub unscheduled: bool,
}

/// A Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// metadata.name
    pub name: String,
    /// Region and ID of the server in spec.providerID; an empty region where it names none.
    pub server: Option<(String, String)>,
    /// Its internal addresses.
    pub addresses: Vec<IpAddr>,
}

/// A Lease of a controller that deletes resources in the cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Provider {
    /// Name of the Lease.
    pub name: String,
    /// spec.renewTime
    pub renewed: Option<Timestamp>,
    /// spec.leaseDurationSeconds
    pub seconds: i64,
}

/// One version of one object: what a delete names, so that nothing else is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// metadata.uid
    pub uid: String,
    /// metadata.resourceVersion
    pub resource_version: String,
}

/// The objects of this Deorbit's block that exist in the target cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// It may not be read, and nothing of it was ever observed.
    pub forbidden: bool,
    /// The cluster has ValidatingAdmissionPolicies.
    pub policies: bool,
    /// Our ValidatingAdmissionPolicy, where it exists.
    pub policy: Option<Version>,
    /// Its binding, where it exists.
    pub binding: Option<Version>,
    /// Our ValidatingWebhookConfiguration, where it exists.
    pub webhook: Option<Version>,
}

impl Block {
    /// Whether any part of it exists.
    #[must_use]
    pub fn any(&self) -> bool {
        self.policy.is_some() || self.binding.is_some() || self.webhook.is_some()
    }
}
