//! A simulated cluster with its project. It responds to actions as the real ones do, and checks each action against the invariants.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::api::deorbit::{self, Deorbit, DeorbitSpec, Kind, OrphanPolicy, Phase};
use common::cloud::openstack::ApplicationCredential;
use common::conditions::Status;
use jiff::Timestamp;
use serde_json::json;

use crate::names;
use crate::observe::snapshot::*;
use crate::plan::action::{Form, ObjectKind};
use crate::plan::{self, Act, Decision};
use crate::record::Recorded;
use crate::settings::Settings;

mod environment;
mod other;

pub use other::{DRIVER, OtherCloud};

/// The faults and disturbances of one simulation; none by default. Numbers and ranges count reconciliations.
#[derive(Clone, Debug, Default)]
pub struct Course {
    pub csi_stopped: bool,
    pub ccm_stopped: bool,
    /// A claim is created while the run waits.
    pub recreates: bool,
    pub outage: std::ops::Range<usize>,
    pub cloud_outage: std::ops::Range<usize>,
    /// The target, or its kubeconfig, refuses.
    pub refused: std::ops::Range<usize>,
    /// OpenStack, or its login, refuses.
    pub cloud_refused: std::ops::Range<usize>,
    /// The process stops after the status is stored.
    pub dies_before_acts: Option<usize>,
    /// The process stops after its first action.
    pub dies_after_first: Option<usize>,
    /// A user deletes the Deorbit.
    pub aborted: Option<usize>,
    /// UID of an object whose deletion the API server refuses.
    pub refuses: Option<String>,
    /// So many times the block cannot be lifted.
    pub clings: usize,
    /// A claim is created in the first reconciliation of this phase.
    pub makes: Option<Phase>,
    /// Another client creates a route again when it is removed.
    pub recreates_routes: bool,
    /// So many times Keystone refuses to delete the application credential.
    pub credential_stays: usize,
}

#[derive(Debug)]
pub struct TestEnv {
    pub run: Run,
    pub cluster: Cluster,
    pub cloud: Option<Cloud>,
    /// The cloud of a run with any provider, which deorbiter does not read.
    pub other: OtherCloud,
    /// UID of the management cluster's namespace kube-system.
    pub management: String,
    pub now: Timestamp,
    pub reconcile: usize,
    pub course: Course,
    pub failures: BTreeMap<String, String>,
    /// IDs and UIDs that must never be deleted.
    pub untouchable: Vec<String>,
    pub acts: Vec<String>,
    pub gone: bool,
    /// The application credential of the login was deleted.
    pub credential_gone: bool,
    made: usize,
}

pub fn spec(change: serde_json::Value) -> DeorbitSpec {
    let spec = json!({"kubeconfig": {"secretRef": {"name": "prod"}}, "clusterName": "prod"});
    serde_json::from_value(with(spec, change)).unwrap()
}

/// An object with the fields of `change` set.
pub fn with(mut object: serde_json::Value, change: serde_json::Value) -> serde_json::Value {
    if let serde_json::Value::Object(change) = change {
        object.as_object_mut().unwrap().extend(change);
    }
    object
}

pub fn with_cloud() -> serde_json::Value {
    json!({"identityRef": {"name": "c"}})
}

/// A simulation with OpenStack, and with this in the spec.
pub fn proven(change: serde_json::Value) -> TestEnv {
    TestEnv::new(spec(with(json!({"openstack": with_cloud()}), change)))
}

/// The spec of OpenStack that deletes the application credential.
pub fn without_credential() -> serde_json::Value {
    with(with_cloud(), json!({"applicationCredential": "Delete"}))
}

/// A simulation that deletes the application credential, and with this in the spec.
pub fn deleting_credential(change: serde_json::Value) -> TestEnv {
    let mut env = proven(with(json!({"openstack": without_credential()}), change));
    env.cloud.as_mut().unwrap().credential = Some(ApplicationCredential {
        id: "cred".into(),
        user: "user".into(),
        is_unrestricted: true,
        permits_delete: true,
    });
    env
}

