//! A world for deorbiter: a real control plane that is both the cluster of the Deorbits and the one to be cleaned up, and a
//! project of a real OpenStack. Cinder's and Octavia's controllers in the cluster are [`Driver`]s, which can be alive or dead.

mod changes;
mod driver;

pub use changes::Changes;
pub use driver::Driver;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use common::api::deorbit::{Deorbit, DeorbitStatus, Phase};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, CustomResourceExt, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::control_plane::{ControlPlane, Reservation};
use crate::openstack::Project;
use crate::program::{Launch, Program};

/// How long a wait goes on: far longer than anything takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// How often a condition is looked at: each look is a status of up to 200 KB.
const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// A test of many objects leaves a thousand and more.
const WIPED_AT_ONCE: usize = 16;

/// Everything around deorbiter.
pub struct World {
    /// Real etcd, kube-apiserver, kube-controller-manager.
    pub control_plane: ControlPlane,
    /// An administrator's client.
    pub client: Client,
    /// Where Deorbits and their Secrets are, and everything else with a namespace.
    pub namespace: String,
    _alone: Reservation,
}

impl World {
    /// A clean cluster that no other world has: a freeze and a clean-up are about a whole one.
    ///
    /// # Errors
    /// Whatever could not be started or cleaned.
    pub async fn start() -> Result<World> {
        let (control_plane, alone) = ControlPlane::reserve().await?;
        let client = control_plane.client();
        let crds = Api::<CustomResourceDefinition>::all(client.clone());
        let params = PatchParams::apply("e2e").force();
        crds.patch("deorbits.deorbiter.perimeter.dev", &params, &Patch::Apply(Deorbit::crd())).await?;
        let namespace = control_plane.namespace("deorbit").await?;
        let world = World { control_plane, client, namespace, _alone: alone };
        world
            .wait("the kind Deorbit", async || {
                Ok(world.deorbits().list(&ListParams::default()).await.is_ok())
            })
            .await?;
        world.clear().await?;
        world.thawed().await?;
        let data = world.target_kubeconfig()?;
        world.secret("target", "value", &data).await?;
        Ok(world)
    }

    /// Takes away what an earlier test has left, finalizers and all.
    async fn clear(&self) -> Result<()> {
        use k8s_openapi::api::admissionregistration::v1 as admission;
        wipe::<Deorbit>(Api::all(self.client.clone()), &self.client).await?;
        wipe::<admission::ValidatingAdmissionPolicyBinding>(Api::all(self.client.clone()), &self.client)
            .await?;
        wipe::<admission::ValidatingAdmissionPolicy>(Api::all(self.client.clone()), &self.client).await?;
        wipe::<admission::ValidatingWebhookConfiguration>(Api::all(self.client.clone()), &self.client)
            .await?;
        wipe::<Pod>(Api::all(self.client.clone()), &self.client).await?;
        wipe::<PersistentVolumeClaim>(Api::all(self.client.clone()), &self.client).await?;
        wipe::<PersistentVolume>(Api::all(self.client.clone()), &self.client).await?;
        let services = Api::<Service>::all(self.client.clone()).list(&ListParams::default()).await?.items;
        for service in services {
            let kind = service.spec.as_ref().and_then(|spec| spec.type_.as_deref());
            if kind == Some("LoadBalancer") || service.metadata.finalizers.is_some() {
                let namespace = service.metadata.namespace.clone().unwrap_or_default();
                remove(&Api::<Service>::namespaced(self.client.clone(), &namespace), service).await?;
            }
        }
        Ok(())
    }

    /// Waits until claims are admitted again. The API server learns of the end of its policies by a watch: for a moment it
    /// goes on refusing.
    ///
    /// # Errors
    /// They are not, within [`PATIENCE`].
    pub async fn thawed(&self) -> Result<()> {
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &self.namespace);
        let claim = serde_json::from_value(json!({"metadata": {"name": "probe"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}))?;
        let only_asked = PostParams { dry_run: true, ..PostParams::default() };
        self.wait("claims to be admitted", async || Ok(claims.create(&only_asked, &claim).await.is_ok()))
            .await
    }

    /// A kubeconfig of the cluster, as its administrator, that can stand in a Secret.
    ///
    /// # Errors
    /// The cluster is not ours.
    pub fn target_kubeconfig(&self) -> Result<String> {
        let (certificate, key) = self.control_plane.admin_identity_pem()?;
        kubeconfig(
            &self.control_plane.url(),
            Some(&self.control_plane.ca_pem()?),
            &[("client-certificate-data", &certificate), ("client-key-data", &key)],
        )
    }

