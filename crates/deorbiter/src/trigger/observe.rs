//! The only reader of the triggers: caches become a [`Snapshot`]. A whole object is read only where the plan needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::api::deorbit::{self, Phase};
use common::api::deorbit_binding::{DeorbitBinding, MachineHook};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::core::{Selector, SelectorExt as _};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use super::apply;
use super::plan::needs_body;
use super::rules::{self, Selection};
use super::snapshot::{
    Binding, Deorbit, End, Machine, ObjectId, Refused, Snapshot, Target, Targets, lasting,
};
use super::watches::{GroupVersionKindKey, Known, Meta, Watches};
use crate::error::Error;
use crate::names;

/// Observes for the plan.
pub struct Observer {
    client: Client,
    /// The watches of the kinds.
    pub watches: Watches,
    /// Whether the last observation could not read the objects of a binding, and the next one should come soon.
    pub unread: bool,
    /// Whole objects, by UID.
    bodies: BTreeMap<String, Body>,
    /// Why the API server refused the Deorbit of an object, by its UID. Valid until the object or the binding changes.
    refusals: BTreeMap<String, Refusal>,
}

/// After this time a refused Deorbit is tried again: a right, a quota or a policy can be fixed without a change of object and binding. An
/// object that stays refused costs one request each time.
const REFUSED_FOR: Duration = Duration::from_secs(30);

/// A whole object. Its metadata, which the watch has of each object, is a small part of it.
struct Body {
    resource_version: String,
    object: Value,
    /// Whether a binding needs it. None: no binding has read its metadata in this observation.
    is_needed: Option<bool>,
}

struct Refusal {
    resource_version: String,
    generation: Option<i64>,
    why: String,
    at: Instant,
}

impl Observer {
    /// An observer without any watch.
    #[must_use]
    pub fn new(client: Client, watches: Watches) -> Observer {
        Observer { client, watches, unread: false, bodies: BTreeMap::new(), refusals: BTreeMap::new() }
    }

    /// Records that the API server refused the Deorbit of this version of an object, by this generation of a binding.
    pub fn refused(&mut self, uid: &str, resource_version: &str, generation: Option<i64>, why: String) {
        let resource_version = resource_version.to_owned();
        let refusal = Refusal { resource_version, generation, why, at: Instant::now() };
        self.refusals.insert(uid.to_owned(), refusal);
    }

    /// Everything that the plan needs. Where the namespaces, or an object that is needed whole, cannot be read, the objects of that
    /// binding are unknown, and those of no other.
    pub async fn observe(
        &mut self,
        bindings: &[Arc<DeorbitBinding>],
        deorbits: &[Arc<deorbit::Deorbit>],
    ) -> Snapshot {
        let kinds: BTreeSet<GroupVersionKindKey> = bindings
            .iter()
            .flat_map(|binding| std::iter::once(kind_of(binding)).chain(machines_of(binding)))
            .collect();
        self.watches.retain(&kinds);
        let deorbits = deorbits.iter().filter_map(|one| read_deorbit(one)).collect();
        let mut snapshot = Snapshot { bindings: Vec::new(), deorbits };
        self.unread = false;
        let mut alive = BTreeSet::new();
        for binding in bindings {
            snapshot.bindings.extend(self.binding(binding, &mut alive).await);
        }
        self.forget(&alive);
        snapshot
    }

    /// Drops what is kept of objects that are gone, and whole objects that no binding needs any more.
    fn forget(&mut self, alive: &BTreeSet<String>) {
        self.bodies.retain(|uid, body| alive.contains(uid) && body.is_needed.take() != Some(false));
        self.refusals.retain(|uid, _| alive.contains(uid));
    }