pub fn meta(namespace: &str, name: &str) -> Meta {
    Meta {
        namespace: namespace.into(),
        name: name.into(),
        uid: format!("uid-{name}"),
        version: "1".into(),
        ..Meta::default()
    }
}

impl TestEnv {
    pub fn new(spec: DeorbitSpec) -> TestEnv {
        let cloud = spec.openstack.is_some().then(Cloud::default);
        TestEnv {
            run: Run {
                namespace: "ns".into(),
                uid: "run-uid".into(),
                generation: Some(1),
                ..Run::new(&Deorbit::new("prod", spec))
            },
            cluster: Cluster {
                uid: Some("target".into()),
                classes: ["cinder".to_owned()].into(),
                block: Block { policies: true, ..Block::default() },
                ..Cluster::default()
            },
            cloud,
            other: OtherCloud::default(),
            management: "management".into(),
            now: Timestamp::from_second(1_800_000_000).unwrap(),
            reconcile: 0,
            course: Course::default(),
            failures: BTreeMap::new(),
            untouchable: Vec::new(),
            acts: Vec::new(),
            gone: false,
            credential_gone: false,
            made: 0,
        }
    }

    pub fn claim(&mut self, name: &str) -> &mut Claim {
        let id = format!("vol-{name}");
        self.cluster.volumes.push(Volume {
            meta: meta("", &format!("pv-{name}")),
            id: id.clone(),
            claim: Some(format!("uid-{name}")),
            phase: "Bound".into(),
            retain: false,
        });
        if let Some(cloud) = &mut self.cloud {
            let name = format!("pv-{name}");
            cloud
                .volumes
                .insert(id, BlockStorage { name, status: "available".into(), ..BlockStorage::default() });
        }
        self.cluster.claims.push(Claim {
            meta: meta("a", name),
            volume: Some(format!("pv-{name}")),
            class: Some("cinder".into()),
            provisioner_in_scope: None,
        });
        self.cluster.claims.last_mut().unwrap()
    }

    /// A claim that is not provisioned yet.
    pub fn unbound_claim(&mut self, name: &str) {
        self.claim(name).volume = None;
        let volume = self.cluster.volumes.pop().unwrap();
        if let Some(cloud) = &mut self.cloud {
            cloud.volumes.remove(&volume.id);
        }
    }

    pub fn volume(&mut self, name: &str) -> &mut Volume {
        let name = format!("pv-{name}");
        self.cluster.volumes.iter_mut().find(|one| one.meta.name == name).unwrap()
    }

    pub fn cinder(&mut self, name: &str) -> &mut BlockStorage {
        self.cloud.as_mut().unwrap().volumes.get_mut(&format!("vol-{name}")).unwrap()
    }

    pub fn service(&mut self, name: &str) -> &mut Service {
        let id = format!("lb-{name}");
        let (tag, port) = (names::service_tag("prod", "a", name), Some(format!("port-{name}")));
        if let Some(cloud) = &mut self.cloud {
            let balancer = LoadBalancer {
                name: tag.clone(),
                description: format!("Kubernetes external service a/{name} from cluster prod"),
                provisioning_status: "ACTIVE".into(),
                tags: vec![tag],
                vip_address: Some(format!("10.0.0.{}", cloud.load_balancers.len() + 1)),
                vip_port_id: port.clone(),
                ..LoadBalancer::default()
            };
            cloud.load_balancers.insert(id.clone(), balancer);
            let description =
                format!("Floating IP for Kubernetes external service a/{name} from cluster prod");
            let ip = FloatingIp {
                floating_ip_address: "203.0.113.1".into(),
                description,
                port_id: port,
                ..FloatingIp::default()
            };
            cloud.floating_ips.insert(format!("fip-{name}"), ip);
        }
        let service = Service { meta: meta("a", name), load_balancer: Some(id), ..Service::default() };
        self.cluster.services.push(service);
        self.cluster.services.last_mut().unwrap()
    }