    /// Stores one key in a Secret, in place of what was there.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn secret(&self, name: &str, key: &str, text: &str) -> Result<()> {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {key: text}});
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        api.patch(name, &PatchParams::apply("e2e").force(), &Patch::Apply(secret)).await?;
        Ok(())
    }

    /// deorbiter, ready to be started.
    ///
    /// # Errors
    /// It is not built.
    pub fn launch(&self) -> Result<Launch> {
        Ok(Program::binary("deorbiter")?.env("KUBECONFIG", self.control_plane.kubeconfig()).args([
            "--admin-address",
            "127.0.0.1:0",
            "--log-format",
            "json",
            "--leader-elect=false",
        ]))
    }

    /// deorbiter, started.
    ///
    /// # Errors
    /// It is not built.
    pub fn deorbiter(&self) -> Result<Program> {
        self.launch()?.start()
    }

    /// The Deorbits of this world.
    pub fn deorbits(&self) -> Api<Deorbit> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates a Deorbit of this cluster, with more of a spec; OpenStack is the Secret `cloud`, if `spec` names it.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn deorbit(&self, name: &str, spec: Value) -> Result<Deorbit> {
        let mut whole = json!({"kubeconfig": {"secretRef": {"name": "target"}}});
        merge(&mut whole, spec);
        let deorbit = json!({"apiVersion": "deorbiter.perimeter.dev/v1alpha1", "kind": "Deorbit",
            "metadata": {"name": name, "namespace": self.namespace}, "spec": whole});
        // As it is, not through our own type: what the API server refuses is what is asked about.
        let path = format!("/apis/deorbiter.perimeter.dev/v1alpha1/namespaces/{}/deorbits", self.namespace);
        let request = http::Request::post(path).body(serde_json::to_vec(&deorbit)?)?;
        Ok(self.client.request(request).await?)
    }

    /// Stores the project's credentials as Secret `cloud`.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn cloud(&self, project: &Project) -> Result<()> {
        self.secret("cloud", "clouds.yaml", &project.clouds_yaml()?).await
    }

    /// The status of a Deorbit as it is now.
    ///
    /// # Errors
    /// There is no such Deorbit.
    pub async fn status(&self, name: &str) -> Result<DeorbitStatus> {
        Ok(self.deorbits().get(name).await?.status.unwrap_or_default())
    }

    /// Waits until a Deorbit is in a phase; another end is an error.
    ///
    /// # Errors
    /// It ends in another phase, or not in time.
    pub async fn wait_for_phase(&self, name: &str, phase: Phase) -> Result<DeorbitStatus> {
        let waited = self
            .wait(&format!("{name} to be {phase}"), async || {
                let status = self.status(name).await?;
                anyhow::ensure!(!status.phase.is_final() || status.phase == phase, "it ended: {status:#?}");
                Ok(status.phase == phase)
            })
            .await;
        match waited {
            Ok(()) => self.status(name).await,
            Err(error) => bail!("{error:#}; {:#?}", self.status(name).await),
        }
    }

    /// A volume of Cinder's with its claim, bound: the claim's name is `name`, the PersistentVolume's `NAMESPACE-NAME`.
    ///
    /// # Errors
    /// The API server refuses, or nobody binds them.
    pub async fn claim(&self, name: &str, id: &str, policy: &str) -> Result<()> {
        self.claim_of(name, "cinder.csi.openstack.org", id, policy).await?;
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &self.namespace);
        self.wait(&format!("{name} to be bound"), async || {
            let claim = claims.get(name).await?;
            Ok(claim.status.and_then(|status| status.phase).as_deref() == Some("Bound"))
        })
        .await
    }

    /// As [`World::claim`], with a volume of any driver's; not waited for.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn claim_of(&self, name: &str, driver: &str, id: &str, policy: &str) -> Result<()> {
        let volume = format!("{}-{name}", self.namespace);
        let size = json!({"storage": "1Gi"});
        self.create::<PersistentVolume>(json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": volume, "annotations": {"pv.kubernetes.io/provisioned-by": driver}},
            "spec": {"capacity": size, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": policy,
                "storageClassName": "cinder", "csi": {"driver": driver, "volumeHandle": id},
                "claimRef": {"namespace": self.namespace, "name": name}},
        }))
        .await?;
        self.pending(name, Some(&volume)).await
    }

    /// A claim of class `cinder`, bound to nothing or to what is named.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn pending(&self, name: &str, volume: Option<&str>) -> Result<()> {
        self.create_in::<PersistentVolumeClaim>(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "cinder", "volumeName": volume,
                "resources": {"requests": {"storage": "1Gi"}}},
        }))
        .await
        .map(drop)
    }

    /// A Service of type LoadBalancer as the cloud controller manager leaves it, with a load balancer's ID.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn service(&self, name: &str, id: &str) -> Result<()> {
        self.create_in::<Service>(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "annotations": {"loadbalancer.openstack.org/load-balancer-id": id},
                "finalizers": ["service.kubernetes.io/load-balancer-cleanup"]},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        }))
        .await
        .map(drop)
    }

    /// Creates something without a namespace.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn create<K>(&self, object: Value) -> Result<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
    {
        let api = Api::<K>::all(self.client.clone());
        Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
    }

    /// Creates something in this world's namespace.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn create_in<K>(&self, object: Value) -> Result<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
    {
        let api = Api::<K>::namespaced(self.client.clone(), &self.namespace);
        Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
    }

    /// Whether any freeze stands in the cluster.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn is_frozen(&self) -> Result<bool> {
        use k8s_openapi::api::admissionregistration::v1 as admission;
        let all = ListParams::default();
        let policies =
            Api::<admission::ValidatingAdmissionPolicy>::all(self.client.clone()).list(&all).await?;
        let bindings =
            Api::<admission::ValidatingAdmissionPolicyBinding>::all(self.client.clone()).list(&all).await?;
        let hooks =
            Api::<admission::ValidatingWebhookConfiguration>::all(self.client.clone()).list(&all).await?;
        Ok(!policies.items.is_empty() || !bindings.items.is_empty() || !hooks.items.is_empty())
    }

    /// Repeats a condition until it holds; a failure ends it.
    ///
    /// # Errors
    /// It does not hold within [`PATIENCE`], or what it failed with.
    pub async fn wait(&self, what: &str, condition: impl AsyncFn() -> Result<bool>) -> Result<()> {
        let end = tokio::time::Instant::now() + PATIENCE;
        while !condition().await? {
            if tokio::time::Instant::now() >= end {
                bail!("still waiting for {what} after {PATIENCE:?}");
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }
}

/// A kubeconfig with one cluster and one user; fields that end in `-data` are encoded.
///
/// # Errors
/// It cannot be written as JSON.
pub fn kubeconfig(url: &str, ca: Option<&str>, user: &[(&str, &str)]) -> Result<String> {
    let mut cluster = json!({"server": url});
    if let (Some(ca), Some(cluster)) = (ca, cluster.as_object_mut()) {
        cluster.insert("certificate-authority-data".into(), encoded(ca)?);
    }
    let mut fields = serde_json::Map::new();
    for (key, text) in user {
        let value = if key.ends_with("-data") { encoded(text)? } else { json!(text) };
        fields.insert((*key).to_owned(), value);
    }
    Ok(json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "e2e",
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
        "clusters": [{"name": "e2e", "cluster": cluster}], "users": [{"name": "e2e", "user": fields}],
    })
    .to_string())
}

