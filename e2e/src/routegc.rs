//! A world for routegc: a real control plane and a real Neutron, with a fault proxy before each, and a Nova that says what the
//! test wants it to say.
//!
//! To the API server routegc is what its manifests make it: a service account with the rights of `manifests/routegc/rbac.yaml`.
//! To OpenStack it is an application credential of a project of its own, in a region of its own, whose catalogue leads to the
//! proxies.
//!
//! A pass is `routegc --once`: it ends by itself, so nothing has to be waited for, and every pass is a restart too.

mod nova;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};
use common::api::routegc::{ALLOW_ANNOTATION, RouteGC, RouteGCStatus};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tempfile::TempDir;

pub use nova::Nova;

use crate::control_plane::ControlPlane;
use crate::fault_proxy::{FaultProxy, Upstream, WriteCounter};
use crate::natgw::{run, wait_for};
use crate::openstack::{OpenStack, Parts, Project, Release, Service};
use crate::program::{Launch, Program};
use crate::rights::Rights;

/// The pod network of every world: that of the nodes that [`World::node`] makes.
pub const PODS: &str = "10.244.0.0/16";

/// Everything around routegc.
pub struct World {
    /// Real etcd, kube-apiserver.
    pub control_plane: ControlPlane,
    /// An administrator's client, past the proxy.
    pub client: Client,
    /// Namespace of routegc, its RouteGCs and its Secret.
    pub namespace: String,
    /// Real Keystone and Neutron.
    pub openstack: OpenStack,
    /// A network, a subnet 10.7.0.0/16, a router.
    pub project: Project,
    /// Between routegc and the API server.
    pub api_proxy: FaultProxy,
    /// Between routegc and Neutron.
    pub neutron: FaultProxy,
    /// Nova, as the test wants it; none in the catalogue of a world without.
    pub nova: Option<Nova>,
    /// Counts routegc's writes to the API server and to Neutron.
    pub writes: WriteCounter,
    region: String,
    kubeconfig: PathBuf,
    folder: TempDir,
}

impl World {
    /// With Keystone and Neutron, without Nova.
    ///
    /// # Errors
    /// Whatever could not be started.
    pub async fn start() -> Result<World> {
        Self::with(Release::Main, false).await
    }

    /// With a Nova too.
    ///
    /// # Errors
    /// Whatever could not be started.
    pub async fn with_nova() -> Result<World> {
        Self::with(Release::Main, true).await
    }

