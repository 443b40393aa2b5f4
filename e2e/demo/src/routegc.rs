//! `demo routegc`: a node is deleted, its route stays in a real Neutron, and routegc removes it.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use common::api::routegc::RouteGC;
use e2e::control_plane::ControlPlane;
use e2e::natgw::wait_for;
use e2e::openstack::{CLOUD, OpenStack, Parts, Release, Service};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::screen::Screen;
use crate::tenant::{SECRET, Tenant, printed};

/// The RouteGC, and the project in OpenStack.
const NAME: &str = "prod";
/// The cluster's pod network.
const PODS: &str = "10.244.0.0/16";
/// The nodes' addresses and pod networks.
const NODES: [(&str, &str); 3] =
    [("10.7.0.11", "10.244.1.0/24"), ("10.7.0.12", "10.244.2.0/24"), ("10.7.0.13", "10.244.3.0/24")];
/// A route that does not belong to the cluster, although its next hop is a node.
const OFFICE: (&str, &str) = ("10.7.0.12", "172.16.0.0/24");
/// The shortest that a RouteGC accepts; the default of five minutes is long for a demo.
const INTERVAL: &str = "10s";
/// Longer than the interval, as `minAge` should be.
const MIN_AGE: &str = "15s";

pub(crate) async fn run(screen: &Screen) -> Result<()> {
    screen.title("1/5 ── A cloud, a router, three nodes");
    screen.say(
        "Keystone and Neutron as their projects publish them, with etcd and kube-apiserver, all on this machine's loopback \
         interface. The router has a route to the pod network of each node, as OpenStack's cloud controller manager creates \
         them, and a route to an office network that does not belong to the cluster.",
    );
    let demo = screen.progress("Starting OpenStack and Kubernetes", RoutegcDemo::start(screen)).await?;
    demo.show_routes().await?;

    screen.title("2/5 ── A node is deleted, its route stays");
    screen.command(&format!("openstack port delete <port of {}>", NODES[1].0));
    demo.delete_node().await?;
    screen.say("The cloud controller manager was not running at that moment. The router is unchanged:");
    demo.show_routes().await?;

    screen.title("3/5 ── A dry run");
    let router = &demo.tenant.project.router;
    screen.command(&format!(
        "routegc --router-id {router} --cluster-cidr {PODS} --all-next-hops-are-ports --dry-run"
    ));
    let arguments = ["--router-id", router, "--cluster-cidr", PODS, "--all-next-hops-are-ports", "--dry-run"];
    screen.output(&printed(demo.tenant.launch().env("OS_CLOUD", CLOUD).args(arguments)).await?);
    screen.say(
        "One route is orphaned: nothing has the address of its next hop. There is nothing to do, because routegc only reports \
         in mode Audit. The office's route is foreign, because its destination is outside of the pod network.",
    );

    screen.title("4/5 ── A RouteGC in mode Audit, the default: it reports");
    screen.command("kubectl apply -f routegc.yaml    # mode: Audit");
    let _controller = demo.tenant.controller()?;
    demo.create().await?;
    demo.until_orphans("the orphaned route is counted", 1).await?;
    demo.show().await?;
    ensure!(demo.tenant.project.routes().await?.len() == NODES.len() + 1, "Audit has changed the router");
    screen.say("The router is unchanged.");

    screen.title("5/5 ── Mode Enforce: it removes");
    screen.command("kubectl patch routegc prod --type merge -p '{\"spec\":{\"mode\":\"Enforce\"}}'");
    let began = Instant::now();
    let patch = Patch::Merge(json!({"spec": {"mode": "Enforce"}}));
    demo.objects().patch(NAME, &PatchParams::default(), &patch).await?;
    screen.say(
        "A route is removed when it was orphaned in two reconciliations in a row, and for a minimum time: 15 seconds here, five \
         minutes by default.",
    );
    demo.until_orphans("the orphaned route is removed", 0).await?;
    screen.success("the orphaned route is removed", &format!("after {:.0} s", began.elapsed().as_secs_f64()));
    demo.show().await?;
    demo.show_routes().await?;
    let left: Vec<_> = demo.tenant.project.routes().await?.into_iter().map(|(to, _)| to).collect();
    ensure!(
        left == [NODES[0].1, NODES[2].1, OFFICE.1],
        "the routes to two nodes and the office are expected, but the router has {left:?}"
    );
    demo.show_events().await?;

    screen.title("What you have seen");
    screen.say(
        "routegc as a Deployment runs it, on a real Neutron and a real API server. The next hop of the office's route is the \
         deleted node too, but routegc kept this route, because its destination is outside of the pod network. Everything ran \
         on the loopback interface and is removed now. docs/routegc.md describes the installation.",
    );
    Ok(())
}

