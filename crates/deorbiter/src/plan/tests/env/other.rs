//! Another cloud: a CSI driver and a cloud controller manager that are not OpenStack's. They take some reconciliations, and hold their
//! objects by finalizers meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use common::api::deorbit::Phase;
use common::conditions::Status;
use serde_json::json;

use super::{TestEnv, meta, spec, with};
use crate::observe::snapshot::{Claim, Service, Volume};
use crate::plan::Decision;
use crate::settings::{Scope, Settings};

/// The CSI driver.
pub const DRIVER: &str = "disk.example.com";

/// The resources of that cloud, and its controllers' work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OtherCloud {
    /// IDs of all that exists.
    pub resources: BTreeSet<String>,
    /// Reconciliations that the controllers take for each resource.
    pub delay: usize,
    /// UIDs of Services without a finalizer of their controller: the Service is gone at once, and its load balancer later.
    pub without_finalizer: BTreeSet<String>,
    /// UIDs of claims with a volume that is still being created, also after the claim is gone.
    pub creating: BTreeSet<String>,
    /// The reconciliation in which work on a resource or an object began.
    begun: BTreeMap<String, usize>,
    /// Load balancers of Services that are gone.
    leaving: BTreeSet<String>,
}

impl OtherCloud {
    fn is_due(&mut self, what: &str, reconcile: usize) -> bool {
        let begun = *self.begun.entry(what.to_owned()).or_insert(reconcile);
        reconcile >= begun + self.delay
    }
}

impl TestEnv {
    /// A simulation with any provider, and with this in the spec.
    pub fn anywhere(change: serde_json::Value) -> TestEnv {
        let mut env = TestEnv::new(spec(with(json!({"provider": "Any"}), change)));
        env.cluster.drivers = [DRIVER.to_owned()].into();
        env.other.delay = 2;
        env
    }

    /// A claim with a volume of the other cloud.
    pub fn disk(&mut self, name: &str) {
        self.claim(name);
        let id = format!("{DRIVER}/vol-{name}");
        self.volume(name).id.clone_from(&id);
        self.other.resources.insert(id);
    }

    /// A claim without a volume yet.
    pub fn pending(&mut self, name: &str, provisioner: &str) {
        let settings = Settings::default();
        let scope = Scope::new(&settings, self.run.spec.provider, &self.cluster.drivers);
        let in_scope = scope.has_provisioner(provisioner);
        self.cluster.claims.push(Claim {
            meta: meta("a", name),
            volume: None,
            class: None,
            provisioner_in_scope: Some(in_scope),
        });
    }

    /// A snapshot of a claim of the other cloud.
    pub fn copy(&mut self, name: &str, claim: &str) {
        self.snapshot(name, claim);
        let id = format!("{DRIVER}/snap-{name}");
        let content = self.cluster.contents.last_mut().unwrap();
        content.id = Some(id.clone());
        content.volume = Some(format!("{DRIVER}/vol-{claim}"));
        self.other.resources.insert(id);
    }

    /// A Service with a load balancer of the other cloud.
    pub fn balanced(&mut self, name: &str, class: Option<&str>) -> &mut Service {
        self.other.resources.insert(balancer(name));
        let class = class.map(str::to_owned);
        self.cluster.services.push(Service { meta: meta("a", name), class, ..Service::default() });
        self.cluster.services.last_mut().unwrap()
    }

    /// The resources that are left in the other cloud, without those that must stay.
    pub fn left_elsewhere(&self) -> Vec<&String> {
        self.other.resources.iter().filter(|id| !self.untouchable.contains(id)).collect()
    }

    /// Law of any provider: no cloud is read, and nothing says that one was.
    pub(super) fn assert_no_cloud_is_claimed(decision: &Decision) {
        let status = &decision.status;
        for condition in &status.conditions {
            let claims = matches!(condition.kind.as_str(), "Verified" | "CloudReachable");
            assert!(!claims || condition.status != Status::True, "{condition:?}");
            assert!(!condition.message.contains("OpenStack"), "{condition:?}");
        }
        for debris in &status.debris {
            assert!(!debris.reason.contains("OpenStack"), "{debris:?}");
        }
        assert!(!decision.book.proof.any() && decision.book.project.is_none(), "{:?}", decision.book);
    }

