//! What one walk of one Deorbit knows: plain data, taken at one time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::api::deorbit::{DeorbitSpec, DeorbitStatus, Kind, Recorded};
use jiff::Timestamp;

use crate::names;

/// Everything that a plan is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The Deorbit.
    pub run: Run,
    /// The target cluster, or why it could not be read.
    pub cluster: Result<Cluster, String>,
    /// OpenStack, or why it could not be read; None where the Deorbit names no credentials.
    pub cloud: Option<Result<Cloud, String>>,
    /// What the last try to do something about an object failed with, by [`key`].
    pub failures: BTreeMap<String, String>,
}

impl Snapshot {
    /// The cluster that a volume or snapshot is of by its own metadata, where that is another one than the run's.
    #[must_use]
    pub fn foreign(&self, record: &Recorded) -> Option<&str> {
        let (Some(Ok(cloud)), Some(id)) = (&self.cloud, record.id.as_deref()) else { return None };
        let of = match record.kind {
            Kind::Volume => cloud.volumes.get(id)?.cluster.as_deref()?,
            Kind::Snapshot => cloud.snapshots.get(id)?.cluster.as_deref()?,
            _ => return None,
        };
        let ours = self.run.spec.cluster_name.as_str();
        (names::is_telling(ours) && names::is_telling(of) && of != ours).then_some(of)
    }
}

/// Names an object of the target or of OpenStack among [`Snapshot::failures`].
#[must_use]
pub fn key(kind: &str, id: &str) -> String {
    format!("{kind}/{id}")
}

/// A Deorbit, as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its generation.
    pub generation: Option<i64>,
    /// It is being deleted.
    pub deleting: bool,
    /// Our finalizer stands on it.
    pub held: bool,
    /// It carries the protection annotation.
    pub protected: bool,
    /// What is asked for.
    pub spec: DeorbitSpec,
    /// What was written last.
    pub status: DeorbitStatus,
    /// What was recorded, from the status or its ConfigMaps. Shared: plan and memo hold the same thousands.
    pub records: Vec<Arc<Recorded>>,
}

impl Run {
    /// The cluster, if it is the one that the records are about. A Secret can be given the kubeconfig of another cluster
    /// meanwhile, for one of the same name is often made anew.
    ///
    /// # Errors
    /// It is another one, or does not say which it is any more; for a person.
    pub fn recognise(&self, cluster: Cluster) -> Result<Cluster, String> {
        match (&self.status.inventory.cluster, &cluster.uid) {
            (Some(known), Some(seen)) if known != seen => Err(format!(
                "another cluster answers: the UID of its namespace {} is {seen}, and {known} was recorded; nothing is done there",
                names::CLUSTER_IDENTITY
            )),
            (Some(_), None) => Err(format!(
                "the namespace {} cannot be read any more, so it could be another cluster; nothing is done there",
                names::CLUSTER_IDENTITY
            )),
            _ => Ok(cluster),
        }
    }

    /// The project, if it is the one that the records are about.
    ///
    /// # Errors
    /// It is another one; for a person.
    pub fn recognise_project(&self, cloud: Cloud) -> Result<Cloud, String> {
        match &self.status.inventory.project {
            Some(known) if *known != cloud.project => Err(format!(
                "the login is for project {}, and the records are about project {known}",
                cloud.project
            )),
            _ => Ok(cloud),
        }
    }
}

/// Which version of VolumeSnapshots a cluster serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SnapshotApi {
    /// Since external-snapshotter 4.
    #[default]
    V1,
    /// What there was before, with the same fields.
    V1beta1,
}

impl SnapshotApi {
    /// As it stands in paths.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            SnapshotApi::V1 => "v1",
            SnapshotApi::V1beta1 => "v1beta1",
        }
    }
}

/// The target cluster, as far as it holds something in OpenStack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cluster {
    /// UID of its namespace kube-system, which no other cluster has; None where it may not be read.
    pub uid: Option<String>,
    /// In which version VolumeSnapshots are served.
    pub snapshot_api: SnapshotApi,
    /// All claims.
    pub claims: Vec<Claim>,
    /// PersistentVolumes of Cinder; no others.
    pub volumes: Vec<Volume>,
    /// Names of the StorageClasses whose provisioner is Cinder.
    pub classes: BTreeSet<String>,
    /// All VolumeSnapshots; none where the cluster has no such kind.
    pub snapshots: Vec<VolumeSnapshot>,
    /// VolumeSnapshotContents of Cinder; no others.
    pub contents: Vec<Content>,
    /// Services that have a load balancer.
    pub services: Vec<Service>,
    /// All Ingresses.
    pub ingresses: Vec<Ingress>,
    /// Pods that name claims.
    pub pods: Vec<Pod>,
    /// Nodes that PersistentVolumes are attached to, by the PersistentVolume's name.
    pub attachments: BTreeMap<String, String>,
    /// Leases of those who remove things in OpenStack.
    pub cleaners: Vec<Cleaner>,
    /// What is there of this Deorbit's freeze.
    pub freeze: Freeze,
}

/// What all objects have.
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
    /// See there.
    pub meta: Meta,
    /// spec.volumeName; None where it is not bound.
    pub volume: Option<String>,
    /// spec.storageClassName, where it is not bound: a bound one is what its volume is.
    pub class: Option<String>,
    /// Who provisions it, as its annotation says, where it is not bound.
    pub provisioner: Option<String>,
}

/// A PersistentVolume of Cinder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volume {
    /// See there.
    pub meta: Meta,
    /// The volume's ID.
    pub id: String,
    /// Its reclaim policy is not Delete.
    pub retain: bool,
    /// UID of the claim that it is bound to.
    pub claim: Option<String>,
    /// status.phase
    pub phase: String,
}