    pub fn snapshot(&mut self, name: &str, claim: &str) {
        let id = format!("snap-{name}");
        self.cluster.snapshots.push(VolumeSnapshot {
            meta: meta("a", name),
            content: Some(format!("content-{name}")),
            claim: Some(claim.into()),
        });
        if let Some(cloud) = &mut self.cloud {
            let snapshot = BlockStorage {
                name: name.into(),
                status: "available".into(),
                volume: format!("vol-{claim}"),
                ..BlockStorage::default()
            };
            cloud.snapshots.insert(id.clone(), snapshot);
        }
        self.cluster.contents.push(Content {
            meta: meta("", &format!("content-{name}")),
            id: Some(id),
            retain: false,
            volume: Some(format!("vol-{claim}")),
            snapshot: Some(format!("uid-{name}")),
        });
    }

    pub fn balancer(&mut self, name: &str) -> &mut LoadBalancer {
        self.cloud.as_mut().unwrap().load_balancers.get_mut(&format!("lb-{name}")).unwrap()
    }

    pub fn stale_leases(&mut self) {
        let renewed = Some(self.now - Duration::from_secs(3600));
        self.cluster.providers =
            vec![Provider { name: "cloud-controller-manager".into(), renewed, seconds: 15 }];
    }

    pub fn snapshot_now(&self) -> Snapshot {
        let (blind, dark) = (
            self.course.outage.contains(&self.reconcile),
            self.course.cloud_outage.contains(&self.reconcile),
        );
        let mut cloud = self.cloud.clone();
        if let Some(cloud) = &mut cloud {
            cloud.whole = self.run.book.discovering;
            if !matches!(self.run.status.phase, Phase::Inventory | Phase::Finishing) {
                cloud.routes = None;
            }
        }
        Snapshot {
            run: self.run.clone(),
            cluster: if self.course.refused.contains(&self.reconcile) {
                Err(Unread::Refused("Unauthorized".into()))
            } else if self.cluster.block.forbidden && plan::block::may_exist(&self.run) {
                // One that may exist has to be read, since it has to be lifted.
                Err(Unread::Refused("403".into()))
            } else if self.run.spec.cluster_gone.is_some() {
                Ok(Cluster::gone())
            } else if blind {
                Err(Unread::NoResponse("connection refused".into()))
            } else {
                self.run.verify_identity(self.cluster.clone(), Ok(&self.management))
            },
            cloud: cloud.map(|cloud| {
                if self.course.cloud_refused.contains(&self.reconcile) {
                    Err(Unread::Refused("401".into()))
                } else if dark {
                    Err(Unread::Failing("503".into()))
                } else if self.credential_gone {
                    Err(Unread::CredentialGone("404".into()))
                } else {
                    self.run.verify_project(cloud).and_then(|cloud| self.run.verify_credential(cloud))
                }
            }),
            failures: self.failures.clone(),
        }
    }

