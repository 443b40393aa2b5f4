//! `demo apinetlet`: a tenant's network, on the API servers and controllers of ironcore and ironcore-net.

mod state;

use std::time::Instant;

use anyhow::{Result, bail};
use apinetlet::api::network_policy::{NetworkPolicyRule, SourceNetworkPolicy};
use apinetlet::api::{ApiKind, SourceKind, apinet, source};
use apinetlet::names::Flavor;
use e2e::ironcore::Ironcore;
use e2e::machine_pool::{MachinePool, apply};
use e2e::program::{Program, built};
use e2e::wait::until;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::screen::Screen;

/// For documentation, and short enough for a line.
const PUBLIC_PREFIXES: [&str; 2] = ["192.0.2.0/24", "2001:db8::/120"];
/// The interfaces of the tenant's machines: name, label, address.
const INTERFACES: [(&str, &str, &str); 3] =
    [("web-1", "web", "10.1.0.1"), ("web-2", "web", "10.1.0.2"), ("db", "db", "10.1.0.3")];
/// The Node of all machines.
const NODE: &str = "node-1";

pub(crate) async fn run(screen: &Screen) -> Result<()> {
    screen.title("1/5 ── Two clusters");
    screen.say(
        "The source cluster has the networking API of ironcore, for its tenants. The apinet cluster has ironcore-net, which \
         allocates network IDs and public addresses. Here one control plane has both roles, with the API servers and \
         controllers of the two projects: a namespace of the tenant, and a namespace of apinetlet.",
    );
    let demo = screen.progress("Starting the API servers and controllers", Demo::start(screen)).await?;
    screen.command("apinetlet --kubeconfig=source.kubeconfig --api-net-kubeconfig=apinet.kubeconfig \\");
    screen.command(&format!("    --api-net-namespace={}", demo.apinet));

    screen.title("2/5 ── A tenant creates a network");
    screen.command("kubectl apply -f network.yaml");
    let began = Instant::now();
    demo.create().await?;
    demo.until_mapped(began).await?;
    demo.show_both().await?;
    screen.because(
        "Each apinet object has the UID of its source object as name. IDs and addresses are allocated there, and written back.",
    );

    screen.title("3/5 ── Machines start");
    screen.say(
        "The MachinePool creates an apinet NetworkInterface for each interface of a machine, and writes its name and UID into \
         the provider ID of the source object. apinetlet claims it by labels, and reports its state.",
    );
    screen.command("kubectl apply -f machines.yaml");
    let began = Instant::now();
    demo.start_machines().await?;
    demo.until_connected(began).await?;
    demo.show_both().await?;
    screen.because(
        "The load balancer has the two web interfaces as targets. The policy means their addresses, because the labels of the \
         source objects are copied.",
    );

    screen.title("4/5 ── A machine gets a public address");
    let patch = json!({ "spec": { "virtualIP": { "virtualIPRef": { "name": "public" } } } });
    screen.command(&format!("kubectl patch nic db --type merge -p '{patch}'"));
    let began = Instant::now();
    let interfaces = demo.pool.source::<source::NetworkInterface>();
    interfaces.patch("db", &PatchParams::default(), &Patch::Merge(patch)).await?;
    demo.until_public(began).await?;
    demo.show_both().await?;
    screen.because("The interface has left NAT: a packet of it has the public address as source address.");

    screen.title("5/5 ── The tenant deletes everything");
    screen.command("kubectl delete -f machines.yaml -f network.yaml");
    let began = Instant::now();
    demo.delete().await?;
    demo.until_empty(began).await?;
    demo.show_empty();

    screen.title("What you have seen");
    screen.say(
        "apinetlet as a Deployment runs it, between the real API servers. Network IDs and addresses are free again. Only the \
         MachinePool was simulated, and no packet was sent. Everything ran on the loopback interface and is removed now. \
         docs/apinetlet.md describes the mapping.",
    );
    Ok(())
}

struct Demo<'a> {
    screen: &'a Screen,
    pool: MachinePool,
    source: String,
    apinet: String,
    program: Program,
    _ironcore: Ironcore,
}

