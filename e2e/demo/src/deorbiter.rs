//! `demo deorbiter`: a cluster is cleaned up before it dies, on a real OpenStack with the real providers.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use common::api::deorbit::{Deorbit, Phase};
use e2e::openstack::{CLOUD, OpenStack, Parts, Release, Service};
use e2e::providers::{self, DELETE, Providers, RETAIN};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::prerequisite::{built, no_cluster_of_yours};
use crate::screen::Screen;
use crate::tenant::{SECRET, Tenant};

/// The object that is played with, and the cluster's name in OpenStack.
const NAME: &str = "prod";
/// Where the users' things are.
const SHOP: &str = "shop";
/// A load balancer of Octavia's takes half a minute to go, more on a busy machine.
const WITHIN: Duration = Duration::from_secs(300);
/// Often enough to see each phase that lasts.
const LOOK: Duration = Duration::from_millis(250);

/// Plays it. It returns when all was seen; all that was started ends when this is dropped or killed.
pub(crate) async fn play(screen: &Screen) -> Result<()> {
    screen.title("1/4 ── A cluster, and what it made in its cloud");
    screen.say(
        "Keystone, Neutron, Nova, Cinder and Octavia as their projects publish them, on this machine's loopback; a Kubernetes \
         control plane with OpenStack's own cloud controller manager and Cinder CSI driver. Users of the cluster have asked for \
         two volumes, one more that is to be retained, a snapshot and a load balancer. One volume of the project is not the \
         cluster's.",
    );
    let begun = Instant::now();
    let stage = Stage::set().await?;
    screen.fact("ready", &format!("after {:.0} s", begun.elapsed().as_secs_f64()));
    stage.cloud(screen).await?;

    screen.title("2/4 ── What would deorbiter delete?");
    screen.command(&format!("deorbiter --dry-run --cloud {CLOUD}"));
    screen.output(&stage.dry_run().await?);

    screen.title("3/4 ── A Deorbit");
    screen.command("kubectl apply -f deorbit.yaml && kubectl wait --for=condition=Complete deorbit/prod");
    let _controller = stage.tenant.controller()?;
    stage.create().await?;
    stage.follow(screen).await?;

    screen.title("4/4 ── What is left in OpenStack");
    stage.cloud(screen).await?;
    let left: Vec<_> = stage.volumes().await?.into_iter().map(|[name, ..]| name).collect();
    ensure!(left.len() == 2 && left.contains(&"somebody's".to_owned()), "other volumes are left: {left:?}");
    ensure!(
        stage.list(Service::BlockStorage, "/snapshots", "snapshots").await?.is_empty(),
        "a snapshot is left"
    );
    ensure!(stage.balancers().await?.is_empty(), "a load balancer is left");
    let claims: Api<k8s_openapi::api::core::v1::PersistentVolumeClaim> =
        Api::namespaced(stage.tenant.control_plane.client(), SHOP);
    let archive = claims.get("archive").await?.spec.and_then(|spec| spec.volume_name);
    ensure!(
        archive.is_some_and(|archive| left.contains(&archive)),
        "the retained volume is not the one that is left"
    );

    screen.title("What you have seen");
    screen.say(
        "The IDs were recorded before the first delete, the cluster's own drivers deleted, and each ID was then looked up in \
         OpenStack until it was gone. The retained volume and the one of somebody else were left alone. All of it was on \
         loopback, and is gone now. docs/deorbiter.md says how to install it.",
    );
    Ok(())
}

struct Stage {
    _providers: Providers,
    tenant: Tenant,
    _cloud: OpenStack,
}