    /// One reconciliation: plan, store, apply; then the controllers of the cluster run.
    pub fn step(&mut self) -> Decision {
        if self.course.aborted == Some(self.reconcile) {
            self.run.deleting = Some(self.now);
        }
        let snapshot = self.snapshot_now();
        let decision = plan::plan(&Settings::default(), &snapshot, self.now);
        for old in &self.run.records {
            let stays = |new: &Arc<Recorded>| {
                new.kind == old.kind && new.uid == old.uid && (old.id.is_none() || new.id == old.id)
            };
            assert!(decision.records.iter().any(stays), "forgotten: {old:?}");
        }
        let refusal = |unread: Option<&Unread>| unread.is_some_and(|unread| !unread.is_outage());
        let cloud_unread = snapshot.cloud.as_ref().and_then(|cloud| cloud.as_ref().err());
        let refused = refusal(snapshot.cluster.as_ref().err()) || refusal(cloud_unread);
        // Once everything else is gone and the credential is being deleted, no refusal holds the run.
        let is_over = self.run.status.phase.is_final() || self.run.book.credential.is_some();
        if refused && self.run.deleting.is_none() && !is_over {
            assert!(decision.plan.steps.is_empty(), "it acts in a refusal: {}", decision.plan);
            assert_eq!(decision.status.phase, self.run.status.phase, "a refusal moves the run");
        }
        if self.run.spec.provider == deorbit::Provider::Any {
            Self::assert_no_cloud_is_claimed(&decision);
        }
        let stored = self.run.records.clone();
        self.run.status = decision.status.clone();
        // In Pending nothing is stored but the status.
        if self.run.lost.is_none() && decision.status.phase != Phase::Pending {
            self.run.book = decision.book.clone();
            self.run.records = decision.records.clone();
        }
        let was_blocked = self.cluster.block.any();
        for (number, step) in decision.plan.steps.iter().enumerate() {
            let died = self.course.dies_before_acts == Some(self.reconcile);
            if died || (number > 0 && self.course.dies_after_first == Some(self.reconcile)) {
                break;
            }
            self.acts.push(step.to_string());
            self.act(&step.action.act, &stored, snapshot.cluster.is_ok());
        }
        // A block outlives every reconciliation, but not its Deorbit.
        if was_blocked && self.run.deleting.is_none() && !self.run.spec.cluster_survives {
            assert!(self.cluster.block.any(), "the block was lifted: {}", decision.plan);
        }
        self.environment();
        self.reconcile += 1;
        self.now += decision.requeue_after.unwrap_or(Duration::ZERO).max(Duration::from_secs(1));
        decision
    }

