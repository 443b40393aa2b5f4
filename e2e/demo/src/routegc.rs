//! `demo routegc`: a route outlives its node, on a real Neutron, and goes.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use common::api::routegc::RouteGC;
use e2e::control_plane::ControlPlane;
use e2e::natgw::wait_for;
use e2e::openstack::{CLOUD, OpenStack, Parts, Release, Service};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::prerequisite::{built, no_cluster_of_yours};
use crate::screen::Screen;
use crate::tenant::{SECRET, Tenant};

/// The object that is played with.
const NAME: &str = "prod";
/// The cluster's pod network.
const PODS: &str = "10.244.0.0/16";
/// Its nodes' addresses, and their pod networks.
const NODES: [(&str, &str); 3] =
    [("10.7.0.11", "10.244.1.0/24"), ("10.7.0.12", "10.244.2.0/24"), ("10.7.0.13", "10.244.3.0/24")];
/// A route that is nobody's of the cluster.
const OFFICE: (&str, &str) = ("10.7.0.12", "172.16.0.0/24");
/// As often as a RouteGC may look: five minutes are long to wait for.
const INTERVAL: &str = "10s";
/// Twice the interval, as long as a dead route is left alone here.
const MIN_AGE: &str = "15s";

/// Plays it. It returns when all was seen; all that was started ends when this is dropped or killed.
pub(crate) async fn play(screen: &Screen) -> Result<()> {
    screen.title("1/5 ── A cloud, a router, three nodes");
    screen.say(
        "Keystone and Neutron as their projects publish them, on this machine's loopback; etcd and kube-apiserver beside them. \
         The router has a route into the pod network of each node, as OpenStack's cloud controller manager writes them, and one \
         that somebody else wrote.",
    );
    let begun = Instant::now();
    let stage = Stage::set().await?;
    screen.fact("ready", &format!("after {:.0} s", begun.elapsed().as_secs_f64()));
    stage.routes(screen).await?;

    screen.title("2/5 ── A node dies, and nobody takes its route away");
    screen.command(&format!("openstack port delete <port of {}>", NODES[1].0));
    stage.kill_a_node().await?;
    screen.say("The cloud controller manager was not there at that moment. The routes stand as before:");
    stage.routes(screen).await?;

    screen.title("3/5 ── What would routegc do?");
    screen.command(&format!(
        "routegc --router-id {} --cluster-cidr {PODS} --dry-run",
        stage.tenant.project.router
    ));
    screen.output(&stage.dry_run().await?);

    screen.title("4/5 ── A RouteGC in mode Audit, the default: it reports");
    screen.command("kubectl apply -f routegc.yaml    # mode: Audit");
    let _controller = stage.tenant.controller()?;
    stage.create().await?;
    stage.wait("the dead route is counted", |gc| orphans(gc) == Some(1)).await?;
    stage.show(screen).await?;
    ensure!(stage.tenant.project.routes().await?.len() == NODES.len() + 1, "Audit has changed the router");
    screen.say("The router is as it was.");

    screen.title("5/5 ── mode: Enforce");
    screen.command("kubectl patch routegc prod --type merge -p '{\"spec\":{\"mode\":\"Enforce\"}}'");
    let patch = Patch::Merge(json!({"spec": {"mode": "Enforce"}}));
    stage.objects().patch(NAME, &PatchParams::default(), &patch).await?;
    screen.say(
        "A route must be found dead twice in a row, and for a while, before it goes; here a quarter of a minute, usually five.",
    );
    let begun = Instant::now();
    stage.wait("the dead route is gone", |gc| orphans(gc) == Some(0)).await?;
    screen.seen("the dead route is gone", &format!("after {:.0} s", begun.elapsed().as_secs_f64()));
    stage.show(screen).await?;
    stage.routes(screen).await?;
    let left: Vec<_> = stage.tenant.project.routes().await?.into_iter().map(|(to, _)| to).collect();
    ensure!(
        left == [NODES[0].1, NODES[2].1, OFFICE.1],
        "other routes than the two living nodes' and the office's are left: {left:?}"
    );
    stage.events(screen).await?;

    screen.title("What you have seen");
    screen.say(
        "The program as a Deployment runs it, a real Neutron and a real API server. The route to the office has the dead node's \
         address as its next hop too, and was left alone: it is outside of the pod network. All of it was on loopback, and is \
         gone now. docs/routegc.md says how to install it.",
    );
    Ok(())
}

fn orphans(gc: &RouteGC) -> Option<u32> {
    gc.status.as_ref()?.counts.as_ref().map(|counts| counts.orphan)
}