impl Stage {
    async fn set() -> Result<Stage> {
        no_cluster_of_yours()?;
        let program = built("deorbiter")?;
        let cloud = OpenStack::start(Parts::All, Release::Main, Default::default()).await?;
        let project = cloud.project(NAME).await?;
        project.volume("somebody's", json!({})).await?;
        let control_plane = providers::control_plane().start().await?;
        let providers = Providers::start(&control_plane, &project, NAME).await?;
        let (server, address) = project.server("node-1").await?;
        providers.node("node-1", &server, &address).await?;

        let client = control_plane.client();
        let shop: k8s_openapi::api::core::v1::Namespace =
            serde_json::from_value(json!({"metadata": {"name": SHOP}}))?;
        Api::all(client.clone()).create(&PostParams::default(), &shop).await?;
        for (name, class) in [("data-1", DELETE), ("data-2", DELETE), ("archive", RETAIN)] {
            providers.claim(SHOP, name, class).await?;
        }
        providers.balancer(SHOP, "web").await?;
        for name in ["data-1", "data-2", "archive"] {
            providers.bound(SHOP, name).await?;
        }
        providers.snapshot(SHOP, "data-1-monday", "data-1", DELETE).await?;
        providers.address(SHOP, "web").await?;

        let tenant = Tenant::new::<Deorbit>(program, "deorbiter", project, control_plane).await?;
        Ok(Stage { _providers: providers, tenant, _cloud: cloud })
    }

    async fn dry_run(&self) -> Result<String> {
        self.tenant.ask(self.tenant.launch().args(["--dry-run", "--cloud", CLOUD])).await
    }

    fn objects(&self) -> Api<Deorbit> {
        self.tenant.objects()
    }

    async fn create(&self) -> Result<()> {
        let deorbit: Deorbit = serde_json::from_value(json!({
        "apiVersion": "deorbiter.perimeter.dev/v1alpha1", "kind": "Deorbit", "metadata": {"name": NAME},
        "spec": {
            "inCluster": true, "clusterName": NAME,
            "openstack": {"identityRef": {"name": SECRET, "cloudName": CLOUD}},
        }}))?;
        self.objects().create(&PostParams::default(), &deorbit).await?;
        Ok(())
    }

    /// Shows each phase, and how much remains, until it is over.
    async fn follow(&self, screen: &Screen) -> Result<()> {
        let begun = Instant::now();
        let mut shown = String::new();
        loop {
            let status = self.objects().get(NAME).await?.status.unwrap_or_default();
            let line = format!("{}, {} remaining", status.phase, status.remaining);
            if line != shown {
                screen.event(begun.elapsed(), "deorbit", &line);
                shown = line;
            }
            if status.phase == Phase::Complete {
                let complete = status.conditions.iter().find(|condition| condition.kind == "Complete");
                screen.because(&complete.context("a Deorbit that is over has a condition")?.message);
                return Ok(());
            }
            ensure!(!status.phase.is_final(), "it ended otherwise: {status:#?}");
            if begun.elapsed() > WITHIN {
                bail!("not complete after {WITHIN:?}: {status:#?}");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn list(&self, service: Service, path: &str, key: &str) -> Result<Vec<Value>> {
        let answer = self.tenant.project.api().get(service, path).await?;
        answer.get(key).and_then(Value::as_array).cloned().with_context(|| format!("{path} has no {key}"))
    }

    async fn volumes(&self) -> Result<Vec<[String; 3]>> {
        let text =
            |each: &Value, key: &str| each.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let volumes = self.list(Service::BlockStorage, "/volumes/detail", "volumes").await?;
        Ok(volumes.iter().map(|each| [text(each, "name"), text(each, "status"), text(each, "id")]).collect())
    }

    async fn balancers(&self) -> Result<Vec<[String; 3]>> {
        let text =
            |each: &Value, key: &str| each.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let all = self.list(Service::LoadBalancer, "/loadbalancers", "loadbalancers").await?;
        Ok(all
            .iter()
            .map(|each| [text(each, "name"), text(each, "provisioning_status"), text(each, "id")])
            .collect())
    }

    async fn cloud(&self, screen: &Screen) -> Result<()> {
        screen.command(
            "openstack volume list && openstack volume snapshot list && openstack loadbalancer list",
        );
        let mut rows: Vec<_> =
            self.volumes().await?.into_iter().map(|[a, b, c]| ["volume".to_owned(), a, b, c]).collect();
        for each in self.list(Service::BlockStorage, "/snapshots", "snapshots").await? {
            let text = |key: &str| each.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            rows.push(["snapshot".to_owned(), text("name"), text("status"), text("id")]);
        }
        rows.extend(
            self.balancers().await?.into_iter().map(|[a, b, c]| ["load balancer".to_owned(), a, b, c]),
        );
        screen.table(["what", "name", "status", "id"], &rows);
        Ok(())
    }
}