/// In base64, as the API has bytes.
fn encoded(text: &str) -> Result<Value> {
    Ok(serde_json::to_value(k8s_openapi::ByteString(text.as_bytes().to_vec()))?)
}

fn merge(into: &mut Value, more: Value) {
    if let (Some(into), Value::Object(more)) = (into.as_object_mut(), more) {
        for (key, value) in more {
            if value.is_null() {
                into.remove(&key)
            } else {
                into.insert(key, value)
            };
        }
    }
}

async fn wipe<K>(all: Api<K>, client: &Client) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let found = all.list(&ListParams::default()).await?.items;
    let gone = found.into_iter().map(|object| wipe_one(&all, client, object));
    stream::iter(gone).buffer_unordered(WIPED_AT_ONCE).try_collect().await
}

async fn wipe_one<K>(all: &Api<K>, client: &Client, object: K) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let Some(namespace) = object.meta().namespace.clone() else { return remove(all, object).await };
    let name = object.meta().name.clone().unwrap_or_default();
    force(client, &format!("{}/{name}", K::url_path(&(), Some(&namespace)))).await
}

async fn force(client: &Client, path: &str) -> Result<()> {
    let body = serde_json::to_vec(&json!({"metadata": {"finalizers": null}}))?;
    let patch =
        http::Request::patch(path).header("content-type", "application/merge-patch+json").body(body)?;
    let _ = client.request::<Value>(patch).await;
    let body = serde_json::to_vec(&json!({"gracePeriodSeconds": 0}))?;
    let _ = client
        .request::<Value>(http::Request::delete(path).header("content-type", "application/json").body(body)?)
        .await;
    Ok(())
}

async fn remove<K>(api: &Api<K>, object: K) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let name = object.meta().name.clone().context("a name")?;
    let free = json!({"metadata": {"finalizers": null}});
    let _ = api.delete(&name, &DeleteParams::default()).await;
    let _ = api.patch(&name, &PatchParams::default(), &Patch::Merge(free)).await;
    Ok(())
}