impl<'a> Demo<'a> {
    async fn start(screen: &'a Screen) -> Result<Self> {
        let mut ironcore = Ironcore::with_public_prefixes(&PUBLIC_PREFIXES).await?;
        ironcore.start_source_controllers().await?;
        let control_plane = &ironcore.control_plane;
        let (source, apinet) =
            (control_plane.namespace("team").await?, control_plane.namespace("apinet").await?);
        let kubeconfig = control_plane.kubeconfig().display();
        let program = Program::at(built("apinetlet")?)
            .args([
                format!("--kubeconfig={kubeconfig}"),
                format!("--api-net-kubeconfig={kubeconfig}"),
                format!("--namespace={source}"),
                format!("--own-namespace={apinet}"),
                format!("--api-net-namespace={apinet}"),
                "--health-probe-bind-address=127.0.0.1:0".to_owned(),
            ])
            .start()?;
        let pool = MachinePool::new(control_plane.client(), Flavor::Ironcore, &source, &apinet);
        let demo = Self { screen, pool, source, apinet, program, _ironcore: ironcore };
        until("apinetlet is ready", async || {
            Ok(demo.program.get("/readyz").await?.0.is_success().then_some(()))
        })
        .await?;
        Ok(demo)
    }

    async fn create_one<K: SourceKind>(&self, name: &str, spec: Value) -> Result<()> {
        apply(&self.pool.source::<K>(), name, json!({}), json!({ "spec": spec })).await.map(drop)
    }

    async fn create(&self) -> Result<()> {
        let network = json!({ "name": "net" });
        self.create_one::<source::Network>("net", json!({})).await?;
        self.create_one::<source::VirtualIp>("public", json!({ "type": "Public", "ipFamily": "IPv4" }))
            .await?;
        let spec = json!({ "type": "Public", "ipFamily": "IPv4", "networkRef": network });
        self.create_one::<source::NatGateway>("out", spec).await?;
        let web = json!({ "matchLabels": { "app": "web" } });
        let spec = json!({
            "type": "Public", "ipFamilies": ["IPv4", "IPv6"], "networkRef": network,
            "networkInterfaceSelector": web, "ports": [{ "protocol": "TCP", "port": 443 }],
        });
        self.create_one::<source::LoadBalancer>("web", spec).await?;
        let peer =
            json!({ "objectSelector": { "kind": "NetworkInterface", "matchLabels": { "app": "db" } } });
        let spec = json!({
            "networkRef": network, "networkInterfaceSelector": web, "policyTypes": ["Ingress"],
            "ingress": [{ "ports": [{ "protocol": "TCP", "port": 443 }], "from": [peer] }],
        });
        self.create_one::<SourceNetworkPolicy>("web", spec).await
    }

    async fn start_machines(&self) -> Result<()> {
        for (name, app, ip) in INTERFACES {
            let spec =
                json!({ "networkRef": { "name": "net" }, "ipFamilies": ["IPv4"], "ips": [{ "value": ip }] });
            let labels = json!({ "labels": { "app": app } });
            let sources = self.pool.source::<source::NetworkInterface>();
            apply(&sources, name, labels, json!({ "spec": spec })).await?;
            let interface = self.pool.attach(name, NODE).await?;
            self.pool.set_state(&interface, "Ready").await?;
        }
        Ok(())
    }

    async fn until_mapped(&self, began: Instant) -> Result<()> {
        let available = |one: &source::Network| one.status.state == "Available";
        self.until(began, "net", "the Network has its ID", available).await?;
        let has_address = |one: &source::VirtualIp| one.status.ip.is_some();
        self.until(began, "public", "the VirtualIP has its address", has_address).await?;
        let has_address = |one: &source::NatGateway| one.status.ips.len() == 1;
        self.until(began, "out", "the NATGateway has an address", has_address).await?;
        let has_both = |one: &source::LoadBalancer| one.status.ips.len() == 2;
        self.until(began, "web", "the LoadBalancer has an address of each family", has_both).await?;
        let rule = self.uid::<SourceNetworkPolicy>("web").await?;
        let what = "the NetworkPolicy has a rule";
        self.until_in(self.pool.apinet(), began, &rule, what, |_: &NetworkPolicyRule| true).await
    }

