//! A simulation: objects with finalizers of several programs, bindings, Deorbits, and an API server that removes an object without
//! finalizers.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::names;
use crate::trigger::action::Action;
use crate::trigger::plan::{Decision, needs_body, plan};
use crate::trigger::snapshot::{
    Binding, Deorbit, End, Machine, ObjectId, PhaseIs, Rules, Snapshot, Target, Targets,
};
use crate::trigger::template::Template;

pub const OURS: &str = "deorbiter";
pub const OTHERS: &str = "launchctl";
pub const PROTECT: &str = "kubernikus.cloud.sap/termination-protection";

#[derive(Clone, Debug)]
pub struct Object {
    pub name: String,
    pub uid: String,
    pub version: u64,
    pub finalizers: Vec<String>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub terminating: bool,
    pub phase: String,
}

#[derive(Clone, Debug)]
pub struct Bound {
    pub name: String,
    pub created: i64,
    pub terminating: bool,
    pub guarded: bool,
    pub label: String,
    pub when: Option<&'static str>,
    pub finalizer_when: Option<&'static str>,
    /// It adds the hook to the Machines.
    pub hooks: bool,
    pub rules: Result<(), String>,
}

#[derive(Clone, Debug, Default)]
pub struct TestEnv {
    pub objects: BTreeMap<String, Object>,
    pub bindings: BTreeMap<String, Bound>,
    pub deorbits: Vec<Deorbit>,
    /// By name. A Machine that is being deleted is gone as soon as it has no hook.
    pub machines: BTreeMap<String, Machine>,
    /// Every Deorbit that was ever created: UID of its object, and how it ended.
    pub ended: BTreeMap<String, End>,
    pub uids: u64,
    /// deorbiter stops after each creation of a Deorbit, before its UID is recorded.
    pub stops_after_creation: bool,
    pub last_gone: Vec<Object>,
}

impl TestEnv {
    pub fn uid(&mut self) -> String {
        self.uids += 1;
        format!("uid-{}", self.uids)
    }

    pub fn binding(&mut self, name: &str, label: &str) -> &mut Bound {
        let created = i64::try_from(self.bindings.len()).unwrap();
        let bound = Bound {
            name: name.into(),
            created,
            terminating: false,
            guarded: false,
            label: label.into(),
            when: None,
            finalizer_when: None,
            hooks: false,
            rules: Ok(()),
        };
        self.bindings.entry(name.into()).or_insert(bound)
    }

    pub fn object(&mut self, name: &str, label: &str) -> &mut Object {
        let uid = self.uid();
        let object = Object {
            name: name.into(),
            uid,
            version: 1,
            finalizers: vec![OTHERS.into()],
            labels: BTreeMap::from([(label.into(), "x".into())]),
            annotations: BTreeMap::new(),
            terminating: false,
            phase: "Running".into(),
        };
        self.objects.entry(name.into()).or_insert(object)
    }

    pub fn machine(&mut self, name: &str, cluster: &str) {
        let uid = self.uid();
        let object = ObjectId {
            api_version: "cluster.x-k8s.io/v1beta1",
            kind: "Machine",
            namespace: Some("team".into()),
            name: name.into(),
            uid,
        };
        let machine = Machine { object, cluster: cluster.into(), terminating: false, hook: None };
        self.machines.entry(name.into()).or_insert(machine);
    }

    pub fn delete_machine(&mut self, name: &str) {
        if let Some(machine) = self.machines.get_mut(name) {
            machine.terminating = true;
        }
        self.collect();
    }

    /// Whether the object of this name has the finalizer.
    fn is_bound(&self, name: &str) -> bool {
        self.objects.get(name).is_some_and(|object| object.finalizers.iter().any(|one| one == OURS))
    }

    pub fn edit(&mut self, name: &str, edit: impl FnOnce(&mut Object)) {
        if let Some(object) = self.objects.get_mut(name) {
            edit(object);
            object.version += 1;
        }
        self.collect();
    }