struct Stage {
    tenant: Tenant,
    _cloud: OpenStack,
}

impl Stage {
    async fn set() -> Result<Stage> {
        no_cluster_of_yours()?;
        let program = built("routegc")?;
        let cloud = OpenStack::start(Parts::KeystoneNeutron, Release::Main, Default::default()).await?;
        let project = cloud.project("prod").await?;
        for (address, _) in NODES {
            project.port(Some(address), Some("3f9d1c1e-0000-4000-8000-000000000001")).await?;
        }
        let own = NODES.map(|(via, to)| (to, via));
        project.add_routes(&own).await?;
        project.add_routes(&[(OFFICE.1, OFFICE.0)]).await?;
        let tenant =
            Tenant::new::<RouteGC>(program, "routegc", project, ControlPlane::start().await?).await?;
        Ok(Stage { tenant, _cloud: cloud })
    }

    fn objects(&self) -> Api<RouteGC> {
        self.tenant.objects()
    }

    async fn dry_run(&self) -> Result<String> {
        let router = ["--router-id", &self.tenant.project.router];
        let rest = ["--cluster-cidr", PODS, "--dry-run"];
        self.tenant.ask(self.tenant.launch().env("OS_CLOUD", CLOUD).args(router).args(rest)).await
    }

    async fn kill_a_node(&self) -> Result<()> {
        let address = NODES[1].0;
        let ports = self
            .tenant
            .project
            .api()
            .get(Service::Network, &format!("/ports?fixed_ips=ip_address%3D{address}"))
            .await?;
        let id = ports.pointer("/ports/0/id").and_then(|id| id.as_str()).context("the node's port")?;
        // Neutron of 2026.2 lets a project delete a server's port only when it is nobody's.
        let nobody = json!({"port": {"device_owner": "", "device_id": ""}});
        self.tenant.project.api().put(Service::Network, &format!("/ports/{id}"), nobody).await?;
        self.tenant.project.api().delete(Service::Network, &format!("/ports/{id}")).await
    }

    async fn create(&self) -> Result<()> {
        let gc: RouteGC = serde_json::from_value(json!({
        "apiVersion": "routegc.perimeter.dev/v1alpha1", "kind": "RouteGC", "metadata": {"name": NAME},
        "spec": {
            "identityRef": {"name": SECRET, "cloudName": CLOUD}, "routerID": self.tenant.project.router,
            "podCIDRs": [PODS], "interval": INTERVAL, "safety": {"minAge": MIN_AGE},
        }}))?;
        self.objects().create(&PostParams::default(), &gc).await?;
        Ok(())
    }

    async fn wait(&self, what: &str, holds: impl Fn(&RouteGC) -> bool) -> Result<()> {
        let objects = self.objects();
        wait_for(what, || async { Ok(holds(&objects.get(NAME).await?)) }).await
    }

    /// As `kubectl get routegc` has it.
    async fn show(&self, screen: &Screen) -> Result<()> {
        let gc = self.objects().get(NAME).await?;
        let status = gc.status.unwrap_or_default();
        let ready = status.conditions.iter().find(|condition| condition.kind == "Ready");
        let ready = ready.context("a RouteGC that was looked at has a condition")?;
        screen.command("kubectl get routegc prod");
        let quota = status.quota.map_or_else(String::new, |quota| quota.routes.to_string());
        let orphans = status.counts.map_or_else(String::new, |counts| counts.orphan.to_string());
        screen.table(
            ["mode", "ready", "reason", "routes", "orphans"],
            &[[
                format!("{:?}", gc.spec.mode),
                format!("{:?}", ready.status),
                ready.reason.clone(),
                quota,
                orphans,
            ]],
        );
        screen.because(&ready.message);
        Ok(())
    }

    async fn routes(&self, screen: &Screen) -> Result<()> {
        screen.command("openstack router show nodes -c routes");
        let rows: Vec<_> =
            self.tenant.project.routes().await?.into_iter().map(|(to, via)| [to, via]).collect();
        screen.table(["destination", "next hop"], &rows);
        Ok(())
    }

    async fn events(&self, screen: &Screen) -> Result<()> {
        let events: Api<Event> = self.tenant.objects();
        screen.command("kubectl get events");
        for event in events.list(&ListParams::default()).await?.items {
            if event.involved_object.kind.as_deref() == Some("RouteGC") {
                screen.fact(
                    event.reason.as_deref().unwrap_or_default(),
                    event.message.as_deref().unwrap_or_default(),
                );
            }
        }
        Ok(())
    }
}