    async fn until_connected(&self, began: Instant) -> Result<()> {
        for (name, ..) in INTERFACES {
            let available = |one: &source::NetworkInterface| one.status.state == "Available";
            self.until(began, name, &format!("interface {name} is Available"), available).await?;
            let has_nat = |one: &apinet::NetworkInterface| one.spec.nat_gateways.len() == 1;
            let what = format!("interface {name} has NAT");
            self.until_in(self.pool.apinet(), began, &format!("machine-{name}"), &what, has_nat).await?;
        }
        let routing = self.uid::<source::LoadBalancer>("web").await?;
        let has_targets = |one: &apinet::LoadBalancerRouting| one.destinations.len() == 2;
        let what = "the load balancer has two targets";
        self.until_in(self.pool.apinet(), began, &routing, what, has_targets).await?;
        let rule = self.uid::<SourceNetworkPolicy>("web").await?;
        let means = |one: &NetworkPolicyRule| {
            one.targets.len() == 2 && one.ingress.iter().map(|rule| rule.ips.len()).sum::<usize>() == 1
        };
        let what = "the policy means two addresses and one peer";
        self.until_in(self.pool.apinet(), began, &rule, what, means).await
    }

    async fn until_public(&self, began: Instant) -> Result<()> {
        let interfaces = self.pool.apinet::<apinet::NetworkInterface>();
        let is_public = |one: &apinet::NetworkInterface| {
            one.spec.public_ips.len() == 1 && one.spec.nat_gateways.is_empty()
        };
        let what = "the apinet interface has the address, and no NAT";
        self.until_in(interfaces.clone(), began, "machine-db", what, is_public).await?;
        self.pool.set_state(&interfaces.get("machine-db").await?, "Ready").await?;
        let is_reported = |one: &source::NetworkInterface| one.status.virtual_ip.is_some();
        self.until(began, "db", "the source interface reports it", is_reported).await
    }

    async fn delete(&self) -> Result<()> {
        for (name, ..) in INTERFACES {
            self.pool.detach(name).await?;
        }
        self.delete_all::<SourceNetworkPolicy>().await?;
        self.delete_all::<source::LoadBalancer>().await?;
        self.delete_all::<source::NatGateway>().await?;
        self.delete_all::<source::VirtualIp>().await?;
        self.delete_all::<source::NetworkInterface>().await?;
        self.delete_all::<source::Network>().await
    }

    async fn delete_all<K: SourceKind>(&self) -> Result<()> {
        let all = ListParams::default();
        self.pool.source::<K>().delete_collection(&DeleteParams::default(), &all).await?;
        Ok(())
    }

    async fn until_empty(&self, began: Instant) -> Result<()> {
        let is_empty = async || {
            self.check_running()?;
            Ok((self.source_objects().await? == 0 && self.apinet_objects().await? == 0).then_some(()))
        };
        until("the end of all objects of both sides", is_empty).await?;
        self.done("both sides are empty", began);
        Ok(())
    }

    /// Waits until a source object is as described.
    async fn until<K: SourceKind>(
        &self,
        began: Instant,
        name: &str,
        what: &str,
        holds: impl Fn(&K) -> bool,
    ) -> Result<()> {
        self.until_in(self.pool.source(), began, name, what, holds).await
    }

    async fn until_in<K: ApiKind>(
        &self,
        api: Api<K>,
        began: Instant,
        name: &str,
        what: &str,
        holds: impl Fn(&K) -> bool,
    ) -> Result<()> {
        let is_so = async || {
            self.check_running()?;
            Ok(api.get_opt(name).await?.filter(&holds).map(drop))
        };
        until(what, is_so).await?;
        self.done(what, began);
        Ok(())
    }

    fn check_running(&self) -> Result<()> {
        match self.program.exited()? {
            Some(status) => bail!("apinetlet ended: {status}\n{}", self.program.output().lines().join("\n")),
            None => Ok(()),
        }
    }

    fn done(&self, what: &str, began: Instant) {
        self.screen.success(what, &format!("after {:.1} s", began.elapsed().as_secs_f64()));
    }

    async fn uid<K: SourceKind>(&self, name: &str) -> Result<String> {
        Ok(self.pool.source::<K>().get(name).await?.uid().unwrap_or_default())
    }
}