    /// The API server removes objects that are being deleted and have no finalizer.
    pub fn collect(&mut self) {
        let gone: Vec<String> = self
            .objects
            .values()
            .filter(|object| object.terminating && object.finalizers.is_empty())
            .map(|object| object.name.clone())
            .collect();
        for name in gone {
            self.last_gone.extend(self.objects.remove(&name));
        }
        self.bindings.retain(|_, binding| !binding.terminating || binding.guarded);
        self.machines.retain(|_, machine| !machine.terminating || machine.hook.is_some());
    }

    pub fn snapshot(&self) -> Snapshot {
        let bindings = self.bindings.values().map(|bound| self.bound(bound)).collect();
        Snapshot { bindings, deorbits: self.deorbits.clone() }
    }

    fn bound(&self, bound: &Bound) -> Binding {
        let phase = |equals: &str| PhaseIs { path: ".status.phase".parse().unwrap(), equals: equals.into() };
        let template =
            json!({ "spec": { "kubeconfig": { "secretRef": { "name": "{.metadata.name}-kubeconfig" } } } });
        let rules = Rules {
            finalizer_when: bound.finalizer_when.map(phase),
            when: bound.when.map(phase),
            protections: BTreeSet::from([PROTECT.to_owned()]),
            template: Template::new(&serde_json::from_value(template).unwrap()).unwrap(),
        };
        let mut binding = Binding {
            name: bound.name.clone(),
            uid: format!("uid-of-{}", bound.name),
            generation: Some(1),
            created: Timestamp::from_second(bound.created).unwrap(),
            terminating: bound.terminating,
            guarded: bound.guarded,
            finalizer: OURS.into(),
            rules: bound.rules.clone().map(|()| rules),
            kind: ("kubernikus.sap.cc".into(), "Kluster".into()),
            targets: Targets::Whole(Vec::new()),
            hooks: bound.hooks,
            machines: if bound.hooks { self.machines.values().cloned().collect() } else { Vec::new() },
            status: Default::default(),
        };
        let targets = self
            .objects
            .values()
            .map(|object| {
                let mut target = self.target(object, &bound.label);
                if needs_body(&binding, &target) {
                    target.body = Some(body(object));
                }
                target
            })
            .collect();
        binding.targets = Targets::Whole(targets);
        binding
    }

    fn target(&self, object: &Object, label: &str) -> Target {
        Target {
            object: ObjectId {
                api_version: "kubernikus.sap.cc/v1",
                kind: "Kluster",
                namespace: Some("team".into()),
                name: object.name.clone(),
                uid: object.uid.clone(),
            },
            resource_version: object.version.to_string(),
            finalizers: object.finalizers.clone(),
            bound_by: object.annotations.get(names::BOUND_BY_ANNOTATION).cloned(),
            deorbit_uid: object.annotations.get(names::DEORBIT_UID_ANNOTATION).cloned(),
            terminating: object.terminating,
            selected: object.labels.contains_key(label),
            annotations: object.annotations.clone(),
            body: None,
            refused: None,
        }
    }

    pub fn plan(&self) -> Decision {
        plan(&self.snapshot())
    }

    /// Executes up to so many steps of the plan; returns how many it had.
    pub fn reconcile(&mut self, limit: usize) -> usize {
        let steps = self.plan().plan.steps;
        for step in steps.iter().take(limit) {
            self.act(&step.action);
        }
        steps.len()
    }