    fn act(&mut self, act: &Act, stored: &[Arc<Recorded>], reachable: bool) {
        let is_local = matches!(act, Act::RemoveFinalizer | Act::DeleteDeorbit | Act::Unblock { .. });
        assert!(!self.credential_gone || is_local, "after the credential: {act:?}");
        match act {
            Act::AddFinalizer => self.run.held = true,
            Act::RemoveFinalizer => {
                self.run.held = false;
                self.gone = self.run.deleting.is_some();
            }
            Act::DeleteDeorbit => self.run.deleting = Some(self.now),
            Act::Block { form: Form::Policy } => {
                self.cluster.block.policy = Some(Version::default());
                self.cluster.block.binding = Some(Version::default());
            }
            Act::Block { form: Form::Webhook } => self.cluster.block.webhook = Some(Version::default()),
            Act::Unblock { .. } if self.course.clings > 0 => {
                self.course.clings -= 1;
                self.failures.insert(key("Block", "lift"), "503".into());
            }
            Act::Unblock { name, .. } => {
                self.failures.remove(&key("Block", "lift"));
                assert_eq!(*name, names::block(&self.run.uid));
                self.cluster.block = Block { policies: true, ..Block::default() };
            }
            Act::SetDeletePolicy { object } => {
                for volume in self.cluster.volumes.iter_mut().filter(|one| one.meta.uid == object.uid) {
                    volume.retain = false;
                }
                for content in self.cluster.contents.iter_mut().filter(|one| one.meta.uid == object.uid) {
                    content.retain = false;
                }
            }
            Act::DeleteObject { object, id } => {
                assert!(reachable && !self.run.spec.dry_run);
                self.assert_proven(act);
                let known = |one: &Arc<Recorded>| {
                    one.kept.is_none() && one.id == *id && (one.uid == object.uid || id.is_some())
                };
                let lawful = object.kind == ObjectKind::Pod || stored.iter().any(known);
                assert!(lawful, "deleted without its ID on record: {act:?}");
                let ours = id.iter().chain([&object.uid]).all(|one| !self.untouchable.contains(one));
                assert!(ours, "not ours to delete: {act:?}");
                if self.course.refuses.as_ref() == Some(&object.uid) {
                    self.failures.insert(key("Object", &object.uid), "forbidden".into());
                    return;
                }
                let now = self.now;
                for meta in self.metas().filter(|meta| meta.uid == object.uid) {
                    meta.deleting = meta.deleting.or(Some(now));
                }
            }
            Act::DeleteInCloud { kind, id, .. } => {
                assert_eq!(self.run.spec.orphan_policy, OrphanPolicy::Delete);
                assert!(self.run.book.proof.covers(*kind), "the login is not proven: {act:?}");
                self.assert_proven(act);
                let known = |one: &Arc<Recorded>| {
                    one.kind == *kind && one.id.as_ref() == Some(id) && one.kept.is_none()
                };
                assert!(stored.iter().any(known), "deleted without its ID on record: {act:?}");
                assert!(!self.untouchable.contains(id), "not ours to delete: {act:?}");
                let cloud = self.cloud.as_mut().unwrap();
                let state = cloud.volumes.get(id).map(|one| one.status.as_str());
                assert_ne!(state, Some("error_deleting"), "Cinder refuses it: {act:?}");
                match kind {
                    Kind::Volume if cloud.snapshots.values().any(|one| one.volume == *id) => {}
                    Kind::Volume => drop(cloud.volumes.remove(id)),
                    Kind::Snapshot => drop(cloud.snapshots.remove(id)),
                    Kind::LoadBalancer => {
                        let name = &cloud.load_balancers[id].name;
                        let made = [names::SERVICE_PREFIX, "kube_ingress_"];
                        assert!(made.iter().any(|prefix| name.starts_with(prefix)), "{name}");
                        let gone = cloud.load_balancers.remove(id).unwrap();
                        // Octavia deletes the port, and with it the association of the floating IP.
                        for ip in cloud.floating_ips.values_mut().filter(|ip| ip.port_id == gone.vip_port_id)
                        {
                            ip.port_id = None;
                        }
                    }
                    Kind::FloatingIP => drop(cloud.floating_ips.remove(id)),
                    Kind::SecurityGroup => drop(cloud.security_groups.remove(id)),
                }
            }
            Act::DeleteApplicationCredential { id, .. } => {
                let Run { book, spec, status, deleting, .. } = &self.run;
                assert_eq!(book.credential.as_ref(), Some(id), "its ID is not on record");
                assert_eq!(
                    (status.phase, spec.dry_run, book.over, *deleting),
                    (Phase::Finishing, false, false, None)
                );
                let cloud = self.cloud.as_ref().unwrap();
                let desired = self.run.records.iter().filter(|one| one.kept.is_none() && !one.shared);
                let left: Vec<_> = desired.filter(|one| cloud.shows(one)).collect();
                assert!(book.proof.any() && left.is_empty(), "something is left: {left:?}");
                if self.course.credential_stays > 0 {
                    self.course.credential_stays -= 1;
                    self.failures.insert(key("Cloud", id), "403".into());
                    return;
                }
                self.credential_gone = true;
            }
            Act::RemoveRoutes { recorded, stale, .. } => {
                assert!(recorded.is_empty() || self.run.book.proof.any(), "the login is not proven: {act:?}");
                let Some(Ok(routes)) = &mut self.cloud.as_mut().unwrap().routes else { panic!("{act:?}") };
                routes.all.retain(|one| !recorded.contains(one) && !stale.contains(one));
                routes.stale.retain(|one| !recorded.contains(one) && !stale.contains(one));
            }
        }
    }