    /// Adds the UIDs of its objects to `alive`, whether or not all of them can be read.
    async fn binding(&mut self, binding: &DeorbitBinding, alive: &mut BTreeSet<String>) -> Option<Binding> {
        let metadata = &binding.metadata;
        let (name, uid) = (metadata.name.clone()?, metadata.uid.clone()?);
        let selection = rules::selection(&binding.spec);
        let mut read = Binding {
            name,
            uid,
            generation: metadata.generation,
            created: metadata.creation_timestamp.as_ref().map(|time| time.0).unwrap_or_default(),
            terminating: metadata.deletion_timestamp.is_some(),
            guarded: binding.finalizers().iter().any(|one| one == names::BINDING_FINALIZER),
            finalizer: binding.spec.finalizer.clone(),
            rules: Err(String::new()),
            kind: (group_of(&binding.spec.target_ref.api_version), binding.spec.target_ref.kind.clone()),
            targets: Targets::Whole(Vec::new()),
            hooks: machines_of(binding).is_some(),
            machines: Vec::new(),
            status: binding.status.clone().unwrap_or_default(),
        };
        // The objects of a binding that is being deleted have to be released, also if its version is not served any more.
        let any_version = read.terminating;
        let (resource, objects) = match self.watches.known(&kind_of(binding), any_version).await {
            Known::Objects(watch, objects) => {
                read.rules = rules::rules(&binding.spec, Some(watch.namespaced));
                (watch.resource.clone(), objects)
            }
            Known::NotServed(why) => {
                read.rules = rules::rules(&binding.spec, None);
                read.targets = Targets::NotServed(why);
                return Some(read);
            }
            Known::Unknown(watch, why) => {
                read.rules = rules::rules(&binding.spec, watch.map(|watch| watch.namespaced));
                read.targets = Targets::Unknown(why);
                return Some(read);
            }
        };
        let selection = match selection {
            Ok(selection) => Some(selection),
            Err(why) => {
                read.rules = Err(why);
                None
            }
        };
        let targets = self.targets(&read, (binding, &resource, selection.as_ref()), &objects, alive).await;
        read.targets = targets.map_or_else(
            |error| {
                self.unread = true;
                Targets::Unknown(error.to_string())
            },
            Targets::Whole,
        );
        if let Some(kind) = machines_of(binding) {
            match self.watches.known(&kind, any_version).await {
                Known::Objects(watch, objects) => {
                    let machines =
                        objects.iter().filter_map(|object| machine(&watch.resource, &object.metadata));
                    read.machines = machines.collect();
                }
                // Without its Machines, a Cluster must be neither bound nor released.
                Known::NotServed(why) | Known::Unknown(_, why) => read.targets = Targets::Unknown(why),
            }
        }
        Some(read)
    }

    async fn targets(
        &mut self,
        read: &Binding,
        (binding, resource, selection): (&DeorbitBinding, &ApiResource, Option<&Selection>),
        objects: &[Arc<Meta>],
        alive: &mut BTreeSet<String>,
    ) -> Result<Vec<Target>, Error> {
        // Before anything can fail: refusals and bodies of other objects are dropped.
        alive.extend(objects.iter().filter_map(|object| object.metadata.uid.clone()));
        let namespaces = match selection.and_then(|selection| selection.namespaces.as_ref()) {
            Some(selector) => Some(self.namespaces(selector).await?),
            None => None,
        };
        let seen = Seen { binding, resource, selection, namespaces };
        let mut targets = Vec::new();
        for object in objects {
            let Some(target) = seen.target(&object.metadata) else { continue };
            let target = self.with_body(read, &seen, target).await?;
            targets.extend(target.map(|mut target| {
                let refusal = self.refusals.get(&target.object.uid).filter(|one| {
                    one.resource_version == target.resource_version && one.generation == read.generation
                });
                target.refused = refusal
                    .map(|one| Refused { why: one.why.clone(), stale: one.at.elapsed() >= REFUSED_FOR });
                target
            }));
        }
        Ok(targets)
    }

    async fn namespaces(&self, selector: &Selector) -> Result<BTreeSet<String>, Error> {
        let list = Api::<Namespace>::all(self.client.clone()).list_metadata(&ListParams::default()).await;
        let list = list.map_err(Error::kubernetes("list Namespaces"))?;
        Ok(list.items.iter().filter(|one| selector.matches(one.labels())).map(|one| one.name_any()).collect())
    }