struct RoutegcDemo<'a> {
    screen: &'a Screen,
    tenant: Tenant,
    _cloud: OpenStack,
}

impl<'a> RoutegcDemo<'a> {
    async fn start(screen: &'a Screen) -> Result<Self> {
        let cloud = OpenStack::start(Parts::KeystoneNeutron, Release::Main, Default::default()).await?;
        let project = cloud.project(NAME).await?;
        for (address, _) in NODES {
            project.port(Some(address), Some("3f9d1c1e-0000-4000-8000-000000000001")).await?;
        }
        project.add_routes(&NODES.map(|(via, to)| (to, via))).await?;
        project.add_routes(&[(OFFICE.1, OFFICE.0)]).await?;
        let tenant = Tenant::new::<RouteGC>("routegc", project, ControlPlane::start().await?).await?;
        Ok(Self { screen, tenant, _cloud: cloud })
    }

    fn objects(&self) -> Api<RouteGC> {
        self.tenant.objects()
    }

    async fn create(&self) -> Result<()> {
        let gc: RouteGC = serde_json::from_value(json!({
            "apiVersion": "routegc.perimeter.dev/v1alpha1", "kind": "RouteGC", "metadata": {"name": NAME},
            "spec": {
                "identityRef": {"name": SECRET, "cloudName": CLOUD}, "routerID": self.tenant.project.router,
                "podCIDRs": [PODS], "interval": INTERVAL, "safety": {"minAge": MIN_AGE, "allNextHopsArePorts": true},
            },
        }))?;
        self.objects().create(&PostParams::default(), &gc).await?;
        Ok(())
    }

    async fn delete_node(&self) -> Result<()> {
        let api = self.tenant.project.api();
        let list = format!("/ports?fixed_ips=ip_address%3D{}", NODES[1].0);
        let ports = api.get(Service::Network, &list).await?;
        let id = ports.pointer("/ports/0/id").and_then(|id| id.as_str()).context("the node has no port")?;
        let port = format!("/ports/{id}");
        // Neutron refuses to delete a port that belongs to a server.
        let unowned = json!({"port": {"device_owner": "", "device_id": ""}});
        api.put(Service::Network, &port, unowned).await?;
        api.delete(Service::Network, &port).await
    }

    async fn until_orphans(&self, what: &str, count: u32) -> Result<()> {
        let objects = self.objects();
        wait_for(what, || async {
            let counts = objects.get(NAME).await?.status.and_then(|status| status.counts);
            Ok(counts.is_some_and(|counts| counts.orphan == count))
        })
        .await
    }

    /// As `kubectl get routegc` prints it.
    async fn show(&self) -> Result<()> {
        let gc = self.objects().get(NAME).await?;
        let status = gc.status.unwrap_or_default();
        let ready = status.conditions.iter().find(|condition| condition.kind == "Ready");
        let ready = ready.context("the RouteGC has no condition Ready")?;
        let or_empty = |count: Option<u32>| count.map_or_else(String::new, |count| count.to_string());
        self.screen.command("kubectl get routegc prod");
        self.screen.table(
            ["mode", "ready", "reason", "routes", "orphans"],
            &[[
                format!("{:?}", gc.spec.mode),
                format!("{:?}", ready.status),
                ready.reason.clone(),
                or_empty(status.quota.map(|quota| quota.routes)),
                or_empty(status.counts.map(|counts| counts.orphan)),
            ]],
        );
        self.screen.because(&ready.message);
        Ok(())
    }

    async fn show_routes(&self) -> Result<()> {
        self.screen.command(&format!("openstack router show {} -c routes", self.tenant.project.router));
        let routes = self.tenant.project.routes().await?;
        let rows: Vec<_> = routes.into_iter().map(|(to, via)| [to, via]).collect();
        self.screen.table(["destination", "next hop"], &rows);
        Ok(())
    }

    async fn show_events(&self) -> Result<()> {
        self.screen.command("kubectl get events");
        for event in self.tenant.objects::<Event>().list(&ListParams::default()).await?.items {
            if event.involved_object.kind.as_deref() == Some("RouteGC") {
                let text = |field: Option<String>| field.unwrap_or_default();
                self.screen.fact(&text(event.reason), &text(event.message));
            }
        }
        Ok(())
    }
}