    /// No delete before identity is proven.
    fn assert_proven(&self, act: &Act) {
        if let Some(gone) = &self.run.spec.cluster_gone {
            let project = self.cloud.as_ref().map(|cloud| cloud.project.as_str());
            assert_eq!(project, Some(gone.project_id.as_str()), "another project: {act:?}");
            assert!(matches!(act, Act::DeleteInCloud { .. }), "there is no cluster: {act:?}");
            return;
        }
        assert!(self.run.book.cluster.is_some(), "the cluster is unknown: {act:?}");
        let is_evidence =
            |one: &Arc<Recorded>| one.named && matches!(one.kind, Kind::Volume | Kind::LoadBalancer);
        let evidence = self.run.records.iter().any(is_evidence)
            || self.cluster.known_nodes().any(|node| node.server.is_some());
        assert!(self.cloud.is_none() || self.run.book.proof.any() || !evidence, "not proven: {act:?}");
    }

    fn metas(&mut self) -> impl Iterator<Item = &mut Meta> {
        let cluster = &mut self.cluster;
        (cluster.claims.iter_mut().map(|one| &mut one.meta))
            .chain(cluster.volumes.iter_mut().map(|one| &mut one.meta))
            .chain(cluster.snapshots.iter_mut().map(|one| &mut one.meta))
            .chain(cluster.contents.iter_mut().map(|one| &mut one.meta))
            .chain(cluster.services.iter_mut().map(|one| &mut one.meta))
            .chain(cluster.ingresses.iter_mut().map(|one| &mut one.meta))
            .chain(cluster.pods.iter_mut().map(|one| &mut one.meta))
    }

    /// Reconciles until no further reconciliation is planned. Returns the last decision.
    pub fn finish(&mut self) -> Decision {
        for _ in 0..20_000 {
            let decision = self.step();
            let ended = self.run.status.phase.is_final() || self.run.status.phase == Phase::Planned;
            let over = ended && decision.requeue_after.is_none() && decision.plan.is_empty();
            if self.gone || over || (self.run.deleting.is_some() && !self.run.held) {
                return decision;
            }
        }
        panic!(
            "it never ends: {:?}\n{:#?}",
            self.run.status,
            self.acts.iter().rev().take(10).collect::<Vec<_>>()
        );
    }

    /// Reconciles until the run is over, even if a block may still exist.
    pub fn finish_blind(&mut self) {
        for _ in 0..10_000 {
            self.step();
            if self.run.status.phase.is_final() {
                return;
            }
        }
        panic!("{:?}", self.run.status);
    }

    /// Reconciles until this phase is stored.
    pub fn until(&mut self, phase: Phase) {
        for _ in 0..1000 {
            if self.run.status.phase >= phase {
                return;
            }
            self.step();
        }
        panic!("{phase} is not reached: {:?}", self.run.status);
    }

    /// A Node with a server, which the project has or not.
    pub fn node(&mut self, name: &str, address: &str, is_here: bool) {
        let server = format!("server-{name}");
        if let (Some(cloud), true) = (&mut self.cloud, is_here) {
            cloud.own_server = Some(server.clone());
        }
        self.cluster.nodes.get_or_insert_default().push(Node {
            name: name.into(),
            server: Some((String::new(), server)),
            addresses: vec![address.parse().unwrap()],
        });
    }

    /// The routes of the router.
    pub fn routes(&mut self) -> &mut Routes {
        let routes = &mut self.cloud.as_mut().unwrap().routes;
        routes.get_or_insert_with(|| Ok(Routes::default())).as_mut().unwrap()
    }

    /// Status and reason of a condition.
    pub fn condition(&self, kind: &str) -> (Status, String) {
        let found = self.run.status.conditions.iter().find(|one| one.kind == kind).unwrap();
        (found.status, found.reason.clone())
    }

    /// How many deletes there were.
    pub fn deletes(&self) -> usize {
        self.acts.iter().filter(|act| act.starts_with("delete ")).count()
    }

    pub fn did(&self, what: &str) -> usize {
        self.acts.iter().filter(|act| act.contains(what)).count()
    }
}