    /// Adds the whole object where the plan needs it, with its metadata, which may be newer than the cache.
    async fn with_body(
        &mut self,
        binding: &Binding,
        seen: &Seen<'_>,
        mut target: Target,
    ) -> Result<Option<Target>, Error> {
        let uid = target.object.uid.clone();
        let known = self.bodies.get_mut(&uid);
        if !needs_body(binding, &target) {
            if let Some(body) = known {
                // Another binding may need it.
                body.is_needed = body.is_needed.or(Some(false));
            }
            return Ok(Some(target));
        }
        if let Some(body) = known.filter(|body| body.resource_version == target.resource_version) {
            body.is_needed = Some(true);
            target.body = Some(body.object.clone());
            return Ok(Some(target));
        }
        let api = apply::api(&self.client, seen.resource, target.object.namespace.as_deref());
        let found: Option<DynamicObject> = api
            .get_opt(&target.object.name)
            .await
            .map_err(Error::kubernetes(format!("read {}", target.object)))?;
        let found = found.filter(|found| found.metadata.uid.as_ref() == Some(&uid));
        let Some((found, mut target)) = found.and_then(|found| {
            let target = seen.target(&found.metadata)?;
            Some((found, target))
        }) else {
            return Ok(None);
        };
        let object = serde_json::to_value(&found).unwrap_or_default();
        target.body = Some(object.clone());
        let resource_version = target.resource_version.clone();
        self.bodies.insert(uid, Body { resource_version, object, is_needed: Some(true) });
        Ok(Some(target))
    }
}

/// The group of an `apiVersion`; empty for the core group.
fn group_of(api_version: &str) -> String {
    api_version.split_once('/').map_or_else(String::new, |(group, _)| group.to_owned())
}

/// `apiVersion` and kind that a binding names.
#[must_use]
pub fn kind_of(binding: &DeorbitBinding) -> GroupVersionKindKey {
    (binding.spec.target_ref.api_version.clone(), binding.spec.target_ref.kind.clone())
}

/// `apiVersion` and kind of the Machines that a binding adds its hook to.
#[must_use]
pub fn machines_of(binding: &DeorbitBinding) -> Option<GroupVersionKindKey> {
    let api_version = &binding.spec.target_ref.api_version;
    let hooks = binding.spec.machine_hook == MachineHook::PreTerminate;
    (hooks && group_of(api_version) == names::CLUSTER_API_GROUP)
        .then(|| (api_version.clone(), "Machine".to_owned()))
}

/// A Machine for the plan; None for one without a Cluster, which Cluster API does not have.
fn machine(resource: &ApiResource, metadata: &ObjectMeta) -> Option<Machine> {
    let hook = metadata.annotations.as_ref().and_then(|all| all.get(names::MACHINE_HOOK_ANNOTATION));
    Some(Machine {
        object: object_id(resource, metadata)?,
        cluster: metadata.labels.as_ref()?.get(names::CLUSTER_NAME_LABEL)?.clone(),
        terminating: metadata.deletion_timestamp.is_some(),
        hook: hook.cloned(),
    })
}

fn object_id(resource: &ApiResource, metadata: &ObjectMeta) -> Option<ObjectId> {
    Some(ObjectId {
        api_version: lasting(&resource.api_version),
        kind: lasting(&resource.kind),
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone()?,
        uid: metadata.uid.clone()?,
    })
}

/// The parts of a binding that decide how an object relates to it.
struct Seen<'a> {
    binding: &'a DeorbitBinding,
    resource: &'a ApiResource,
    selection: Option<&'a Selection>,
    namespaces: Option<BTreeSet<String>>,
}

impl Seen<'_> {
    /// An object for the plan; None where the binding neither selects nor has it.
    fn target(&self, metadata: &ObjectMeta) -> Option<Target> {
        let none = BTreeMap::new();
        let labels = metadata.labels.as_ref().unwrap_or(&none);
        let annotations = metadata.annotations.as_ref().unwrap_or(&none);
        let selected = self.selection.is_some_and(|selection| {
            let namespace = metadata.namespace.as_ref();
            selection.labels.matches(labels)
                && self
                    .namespaces
                    .as_ref()
                    .is_none_or(|names| namespace.is_some_and(|name| names.contains(name)))
        });
        let bound_by = annotations.get(names::BOUND_BY_ANNOTATION).cloned();
        if !selected && bound_by != self.binding.metadata.name {
            return None;
        }
        let protections = &self.binding.spec.protection_annotations;
        let protecting = annotations.iter().filter(|(key, _)| protections.contains(key));
        Some(Target {
            object: object_id(self.resource, metadata)?,
            resource_version: metadata.resource_version.clone()?,
            finalizers: metadata.finalizers.clone().unwrap_or_default(),
            bound_by,
            deorbit_uid: annotations.get(names::DEORBIT_UID_ANNOTATION).cloned(),
            terminating: metadata.deletion_timestamp.is_some(),
            selected,
            annotations: protecting.map(|(key, value)| (key.clone(), value.clone())).collect(),
            body: None,
            refused: None,
        })
    }
}

