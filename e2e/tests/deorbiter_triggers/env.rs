//! A control plane with our kinds, a kind like Kubernikus's, kinds like Cluster API's, and deorbiter.

use std::path::PathBuf;

use common::api::deorbit::{Deorbit, Phase};
use common::api::deorbit_binding::DeorbitBinding;
use e2e::control_plane::{ControlPlane, Reservation};
use e2e::deorbiter::{as_another_cluster, clear, wipe};
use e2e::fault_proxy::{FaultProxy, Upstream};
use e2e::kustomize::manifests;
use e2e::program::{Launch, Program};
use e2e::rights::Rights;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;

pub struct TestEnv {
    pub control_plane: ControlPlane,
    pub client: Client,
    /// Between deorbiter and the API server; it impersonates the service account of the manifests.
    pub api_proxy: FaultProxy,
    /// deorbiter's, through the proxy.
    pub kubeconfig: PathBuf,
    /// Namespace of the tests' objects.
    pub namespace: String,
    /// Namespace of deorbiter itself.
    pub own: String,
    pub folder: TempDir,
    _alone: Reservation,
}

/// The kinds of the tests' objects.
const TARGETS: [(&str, &str); 7] = [
    ("kubernikus.sap.cc/v1", "Kluster"),
    ("cluster.x-k8s.io/v1beta1", "Cluster"),
    ("cluster.x-k8s.io/v1beta1", "Machine"),
    ("infrastructure.cluster.x-k8s.io/v1beta1", "OpenStackCluster"),
    ("infrastructure.cluster.x-k8s.io/v1alpha1", "OpenStackClusterIdentity"),
    ("example.com/v1", "Castle"),
    ("example.com/v1", "Tower"),
];