    /// Runs the controllers of the other cloud once.
    pub(super) fn other_controllers(&mut self) {
        if !self.course.csi_stopped {
            self.other_snapshots();
        }
        let held: Vec<String> = self.cluster.pods.iter().flat_map(|pod| pod.claims.clone()).collect();
        let goes = |one: &Claim| one.meta.deleting.is_some() && !held.contains(&one.meta.name);
        let (gone, stay): (Vec<Claim>, Vec<Claim>) = self.cluster.claims.drain(..).partition(goes);
        self.cluster.claims = stay;
        for claim in gone {
            let bound = |volume: &&mut Volume| Some(&volume.meta.name) == claim.volume.as_ref();
            if let Some(volume) = self.cluster.volumes.iter_mut().find(bound) {
                volume.phase = "Released".into();
            }
        }
        if !self.course.csi_stopped {
            self.creations();
            self.other_volumes();
        }
        if !self.course.ccm_stopped {
            self.other_balancers();
        }
        // Without a finalizer, nothing holds the Service.
        let hasty = &self.other.without_finalizer;
        let goes = |one: &Service| one.meta.deleting.is_some() && hasty.contains(&one.meta.uid);
        let gone = self.cluster.services.iter().filter(|one| goes(one));
        let leaving: Vec<String> = gone.map(|one| balancer(&one.meta.name)).collect();
        self.cluster.services.retain(|one| !goes(one));
        self.other.leaving.extend(leaving);
        let creates = self.course.recreates && self.run.status.phase == Phase::Deleting;
        if creates && self.made == 0 {
            self.made = 1;
            self.disk("late");
        }
    }

    /// The snapshot of a VolumeSnapshot goes before its content, and this before the VolumeSnapshot.
    fn other_snapshots(&mut self) {
        let deleted: Vec<_> =
            self.cluster.snapshots.iter().filter(|one| one.meta.deleting.is_some()).cloned().collect();
        for snapshot in deleted {
            let content = self
                .cluster
                .contents
                .iter_mut()
                .find(|one| Some(&one.meta.name) == snapshot.content.as_ref());
            if let Some(content) = content.filter(|one| !one.retain) {
                content.meta.deleting = Some(self.now);
                if !self.other.is_due(&content.meta.uid, self.reconcile) {
                    continue;
                }
                self.other.resources.remove(content.id.as_deref().unwrap());
                let gone = content.meta.uid.clone();
                self.cluster.contents.retain(|one| one.meta.uid != gone);
            }
            self.cluster.snapshots.retain(|one| one.meta.uid != snapshot.meta.uid);
        }
    }

    /// Volumes that were being created when their claim was deleted: the driver completes them, and gives them to no one.
    fn creations(&mut self) {
        for uid in self.other.creating.clone() {
            let is_gone = self.cluster.claims.iter().all(|claim| claim.meta.uid != uid);
            if !is_gone || !self.other.is_due(&uid, self.reconcile) {
                continue;
            }
            self.other.creating.remove(&uid);
            let id = format!("{DRIVER}/vol-of-{uid}");
            self.other.resources.insert(id.clone());
            let meta = meta("", &format!("pvc-{uid}"));
            self.cluster.volumes.push(Volume {
                meta,
                id,
                retain: false,
                claim: Some(uid),
                phase: "Released".into(),
            });
        }
    }

    /// external-provisioner: the volume goes, then the PersistentVolume is deleted, and at last its finalizers are removed.
    fn other_volumes(&mut self) {
        let (now, reconcile) = (self.now, self.reconcile);
        self.cluster.volumes.retain(|one| one.meta.deleting.is_none());
        for volume in self.cluster.volumes.iter_mut().filter(|one| one.phase == "Released" && !one.retain) {
            if self.other.is_due(&volume.meta.uid, reconcile) {
                assert!(
                    !self.untouchable.contains(&volume.id),
                    "the driver was made to delete {}",
                    volume.id
                );
                self.other.resources.remove(&volume.id);
                volume.meta.deleting = Some(now);
            }
        }
    }

    /// The finalizer `service.kubernetes.io/load-balancer-cleanup` is removed when the load balancer is gone.
    fn other_balancers(&mut self) {
        for id in self.other.leaving.clone() {
            if self.other.is_due(&id, self.reconcile) {
                self.other.leaving.remove(&id);
                self.other.resources.remove(&id);
            }
        }
        let goes = |one: &&Service| one.former || one.meta.deleting.is_some();
        let deleted: Vec<Service> = self.cluster.services.iter().filter(goes).cloned().collect();
        for service in deleted {
            let uid = &service.meta.uid;
            if !self.other.without_finalizer.contains(uid) && self.other.is_due(uid, self.reconcile) {
                self.other.resources.remove(&balancer(&service.meta.name));
                self.cluster.services.retain(|one| one.meta.uid != *uid);
            }
        }
    }
}

/// ID of the load balancer of a Service.
fn balancer(service: &str) -> String {
    format!("lb-{service}")
}