    pub fn settle(&mut self) {
        for _ in 0..30 {
            if self.reconcile(usize::MAX) == 0 {
                return;
            }
        }
        panic!("no end: {:?}", self.plan().plan);
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::GuardBinding { binding, .. } => {
                self.bindings.get_mut(binding).unwrap().guarded = true;
            }
            Action::ReleaseBinding { binding, .. } => {
                let held = |object: &Object| {
                    object.annotations.get(names::BOUND_BY_ANNOTATION) == Some(binding)
                        && object.finalizers.iter().any(|one| one == OURS)
                };
                assert!(!self.objects.values().any(held), "{binding} leaves objects behind");
                let hooked = |machine: &Machine| machine.hook.as_ref() == Some(binding);
                assert!(!self.machines.values().any(hooked), "{binding} leaves Machines behind");
                self.bindings.get_mut(binding).unwrap().guarded = false;
            }
            Action::Bind { target, binding, finalizer } => self.edit(&target.name, |object| {
                assert!(!object.terminating);
                if !object.finalizers.contains(finalizer) {
                    object.finalizers.push(finalizer.clone());
                }
                object.annotations.insert(names::BOUND_BY_ANNOTATION.into(), binding.clone());
            }),
            Action::Release { target, finalizer, .. } => self.edit(&target.name, |object| {
                object.finalizers.retain(|one| one != finalizer);
                object.annotations.remove(names::BOUND_BY_ANNOTATION);
                object.annotations.remove(names::DEORBIT_UID_ANNOTATION);
            }),
            Action::HookMachine { machine, binding } => {
                assert!(self.is_bound(&self.machines[&machine.name].cluster), "nothing would remove it");
                self.machines.get_mut(&machine.name).unwrap().hook = Some(binding.clone());
            }
            Action::UnhookMachine { machine, cluster, .. } => {
                let machine = self.machines.get_mut(&machine.name).unwrap();
                machine.hook = None;
                let waits = self.objects.get(cluster).is_some_and(|object| {
                    object.terminating && object.annotations.contains_key(names::BOUND_BY_ANNOTATION)
                });
                assert!(!(waits && self.is_bound(cluster)), "{cluster} loses a server");
            }
            Action::RecordDeorbit { target, uid, .. } => {
                self.edit(&target.name, |object| {
                    object.annotations.insert(names::DEORBIT_UID_ANNOTATION.into(), uid.clone());
                });
            }
            Action::CreateDeorbit { target, namespace, name, resource_version, manifest, .. } => {
                let object = &self.objects[&target.name];
                assert!(object.terminating && object.version.to_string() == *resource_version);
                assert!(!object.annotations.contains_key(PROTECT), "a protected object is deorbited");
                assert_eq!(
                    manifest["spec"]["kubeconfig"]["secretRef"]["name"],
                    format!("{}-kubeconfig", target.name)
                );
                assert!(!self.deorbits.iter().any(|one| one.name == *name), "two of one name");
                let uid = self.uid();
                self.deorbits.push(Deorbit {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    uid: uid.clone(),
                    spec: serde_json::from_value(manifest["spec"].clone()).unwrap(),
                    target_uid: manifest["metadata"]["labels"][names::TARGET_UID_LABEL]
                        .as_str()
                        .map(Into::into),
                    terminating: false,
                    end: None,
                });
                if !self.stops_after_creation {
                    self.edit(&target.name, |object| {
                        object.annotations.insert(names::DEORBIT_UID_ANNOTATION.into(), uid);
                    });
                }
            }
            Action::AbortDeorbit { uid, .. } => {
                let deorbit = self.deorbits.iter_mut().find(|one| one.uid == *uid).unwrap();
                assert_eq!(deorbit.end, None, "only what runs is aborted");
                deorbit.terminating = true;
            }
        }
        self.collect();
    }

    /// A Deorbit that no binding created, with the label of an object.
    pub fn forge(&mut self, name: &str) {
        let Some(object) = self.objects.get(name).cloned() else { return };
        let uid = self.uid();
        self.deorbits.push(Deorbit {
            namespace: "team".into(),
            name: format!("forged-{uid}"),
            uid,
            target_uid: Some(object.uid),
            spec: serde_json::from_value(json!({ "kubeconfig": { "secretRef": { "name": "other" } } }))
                .unwrap(),
            terminating: false,
            end: Some(End::Complete),
        });
    }

    /// Every running Deorbit ends like this; every aborted one is removed.
    pub fn end_deorbits(&mut self, end: End) {
        self.deorbits.retain(|one| !one.terminating);
        for deorbit in &mut self.deorbits {
            if deorbit.end.is_none() {
                deorbit.end = Some(end);
            }
            if let (Some(uid), Some(end)) = (&deorbit.target_uid, deorbit.end) {
                self.ended.insert(uid.clone(), end);
            }
        }
    }
}

pub fn body(object: &Object) -> Value {
    json!({ "metadata": { "name": object.name, "namespace": "team" }, "status": { "phase": object.phase } })
}