pub fn resource(api_version: &str, kind: &str) -> ApiResource {
    let (group, version) = api_version.split_once('/').unwrap();
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// A kind with a spec and a status.
fn definition(group: &str, versions: &[&str], kind: &str, plural: &str) -> CustomResourceDefinition {
    let schema = json!({ "openAPIV3Schema": { "type": "object", "properties": {
        "spec": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        "status": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    } } });
    let versions: Vec<Value> = versions
        .iter()
        .enumerate()
        .map(|(index, name)| json!({ "name": name, "served": true, "storage": index == 0, "schema": schema }))
        .collect();
    serde_json::from_value(json!({
        // Kubernetes requires this annotation for groups like Cluster API's.
        "metadata": { "name": format!("{plural}.{group}"), "annotations": { "api-approved.kubernetes.io": "unapproved, a test" } },
        "spec": { "group": group, "scope": "Namespaced", "versions": versions,
            "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() } },
    }))
    .unwrap()
}

/// deorbiter's rights on these kinds, as in docs/deorbiter.md, without `get` on Towers.
fn target_rules() -> Value {
    let mut rules = json!([
        { "apiGroups": ["kubernikus.sap.cc"], "resources": ["klusters"], "verbs": ["get", "list", "watch", "patch"] },
        { "apiGroups": ["example.com"], "resources": ["castles"], "verbs": ["get", "list", "watch", "patch"] },
        { "apiGroups": ["example.com"], "resources": ["towers"], "verbs": ["list", "watch", "patch"] },
        { "apiGroups": ["cluster.x-k8s.io"], "resources": ["clusters"], "verbs": ["get"] },
        { "apiGroups": ["infrastructure.cluster.x-k8s.io"], "resources": ["openstackclusters", "openstackclusteridentities"], "verbs": ["get"] },
        { "apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"] },
    ]);
    let clusters = example("cluster-rights.yaml")["rules"].clone();
    rules.as_array_mut().unwrap().extend(clusters.as_array().unwrap().clone());
    rules
}

impl TestEnv {
    pub async fn start() -> TestEnv {
        let (control_plane, alone) = ControlPlane::reserve().await.unwrap();
        let client = control_plane.client();
        let mut definitions = common::api::definitions();
        definitions.push(definition("kubernikus.sap.cc", &["v1"], "Kluster", "klusters"));
        definitions.push(definition("cluster.x-k8s.io", &["v1beta1", "v1beta2"], "Cluster", "clusters"));
        definitions.push(definition("cluster.x-k8s.io", &["v1beta1", "v1beta2"], "Machine", "machines"));
        definitions.push(definition(
            "infrastructure.cluster.x-k8s.io",
            &["v1beta1"],
            "OpenStackCluster",
            "openstackclusters",
        ));
        let mut identities = definition(
            "infrastructure.cluster.x-k8s.io",
            &["v1alpha1"],
            "OpenStackClusterIdentity",
            "openstackclusteridentities",
        );
        identities.spec.scope = "Cluster".to_owned();
        definitions.push(identities);
        // One that a test may delete.
        definitions.push(definition("example.com", &["v1"], "Castle", "castles"));
        // One for which a right is missing.
        definitions.push(definition("example.com", &["v1"], "Tower", "towers"));
        for definition in definitions {
            control_plane.define(&definition).await.unwrap();
        }
        for (api_version, kind) in TARGETS {
            wipe(&client, &resource(api_version, kind), |_| true).await.unwrap();
        }
        clear(&client).await.unwrap();
        let own = control_plane.namespace("deorbiter").await.unwrap();
        let namespace = control_plane.namespace("team").await.unwrap();
        let user = Rights::of("deorbiter").unwrap().give(&client, &own).await.unwrap();
        let roles = Api::<ClusterRole>::all(client.clone());
        let role = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": "e2e-targets" }, "rules": target_rules() });
        roles.patch("e2e-targets", &PatchParams::apply("e2e"), &Patch::Apply(&role)).await.unwrap();
        let bindings = Api::<ClusterRoleBinding>::all(client.clone());
        let binding = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": "e2e-targets" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "e2e-targets" },
            "subjects": [{ "kind": "ServiceAccount", "name": "deorbiter", "namespace": own }] });
        bindings.patch("e2e-targets", &PatchParams::apply("e2e"), &Patch::Apply(&binding)).await.unwrap();
        let (certificate, key) = control_plane.admin_identity_pem().unwrap();
        let upstream = Upstream::kubernetes(control_plane.url())
            .ca_pem(control_plane.ca_pem().unwrap())
            .client_certificate(certificate, key)
            .impersonate(&user.name, user.groups.clone());
        let api_proxy = FaultProxy::start(upstream).await.unwrap();
        as_another_cluster(&api_proxy);
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "proxy",
            "clusters": [{ "name": "proxy", "cluster": { "server": api_proxy.url() } }],
            "users": [{ "name": "proxy", "user": {} }],
            "contexts": [{ "name": "proxy", "context": { "cluster": "proxy", "user": "proxy" } }],
        });
        std::fs::write(&kubeconfig, text.to_string()).unwrap();
        // The API server notices the binding by a watch: it refuses for a moment.
        let bound = ControlPlane::client_of(&kubeconfig).await.unwrap();
        let klusters = Api::<DynamicObject>::all_with(bound, &resource("kubernikus.sap.cc/v1", "Kluster"));
        let list = ListParams::default();
        wait("the rights on the targets", || async { klusters.list(&list).await.is_ok() }).await;
        api_proxy.clear_requests();
        TestEnv { control_plane, client, api_proxy, kubeconfig, namespace, own, folder, _alone: alone }
    }

    pub fn deorbiter(&self) -> Launch {
        Program::binary("deorbiter")
            .unwrap()
            .args(["--admin-address", "127.0.0.1:0", "--namespace", &self.own, "--kubeconfig"])
            .arg(&self.kubeconfig)
    }

    /// An administrator's kubeconfig of this control plane, as the one of a cluster.
    pub async fn kubeconfig_secret(&self, name: &str) {
        let data = |pem: String| serde_json::to_value(ByteString(pem.into_bytes())).unwrap();
        let (certificate, key) = self.control_plane.admin_identity_pem().unwrap();
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{ "name": "it", "cluster": {
                "server": self.control_plane.url(), "certificate-authority-data": data(self.control_plane.ca_pem().unwrap()) } }],
            "users": [{ "name": "it", "user": { "client-certificate-data": data(certificate), "client-key-data": data(key) } }],
            "contexts": [{ "name": "it", "context": { "cluster": "it", "user": "it" } }],
        })
        .to_string();
        let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name }, "stringData": { "value": text } });
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        api.patch(name, &PatchParams::apply("e2e"), &Patch::Apply(&secret)).await.unwrap();
    }

    pub fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(api_version, kind))
    }

    pub async fn create(&self, api_version: &str, kind: &str, name: &str, rest: Value) -> DynamicObject {
        let mut object = json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": name } });
        for (key, value) in rest.as_object().unwrap() {
            match (key.as_str(), value) {
                ("metadata", Value::Object(more)) => {
                    object["metadata"].as_object_mut().unwrap().extend(more.clone());
                }
                _ => object[key] = value.clone(),
            }
        }
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        self.api(api_version, kind).create(&PostParams::default(), &object).await.unwrap()
    }

    pub async fn kluster(&self, name: &str, phase: &str) {
        let rest = json!({ "metadata": { "finalizers": ["groundctl"] }, "status": { "phase": phase } });
        self.create("kubernikus.sap.cc/v1", "Kluster", name, rest).await;
    }

    pub fn klusters(&self) -> Api<DynamicObject> {
        self.api("kubernikus.sap.cc/v1", "Kluster")
    }

    pub async fn patch_kluster(&self, name: &str, patch: Value) {
        self.klusters().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn delete_kluster(&self, name: &str) {
        self.klusters().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub async fn finalizers(&self, name: &str) -> Option<Vec<String>> {
        Some(self.klusters().get_opt(name).await.unwrap()?.finalizers().to_vec())
    }

    pub async fn bind(&self, name: &str, spec: Value) {
        let object = json!({ "apiVersion": "deorbiter.perimeter.dev/v1alpha1", "kind": "DeorbitBinding",
            "metadata": { "name": name }, "spec": spec });
        let api = Api::<DeorbitBinding>::all(self.client.clone());
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    pub async fn binding(&self, name: &str) -> Option<Value> {
        let api = Api::<DeorbitBinding>::all(self.client.clone());
        api.get_opt(name).await.unwrap().map(|found| serde_json::to_value(found).unwrap())
    }

    /// Reason and message of Ready, if it has observed the current generation.
    pub async fn ready(&self, name: &str) -> (String, String) {
        let found = self.binding(name).await.unwrap_or_default();
        let condition = &found["status"]["conditions"][0];
        if condition["observedGeneration"] != found["metadata"]["generation"] {
            return Default::default();
        }
        let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
        (text("reason"), text("message"))
    }

    pub async fn deorbits(&self) -> Vec<Deorbit> {
        Api::<Deorbit>::namespaced(self.client.clone(), &self.namespace)
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
    }

    /// A Deorbit in this phase.
    pub async fn wait_for_phase(&self, phase: Phase) -> Deorbit {
        wait_for(&format!("a Deorbit that is {phase}"), || async {
            self.deorbits()
                .await
                .into_iter()
                .find(|one| one.status.as_ref().is_some_and(|status| status.phase == phase))
        })
        .await
    }
}

/// The bindings of `manifests/examples/deorbiter`.
pub fn example(file: &str) -> Value {
    let text = std::fs::read_to_string(manifests().join("examples/deorbiter").join(file)).unwrap();
    serde_yaml::from_str(&text).unwrap()
}

pub async fn wait<F: Future<Output = bool>>(what: &str, check: impl Fn() -> F) {
    wait_for(what, || async { check().await.then_some(()) }).await;
}

pub async fn wait_for<T, F: Future<Output = Option<T>>>(what: &str, check: impl Fn() -> F) -> T {
    e2e::wait::until(what, async || Ok(check().await)).await.unwrap()
}