/// A Deorbit for the plan.
#[must_use]
pub fn read_deorbit(deorbit: &deorbit::Deorbit) -> Option<Deorbit> {
    let status = deorbit.status.as_ref();
    let (phase, debris) = status.map(|status| (status.phase, status.debris_count)).unwrap_or_default();
    Some(Deorbit {
        namespace: deorbit.metadata.namespace.clone()?,
        name: deorbit.metadata.name.clone()?,
        uid: deorbit.metadata.uid.clone()?,
        // A dry run cleans up nothing, even if it has the label.
        target_uid: deorbit.labels().get(names::TARGET_UID_LABEL).filter(|_| !deorbit.spec.dry_run).cloned(),
        terminating: deorbit.metadata.deletion_timestamp.is_some(),
        spec: deorbit.spec.clone(),
        end: match phase {
            Phase::Succeeded if debris == 0 => Some(End::Complete),
            Phase::Succeeded => Some(End::CompletedWithDebris),
            Phase::Failed => Some(End::Failed),
            _ => None,
        },
    })
}

#[cfg(test)]
mod tests {
    use common::metrics::Metrics;
    use common::plan::Action as _;
    use serde_json::json;

    use super::super::plan::plan;
    use super::super::snapshot::{PhaseIs, Rules};
    use super::super::template::Template;
    use super::*;
    use crate::controller::tests::server as api_server;

