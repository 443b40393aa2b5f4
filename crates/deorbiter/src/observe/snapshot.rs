//! The observed state for one reconciliation of one Deorbit: plain data, taken at one time.

mod cloud;
mod cluster;
mod unread;

use std::collections::BTreeMap;
use std::sync::Arc;

use common::api::deorbit::{
    ApplicationCredential, CreationBlock, Deorbit, DeorbitSpec, DeorbitStatus, Trigger,
};
use jiff::Timestamp;

pub use cloud::{BlockStorage, Cloud, DoubtfulRoute, Routes};
pub use cluster::{
    Block, Claim, Cluster, Content, Ingress, Meta, Node, Pod, Provider, Service, Version, Volume,
    VolumeSnapshot,
};
pub use common::cloud::openstack::{FloatingIp, LoadBalancer, SecurityGroup};
pub use unread::Unread;

use crate::names;
use crate::record::{Book, Recorded};

/// Everything that a plan is made from.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The Deorbit.
    pub run: Run,
    /// The target cluster, or why it could not be read.
    pub cluster: Result<Cluster, Unread>,
    /// OpenStack, or why it could not be read; None where the Deorbit names no credentials.
    pub cloud: Option<Result<Cloud, Unread>>,
    /// The error of the last action on an object, by [`key`].
    pub failures: BTreeMap<String, String>,
}

impl Snapshot {
    /// The cluster in the metadata of a volume or snapshot, where that is another one than the run's.
    #[must_use]
    pub fn foreign(&self, record: &Recorded) -> Option<&str> {
        let (Some(Ok(cloud)), Some(id)) = (&self.cloud, record.id.as_deref()) else { return None };
        let of = cloud.block_storage(record.kind, id)?.cluster.as_deref()?;
        let ours = self.run.spec.cluster_name.as_str();
        (names::is_distinctive(ours) && names::is_distinctive(of) && of != ours).then_some(of)
    }
}

/// The key of an object of the target or of OpenStack in [`Snapshot::failures`].
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
    /// Since when it is being deleted.
    pub deleting: Option<Timestamp>,
    /// It has our finalizer.
    pub held: bool,
    /// It has the protection annotation.
    pub protected: bool,
    /// Its origin.
    pub trigger: Trigger,
    /// The object that it was created for, by its annotation.
    pub target: Option<String>,
    /// Another Deorbit that needs the login of the same Secret.
    pub same_login: Option<SameLogin>,
    /// Its spec.
    pub spec: DeorbitSpec,
    /// Its status.
    pub status: DeorbitStatus,
    /// Its bookkeeping.
    pub book: Book,
    /// The records. Plans share them: there may be thousands.
    pub records: Vec<Arc<Recorded>>,
    /// Why bookkeeping and records cannot be read, although the run has some.
    pub lost: Option<String>,
}

/// Another Deorbit that needs the login of the same Secret: the last one deletes the application credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SameLogin {
    /// Its namespace and name.
    pub deorbit: String,
    /// It ends as well, and leaves the credential to this one.
    pub yields: bool,
}

impl Run {
    /// The run of a Deorbit, without records, and without another Deorbit that needs the login.
    #[must_use]
    pub fn new(deorbit: &Deorbit) -> Run {
        let meta = &deorbit.metadata;
        let annotation =
            |key: &str| meta.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
        let label = |key: &str| meta.labels.as_ref().and_then(|all| all.get(key)).map(String::as_str);
        Run {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            generation: meta.generation,
            deleting: meta.deletion_timestamp.as_ref().map(|time| time.0),
            held: meta.finalizers.iter().flatten().any(|one| names::FINALIZERS.contains(&one.as_str())),
            protected: annotation(names::PROTECT).is_some_and(names::protects),
            trigger: match label(names::TRIGGER_LABEL) {
                Some("binding") => Trigger::Binding,
                Some("cluster-api") => Trigger::ClusterAPI,
                _ => Trigger::Manual,
            },
            target: annotation(names::TARGET_ANNOTATION).map(str::to_owned),
            same_login: None,
            spec: deorbit.spec.clone(),
            status: deorbit.status.clone().unwrap_or_default(),
            book: Book::default(),
            records: Vec::new(),
            lost: None,
        }
    }