    /// On a release, with or without a Nova.
    ///
    /// # Errors
    /// Whatever could not be started.
    pub async fn with(release: Release, nova: bool) -> Result<World> {
        static WORLDS: AtomicU64 = AtomicU64::new(0);
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let control_plane = ControlPlane::shared().await?;
        let client = control_plane.client();
        define(&client).await?;
        let namespace = control_plane.namespace("routegc").await?;
        let openstack = OpenStack::shared(Parts::KeystoneNeutron, release).await?;
        let project = openstack.project("routegc").await?;
        let writes = WriteCounter::new();
        let user = Rights::of("routegc")?.give(&client, &namespace).await?;
        let (certificate, key) = control_plane.admin_identity_pem()?;
        let upstream = Upstream::kubernetes(control_plane.url())
            .ca_pem(control_plane.ca_pem()?)
            .client_certificate(certificate, key)
            .impersonate(&user.name, user.groups.clone());
        let api_proxy = FaultProxy::start_counted(upstream, &writes).await?;
        let address = openstack.endpoints().address(Service::Network)?;
        let neutron = FaultProxy::start_counted(Upstream::neutron(address), &writes).await?;
        let nova = if nova { Some(Nova::start().await?) } else { None };
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, kubeconfig_of(&api_proxy.url(), &namespace))?;
        let region = format!("Proxied{number}");
        let world = World {
            control_plane,
            client,
            namespace,
            openstack,
            project,
            api_proxy,
            neutron,
            nova,
            writes,
            region,
            kubeconfig,
            folder,
        };
        world.announce().await?;
        world.secret("cloud-config", &world.clouds_yaml()?).await?;
        Ok(world)
    }

    /// Writes the proxies into Keystone's catalogue, as a region.
    async fn announce(&self) -> Result<()> {
        let admin = self.openstack.admin();
        let region = json!({ "region": { "id": self.region } });
        admin.post(Service::Identity, "/regions", region).await?;
        self.endpoint("network", &self.neutron.url()).await?;
        if let Some(nova) = &self.nova {
            self.endpoint("compute", &format!("{}/v2.1", nova.url())).await?;
        }
        Ok(())
    }

    async fn endpoint(&self, kind: &str, url: &str) -> Result<()> {
        let admin = self.openstack.admin();
        let known = admin.get(Service::Identity, &format!("/services?type={kind}")).await?;
        let id = match known.pointer("/services/0/id").and_then(Value::as_str) {
            Some(id) => id.to_owned(),
            None => {
                let service = json!({ "type": kind, "name": kind });
                let made = admin.create(Service::Identity, "/services", "service", service).await?;
                made.get("id").and_then(Value::as_str).context("a service has an ID")?.to_owned()
            }
        };
        let endpoint = json!({ "endpoint": {
            "service_id": id, "interface": "public", "region_id": self.region, "url": url } });
        admin.post(Service::Identity, "/endpoints", endpoint).await.map(drop)
    }

    /// The login of the project, in the region of the proxies.
    ///
    /// # Errors
    /// There is no Keystone.
    pub fn clouds_yaml(&self) -> Result<String> {
        Ok(self.project.clouds_yaml()?.replace(crate::openstack::REGION, &self.region))
    }

    /// The cloud.conf of the project, in the region of the proxies, as a file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn cloud_conf(&self) -> Result<PathBuf> {
        let file = self.folder.path().join("cloud.conf");
        std::fs::write(&file, self.project.cloud_conf()?.replace(crate::openstack::REGION, &self.region))?;
        Ok(file)
    }

    /// A Secret with a clouds.yaml.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn secret(&self, name: &str, clouds_yaml: &str) -> Result<()> {
        let secret: Secret = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
            "stringData": { "clouds.yaml": clouds_yaml },
        }))?;
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        let parameters = PatchParams::apply("e2e").force();
        api.patch(name, &parameters, &Patch::Apply(&secret)).await?;
        Ok(())
    }

    /// A RouteGC of the world's router that confirms in two passes without a wait; `more` is merged into its spec.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn policy(&self, name: &str, more: Value) -> Result<RouteGC> {
        let mut spec = json!({
            "identityRef": { "name": "cloud-config" },
            "routerID": self.project.router,
            "podCIDRs": [PODS],
            "mode": "Enforce",
            "interval": "1h",
            "safety": { "minAge": "0s" },
        });
        merge(&mut spec, more);
        let object = json!({
            "apiVersion": "routegc.perimeter.dev/v1alpha1", "kind": "RouteGC",
            "metadata": { "name": name, "namespace": self.namespace }, "spec": spec,
        });
        let object: RouteGC = serde_json::from_value(object)?;
        Ok(self.policies().create(&PostParams::default(), &object).await?)
    }

    /// The RouteGCs of the world.
    #[must_use]
    pub fn policies(&self) -> Api<RouteGC> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Merges `patch` into a RouteGC.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn patch(&self, name: &str, patch: Value) -> Result<()> {
        self.policies().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Lets one list through the threshold.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn allow(&self, name: &str, hash: &str) -> Result<()> {
        self.patch(name, json!({ "metadata": { "annotations": { ALLOW_ANNOTATION: hash } } })).await
    }

    /// The status of a RouteGC as it is now.
    ///
    /// # Errors
    /// It is not there.
    pub async fn status(&self, name: &str) -> Result<RouteGCStatus> {
        Ok(self.policies().get(name).await?.status.unwrap_or_default())
    }

    /// Reason of one of its conditions, with `!` before it where it is not True.
    ///
    /// # Errors
    /// It is not there, or has no such condition.
    pub async fn reason(&self, name: &str, kind: &str) -> Result<String> {
        let status = self.status(name).await?;
        let condition = status.conditions.iter().find(|one| one.kind == kind);
        let condition = condition.with_context(|| format!("no condition {kind}"))?;
        let sign = if condition.status == common::conditions::Status::True { "" } else { "!" };
        Ok(format!("{sign}{}", condition.reason))
    }

    /// A node: a port at 10.7.1.`number`, of a server, and the route of its pods, 10.244.`number`.0/24.
    ///
    /// # Errors
    /// Neutron refuses.
    pub async fn node(&self, number: u8) -> Result<String> {
        let server = format!("00000000-0000-4000-8000-0000000000{number:02x}");
        let port = self.project.port(Some(&hop(number)), Some(&server)).await?;
        if let Some(nova) = &self.nova {
            nova.add(&server, &hop(number));
        }
        self.project.add_routes(&[(&pods(number), &hop(number))]).await?;
        Ok(port)
    }

    /// A node whose machine is gone and whose route is left.
    ///
    /// # Errors
    /// Neutron refuses.
    pub async fn dead_node(&self, number: u8) -> Result<()> {
        self.project.add_routes(&[(&pods(number), &hop(number))]).await
    }

    /// Destinations of the router's routes, in order.
    ///
    /// # Errors
    /// Neutron refuses.
    pub async fn destinations(&self) -> Result<Vec<String>> {
        Ok(self.project.routes().await?.into_iter().map(|(destination, _)| destination).collect())
    }

    /// routegc with nothing but its cluster on the command line.
    ///
    /// # Errors
    /// It is not built.
    pub fn command(&self) -> Result<Launch> {
        Ok(Program::binary("routegc")?
            .env("KUBECONFIG", &self.kubeconfig)
            .env("RUST_LOG", "info,routegc=debug"))
    }

    /// routegc as it runs in a cluster.
    ///
    /// # Errors
    /// It is not built.
    pub fn routegc(&self) -> Result<Launch> {
        Ok(self.command()?.args(["--admin-address", "127.0.0.1:0", "--log-format", "json"]))
    }

    /// One pass for each RouteGC: the exit code, and what routegc said.
    ///
    /// # Errors
    /// It does not end.
    pub async fn pass(&self) -> Result<(i32, String)> {
        run(&self.routegc()?.arg("--once")).await
    }

    /// As many passes, each of which must succeed.
    ///
    /// # Errors
    /// One of them fails; the error has what routegc said.
    pub async fn passes(&self, count: usize) -> Result<()> {
        for _ in 0..count {
            let (code, said) = self.pass().await?;
            ensure!(code == 0, "exit code {code}: {said}");
        }
        Ok(())
    }

    /// One pass that must fail; what routegc said.
    ///
    /// # Errors
    /// It succeeds, or panics.
    pub async fn failing_pass(&self) -> Result<String> {
        let (code, said) = self.pass().await?;
        ensure!(code == 1 && !said.contains("panicked"), "exit code {code}: {said}");
        Ok(said)
    }

    /// What `routegc --dry-run` prints, with more arguments.
    ///
    /// # Errors
    /// It does not end well.
    pub async fn dry_run(&self, more: &[&str]) -> Result<String> {
        let launch = self.command()?.env("RUST_LOG", "error").arg("--dry-run").args(more.iter().copied());
        let (code, said) = run(&launch).await?;
        ensure!(code == 0, "exit code {code}: {said}");
        Ok(said)
    }

    /// Reasons and notes of the Events of the world.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn events(&self) -> Result<Vec<(String, String)>> {
        let api = Api::<Event>::namespaced(self.client.clone(), &self.namespace);
        let events = api.list(&ListParams::default()).await?.items;
        let text = |event: Event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default());
        Ok(events.into_iter().map(text).collect())
    }

    /// Waits until a RouteGC's Ready has this reason.
    ///
    /// # Errors
    /// It has not in time.
    pub async fn wait_for_reason(&self, name: &str, reason: &str) -> Result<()> {
        wait_for(&format!("{name} is {reason}"), || async {
            Ok(self.reason(name, "Ready").await.is_ok_and(|now| now == reason))
        })
        .await
    }
}

/// Address of the node of this number.
#[must_use]
pub fn hop(number: u8) -> String {
    format!("10.7.1.{number}")
}

/// Pod network of the node of this number.
#[must_use]
pub fn pods(number: u8) -> String {
    format!("10.244.{number}.0/24")
}

/// Makes the kind known, and waits until it is.
async fn define(client: &Client) -> Result<()> {
    use kube::CustomResourceExt as _;
    let definition = RouteGC::crd();
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    let name = definition.name_any();
    api.patch(&name, &PatchParams::apply("e2e").force(), &Patch::Apply(&definition)).await?;
    wait_for("the kind RouteGC", || async {
        let now = api.get(&name).await?;
        let conditions = now.status.and_then(|status| status.conditions).unwrap_or_default();
        Ok(conditions.iter().any(|one| one.type_ == "Established" && one.status == "True"))
    })
    .await
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}

fn kubeconfig_of(url: &str, namespace: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: proxy\nclusters: [{{name: proxy, cluster: {{server: '{url}'}}}}]\n\
         users: [{{name: routegc, user: {{}}}}]\ncontexts: [{{name: proxy, context: {{cluster: proxy, user: routegc, namespace: {namespace}}}}}]\n"
    )
}
