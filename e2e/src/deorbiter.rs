//! An environment for deorbiter: a real control plane that is both management cluster and target, and a project of a real OpenStack. The
//! controllers of Cinder and Octavia in the cluster are [`Driver`]s, which run or not.

mod changes;
mod driver;
mod leftovers;
mod objects;
mod other_cloud;
mod stages;

pub use changes::Changes;
pub use driver::Driver;
pub use leftovers::{clear, wipe};
pub use other_cloud::{OTHER_CLASS, OTHER_DRIVER, OtherCloud};
pub use stages::{keep_running, sweep_on_stages};

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use common::api::deorbit::{Deorbit, DeorbitStatus, Phase};
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::control_plane::{ControlPlane, Reservation};
use crate::fault_proxy::{Fault, FaultProxy, Matcher, Reply, Upstream};
use crate::openstack::Project;
use crate::program::{Launch, Program};
use crate::wait::until;

/// Everything around deorbiter.
pub struct TestEnv {
    /// Real etcd, kube-apiserver, kube-controller-manager.
    pub control_plane: ControlPlane,
    /// An administrator's client.
    pub client: Client,
    /// Between deorbiter and the API server, which is its management cluster and the target at once: see [`as_another_cluster`].
    pub management: FaultProxy,
    /// A kubeconfig for the proxy.
    pub management_kubeconfig: PathBuf,
    /// The namespace of Deorbits, their Secrets, and everything else with a namespace.
    pub namespace: String,
    _alone: Reservation,
    _folder: TempDir,
}