    /// Whether new objects are to be blocked in the target.
    #[must_use]
    pub fn desires_block(&self) -> bool {
        self.spec.creation_block != CreationBlock::None && self.spec.cluster_gone.is_none()
    }

    /// Whether the application credential of the login is to be deleted at the end.
    #[must_use]
    pub fn deletes_credential(&self) -> bool {
        let openstack = self.spec.openstack.as_ref();
        openstack.is_some_and(|one| one.application_credential == ApplicationCredential::Delete)
    }

    /// The project, if the application credential of its login can be deleted where it is to be. Once this has begun, nothing is refused any
    /// more.
    ///
    /// # Errors
    /// It cannot.
    pub fn verify_credential(&self, cloud: Cloud) -> Result<Cloud, Unread> {
        if !self.deletes_credential() || self.book.credential.is_some() {
            return Ok(cloud);
        }
        let why = match &cloud.credential {
            None => "the login is none".to_owned(),
            Some(one) if !one.is_unrestricted => format!(
                "{} is restricted, and Keystone allows only one that was created with --unrestricted to delete itself",
                one.id
            ),
            Some(one) if !one.permits_delete => format!(
                "the access rules of {} do not permit identity DELETE /v3/users/*/application_credentials/*",
                one.id
            ),
            Some(_) => return Ok(cloud),
        };
        Err(Unread::Refused(format!(
            "spec.openstack.applicationCredential is Delete, and the application credential cannot be deleted: {why}; put another one into the Secret, or create another Deorbit with Keep"
        )))
    }

    /// The target cluster, if it may be cleaned up: it is not the management cluster, unless `inCluster` says so, and it is the one
    /// that the records are about. A kubeconfig can be made from the wrong context, and a Secret can get the kubeconfig of
    /// another cluster during the run. `management`: the UID of the management cluster's namespace kube-system, or why it is
    /// not known.
    ///
    /// # Errors
    /// The cluster must not be touched.
    pub fn verify_identity(
        &self,
        cluster: Cluster,
        management: Result<&str, String>,
    ) -> Result<Cluster, Unread> {
        let namespace = names::CLUSTER_IDENTITY;
        let Some(seen) = cluster.uid.as_deref() else {
            return Err(Unread::Refused(format!(
                "namespace {namespace} of the target cluster cannot be read, so it could be another cluster; permit get on it"
            )));
        };
        if !self.spec.in_cluster {
            let management = management.map_err(|why| {
                Unread::Refused(format!("the identity of the management cluster is unknown: {why}"))
            })?;
            if seen == management {
                return Err(Unread::ManagementCluster(format!(
                    "the kubeconfig leads to the cluster that deorbiter runs in (UID {seen} of namespace {namespace}); nothing is deleted there unless spec.inCluster is true"
                )));
            }
        }
        match &self.book.cluster {
            Some(known) if known != seen => Err(Unread::Refused(format!(
                "another cluster responds: the UID of its namespace {namespace} is {seen}, and {known} was recorded; nothing is done there"
            ))),
            _ => Ok(cluster),
        }
    }

    /// The project, if it is the one that the records are about, in the same region.
    ///
    /// # Errors
    /// It is another one.
    pub fn verify_project(&self, cloud: Cloud) -> Result<Cloud, Unread> {
        let region = self.book.region.as_ref().zip(cloud.region.as_ref());
        match (&self.book.project, region) {
            (Some(known), _) if *known != cloud.project => Err(Unread::Refused(format!(
                "the login is for project {}, and the records are about project {known}",
                cloud.project
            ))),
            (_, Some((known, seen))) if known != seen => Err(Unread::Refused(format!(
                "the login is for region {seen}, and the records are about region {known}"
            ))),
            _ => Ok(cloud),
        }
    }
}