    /// An API server with Clusters in v1beta2 only, which does not respond to lists.
    fn server() -> Client {
        api_server(|request| {
            Some(match request.uri().path() {
                "/apis" => {
                    let versions =
                        json!([{ "groupVersion": "cluster.x-k8s.io/v1beta2", "version": "v1beta2" }]);
                    let groups = json!([{ "name": "cluster.x-k8s.io", "versions": versions }]);
                    (200, json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups }))
                }
                "/apis/cluster.x-k8s.io/v1beta2" => {
                    let clusters = json!({ "name": "clusters", "singularName": "cluster", "namespaced": true,
                        "kind": "Cluster", "verbs": ["list", "watch"] });
                    let list = json!({ "kind": "APIResourceList", "apiVersion": "v1",
                        "groupVersion": "cluster.x-k8s.io/v1beta2", "resources": [clusters] });
                    (200, list)
                }
                "/apis/cluster.x-k8s.io/v1beta1" => {
                    (404, json!({ "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound" }))
                }
                _ => return None,
            })
        })
    }

    /// Otherwise the Clusters would keep the finalizer, and their Machines the hook.
    #[tokio::test]
    async fn a_deleted_binding_to_a_version_that_is_not_served_any_more_waits_for_its_objects() {
        for (kind, is_deleted, version, steps) in [
            ("Cluster", false, None, vec![]),
            ("Cluster", true, Some("cluster.x-k8s.io/v1beta2"), vec![]),
            ("Tent", true, None, vec!["ReleaseBinding"]),
        ] {
            let deleted = is_deleted.then_some("2026-01-01T00:00:00Z");
            let binding: DeorbitBinding = serde_json::from_value(json!({
                "apiVersion": names::API_VERSION, "kind": "DeorbitBinding",
                "metadata": { "name": "b", "uid": "b", "finalizers": [names::BINDING_FINALIZER],
                    "deletionTimestamp": deleted },
                "spec": { "targetRef": { "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": kind },
                    "template": { "spec": { "inCluster": true } } },
            }))
            .unwrap();
            let watches = Watches::new(server(), Metrics::new("deorbiter").unwrap(), Arc::new(|| {}));
            let mut observer = Observer::new(server(), watches);
            let key = kind_of(&binding);
            let snapshot = observer.observe(&[Arc::new(binding)], &[]).await;
            let resource = observer.watches.resource(&key);
            assert_eq!(resource.map(|one| one.api_version.as_str()), version, "{kind} {is_deleted}");
            assert_eq!(matches!(snapshot.bindings[0].targets, Targets::NotServed(_)), version.is_none());
            let plan = plan(&snapshot).plan;
            let planned: Vec<&str> = plan.steps.iter().map(|step| step.action.name()).collect();
            assert_eq!(planned, steps, "{kind} {is_deleted}");
            let of_objects = version.map(|version| (version.to_owned(), kind.to_owned()));
            assert_eq!(
                of_objects.is_some_and(|key| observer.watches.resource(&key).is_some()),
                version.is_some()
            );
        }
    }

    /// Its phase has to be known until it has the finalizer.
    #[tokio::test]
    async fn a_whole_object_is_kept_as_long_as_a_binding_needs_it() {
        let metadata = |version: &str, finalizers: &[&str]| json!({ "name": "a", "namespace": "team", "uid": "u", "resourceVersion": version, "finalizers": finalizers });
        let found = metadata("1", &[]);
        let client = api_server(move |request| {
            let object = json!({ "apiVersion": "example.org/v1", "kind": "Tent", "metadata": found,
                "status": { "phase": "Creating" } });
            request.uri().path().ends_with("/namespaces/team/tents/a").then_some((200, object))
        });
        let template = json!({ "spec": { "kubeconfig": { "secretRef": { "name": "login" } } } });
        let rules = Rules {
            finalizer_when: Some(PhaseIs {
                path: ".status.phase".parse().unwrap(),
                equals: "Running".into(),
            }),
            when: None,
            protections: BTreeSet::new(),
            template: Template::new(&serde_json::from_value(template.clone()).unwrap()).unwrap(),
        };
        let binding: DeorbitBinding = serde_json::from_value(json!({
            "apiVersion": names::API_VERSION, "kind": "DeorbitBinding", "metadata": { "name": "b", "uid": "b" },
            "spec": { "targetRef": { "apiVersion": "example.org/v1", "kind": "Tent" }, "template": template },
        }))
        .unwrap();
        let read = Binding {
            name: "b".into(),
            uid: "b".into(),
            generation: Some(1),
            created: Default::default(),
            terminating: false,
            guarded: true,
            finalizer: "example.org/deorbit".into(),
            rules: Ok(rules),
            kind: ("example.org".into(), "Tent".into()),
            targets: Targets::Whole(Vec::new()),
            hooks: false,
            machines: Vec::new(),
            status: Default::default(),
        };
        let kind = kube::api::GroupVersionKind::gvk("example.org", "v1", "Tent");
        let resource = ApiResource::from_gvk_with_plural(&kind, "tents");
        let selection = rules::selection(&binding.spec).unwrap();
        let watches = Watches::new(client.clone(), Metrics::new("deorbiter").unwrap(), Arc::new(|| {}));
        let mut observer = Observer::new(client, watches);
        let object = |version, finalizers: &[&str]| -> Arc<Meta> {
            let object = json!({ "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                "metadata": metadata(version, finalizers) });
            Arc::new(serde_json::from_value(object).unwrap())
        };
        let seen = (&binding, &resource, Some(&selection));
        let mut alive = BTreeSet::new();
        let targets = observer.targets(&read, seen, &[object("1", &[])], &mut alive).await.unwrap();
        assert!(targets[0].body.is_some());
        observer.forget(&alive);
        assert_eq!(observer.bodies.len(), 1);
        observer.forget(&alive);
        assert_eq!(observer.bodies.len(), 1, "no binding could be read");
        let bound = [object("2", &["example.org/deorbit"])];
        let targets = observer.targets(&read, seen, &bound, &mut alive).await.unwrap();
        assert!(targets[0].body.is_none());
        observer.forget(&alive);
        assert!(observer.bodies.is_empty(), "it is bound");
    }
}