impl TestEnv {
    /// A clean cluster for this environment alone: the block and the clean-up concern a whole cluster.
    ///
    /// # Errors
    /// Whatever could not be started or cleaned.
    pub async fn start() -> Result<TestEnv> {
        let (control_plane, alone) = ControlPlane::reserve().await?;
        let client = control_plane.client();
        control_plane.serve::<Deorbit>().await?;
        let namespace = control_plane.namespace("deorbit").await?;
        let management = FaultProxy::start(upstream(&control_plane)?).await?;
        as_another_cluster(&management);
        let folder = tempfile::tempdir()?;
        let management_kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&management_kubeconfig, kubeconfig(&management.url(), None, &[])?)?;
        let env = TestEnv {
            control_plane,
            client,
            management,
            management_kubeconfig,
            namespace,
            _alone: alone,
            _folder: folder,
        };
        clear(&env.client).await?;
        env.unblocked().await?;
        let data = env.target_kubeconfig()?;
        env.secret("target", "value", &data).await?;
        Ok(env)
    }

    /// Waits until claims are admitted again. The API server notices removed policies by a watch, so it refuses for a moment longer.
    ///
    /// # Errors
    /// They are not, within [`crate::wait::TIMEOUT`].
    pub async fn unblocked(&self) -> Result<()> {
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &self.namespace);
        let claim = serde_json::from_value(json!({"metadata": {"name": "probe"}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}))?;
        let only_asked = PostParams { dry_run: true, ..PostParams::default() };
        self.wait("claims to be admitted", async || Ok(claims.create(&only_asked, &claim).await.is_ok()))
            .await
    }

    /// A kubeconfig of the cluster's administrator, for a Secret.
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

    /// Stores one key in a Secret; the other keys are removed.
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
        Ok(Program::binary("deorbiter")?.env("KUBECONFIG", &self.management_kubeconfig).args([
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

    /// The Deorbits of this environment.
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
        // Unchanged, not through our own type: tests check what the API server refuses.
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

    /// Waits until a Deorbit has succeeded with nothing left.
    ///
    /// # Errors
    /// It ends otherwise, or not in time.
    pub async fn wait_for_complete(&self, name: &str) -> Result<DeorbitStatus> {
        let status = self.wait_for_phase(name, Phase::Succeeded).await?;
        anyhow::ensure!(status.debris_count == 0, "{status:#?}");
        Ok(status)
    }

    /// Waits until a Deorbit has succeeded with something left.
    ///
    /// # Errors
    /// It ends otherwise, or not in time.
    pub async fn wait_for_debris(&self, name: &str) -> Result<DeorbitStatus> {
        let status = self.wait_for_phase(name, Phase::Succeeded).await?;
        anyhow::ensure!(status.debris_count > 0, "{status:#?}");
        Ok(status)
    }

    /// The records of a Deorbit, from its first ConfigMap.
    ///
    /// # Errors
    /// There is no such ConfigMap, or it holds something else.
    pub async fn records(&self, name: &str) -> Result<Vec<Value>> {
        let status = self.status(name).await?;
        let maps = Api::<ConfigMap>::namespaced(self.client.clone(), &self.namespace);
        let data = maps.get(&status.records).await?.data.unwrap_or_default();
        Ok(serde_json::from_str(data.get("records.json").context("no records")?)?)
    }

    /// Deletes a Deorbit, and waits until it is gone and claims are admitted again.
    ///
    /// # Errors
    /// They are not, in time.
    pub async fn delete(&self, name: &str) -> Result<()> {
        self.deorbits().delete(name, &DeleteParams::default()).await?;
        self.wait("its end", async || Ok(self.deorbits().get_opt(name).await?.is_none())).await?;
        anyhow::ensure!(!self.is_blocked().await?, "a block is left");
        self.unblocked().await
    }

    /// Waits until a condition reports a refusal with this in its message.
    ///
    /// # Errors
    /// It does not, in time.
    pub async fn wait_for_refusal(&self, name: &str, condition: &str, why: &str) -> Result<()> {
        self.wait(&format!("{condition} of {name} to be refused: {why}"), async || {
            let status = self.status(name).await?;
            anyhow::ensure!(!status.phase.is_final(), "it ended: {status:#?}");
            Ok(status.conditions.iter().any(|one| {
                one.kind == condition
                    && !matches!(one.reason.as_str(), "NoResponse" | "ServerError")
                    && one.message.contains(why)
            }))
        })
        .await
    }

    /// Changes time limits of a Deorbit, once everything else has happened: then the machine's load cannot change the outcome.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn set_timeouts(&self, name: &str, timeouts: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"timeouts": timeouts}}));
        self.deorbits().patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits for so many further reconciliations.
    ///
    /// # Errors
    /// They do not happen in time.
    pub async fn wait_for_reconciliations(&self, deorbiter: &Program, count: u32) -> Result<()> {
        let reconciled = async || {
            let metrics = deorbiter.metrics().await?;
            Ok::<_, anyhow::Error>(
                metrics
                    .sum("controller_runtime_reconcile_total", &[("controller", "deorbit")])
                    .unwrap_or_default(),
            )
        };
        let before = reconciled().await?;
        self.wait("further reconciliations", async || Ok(reconciled().await? >= before + f64::from(count)))
            .await
    }

    /// Whether new objects are blocked in the cluster.
    ///
    /// # Errors
    /// The API server does not respond.
    pub async fn is_blocked(&self) -> Result<bool> {
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
    /// It does not hold within [`crate::wait::TIMEOUT`], or what it failed with.
    pub async fn wait(&self, what: &str, condition: impl AsyncFn() -> Result<bool>) -> Result<()> {
        until(what, async || Ok(condition().await?.then_some(()))).await
    }
}

/// The control plane, as its administrator.
///
/// # Errors
/// The cluster is not ours.
pub fn upstream(control_plane: &ControlPlane) -> Result<Upstream> {
    let (certificate, key) = control_plane.admin_identity_pem()?;
    Ok(Upstream::kubernetes(control_plane.url())
        .ca_pem(control_plane.ca_pem()?)
        .client_certificate(certificate, key))
}

/// Gives the namespace kube-system another UID in the responses of this proxy. deorbiter then takes the API server behind it
/// for another cluster than the target, so one control plane can be both.
pub fn as_another_cluster(proxy: &FaultProxy) {
    let identity = Matcher::any().method(Method::GET).path("/api/v1/namespaces/kube-system");
    let metadata = json!({"name": "kube-system", "uid": "management", "resourceVersion": "1"});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    proxy.rule(identity, Fault::Replace(Reply::status(StatusCode::OK).body(namespace.to_string())));
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