/// A VolumeSnapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeSnapshot {
    /// See there.
    pub meta: Meta,
    /// Its VolumeSnapshotContent.
    pub content: Option<String>,
    /// The claim that it was taken of, in its namespace.
    pub claim: Option<String>,
}

/// A VolumeSnapshotContent of Cinder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// See there.
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
    /// See there.
    pub meta: Meta,
    /// spec.loadBalancerClass
    pub class: Option<String>,
    /// The load balancer's ID, as the cloud controller manager wrote it.
    pub load_balancer: Option<String>,
    /// Addresses of its status: what the cloud controller manager wrote when its load balancer was ready.
    pub addresses: Vec<String>,
    /// Its floating IP shall stay.
    pub keep_floating_ip: bool,
    /// It is of another type by now, and waits for its load balancer to go.
    pub former: bool,
}

/// An Ingress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ingress {
    /// See there.
    pub meta: Meta,
    /// The annotation of old, or spec.ingressClassName.
    pub class: Option<String>,
    /// Addresses of its status: what octavia-ingress-controller wrote when its load balancer was ready.
    pub addresses: Vec<String>,
    /// It names a floating IP that was there before.
    pub names_floating_ip: bool,
    /// Its floating IP shall stay.
    pub keep_floating_ip: bool,
}

/// A Pod that names claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// See there.
    pub meta: Meta,
    /// Names of the claims, in its namespace.
    pub claims: Vec<String>,
    /// It is on no Node, and holds up nobody's deletion.
    pub unscheduled: bool,
}

/// A Lease of a controller that removes things in OpenStack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaner {
    /// Name of the Lease.
    pub name: String,
    /// spec.renewTime
    pub renewed: Option<Timestamp>,
    /// spec.leaseDurationSeconds
    pub seconds: i64,
}

/// What is there of this Deorbit's freeze.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Freeze {
    /// The cluster has ValidatingAdmissionPolicies.
    pub policies: bool,
    /// Ours is there.
    pub policy: bool,
    /// Its binding is there.
    pub binding: bool,
    /// Our ValidatingWebhookConfiguration is there.
    pub webhook: bool,
}

impl Freeze {
    /// Whether anything of it is there.
    #[must_use]
    pub fn any(&self) -> bool {
        self.policy || self.binding || self.webhook
    }
}

/// OpenStack, as far as the records and the cluster name things in it. What was asked for and is not here does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cloud {
    /// ID of the project.
    pub project: String,
    /// By ID.
    pub volumes: BTreeMap<String, CloudVolume>,
    /// By ID.
    pub snapshots: BTreeMap<String, CloudSnapshot>,
    /// By ID.
    pub load_balancers: BTreeMap<String, LoadBalancer>,
    /// By ID: all of the project where any load balancer is looked at.
    pub floating_ips: BTreeMap<String, FloatingIp>,
    /// By ID: all of the project where any load balancer is looked at.
    pub security_groups: BTreeMap<String, SecurityGroup>,
    /// The router's routes within the pod networks, in the phase Routes.
    pub routes: Vec<Route>,
    /// Whether the lists above are those of the whole project, for the sweep.
    pub whole: bool,
}

impl Cloud {
    /// Whether what this names is there, its own or shared.
    #[must_use]
    pub fn shows(&self, record: &Recorded) -> bool {
        record.id.as_deref().is_some_and(|id| match record.kind {
            Kind::Volume => self.volumes.contains_key(id),
            Kind::Snapshot => self.snapshots.contains_key(id),
            Kind::LoadBalancer => self.load_balancers.contains_key(id),
            Kind::FloatingIP => self.floating_ips.contains_key(id),
            Kind::SecurityGroup => self.security_groups.contains_key(id),
        })
    }

    /// The only load balancer of which this is true, with its ID: of two, nobody knows which is meant.
    pub fn only_load_balancer(
        &self,
        is_it: impl Fn(&LoadBalancer) -> bool,
    ) -> Option<(&String, &LoadBalancer)> {
        let mut found = self.load_balancers.iter().filter(|(_, seen)| is_it(seen));
        found.next().filter(|_| found.next().is_none())
    }
}

/// A Cinder volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudVolume {
    /// `pvc-...`
    pub name: String,
    /// `available`, `in-use`, `deleting`, `error_deleting`, ...
    pub status: String,
    /// Its keep mark is set.
    pub keep: bool,
    /// The CSI driver's cluster name.
    pub cluster: Option<String>,
}

/// A Cinder snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CloudSnapshot {
    /// `snapshot-...`
    pub name: String,
    /// `available`, `deleting`, `error_deleting`, ...
    pub status: String,
    /// The volume that it was taken of.
    pub volume: String,
    /// Its keep mark is set.
    pub keep: bool,
    /// The CSI driver's cluster name.
    pub cluster: Option<String>,
}

/// An Octavia load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadBalancer {
    /// `kube_service_...`
    pub name: String,
    /// `Kubernetes external service ...`
    pub description: String,
    /// `ACTIVE`, `ERROR`, `PENDING_DELETE`, ...
    pub status: String,
    /// One for each Service that shares it.
    pub tags: Vec<String>,
    /// Its own address.
    pub address: Option<String>,
    /// The port of its address.
    pub port: Option<String>,
}

/// A Neutron floating IP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FloatingIp {
    /// The address.
    pub address: String,
    /// Says which Service it was made for.
    pub description: String,
    /// The port that it leads to.
    pub port: Option<String>,
}

/// A Neutron security group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecurityGroup {
    /// `lb-sg-...`
    pub name: String,
    /// Says which Service it was made for.
    pub description: String,
}

/// A route of the router.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Route {
    /// As Neutron writes it.
    pub destination: String,
    /// As Neutron writes it.
    pub nexthop: String,
}
