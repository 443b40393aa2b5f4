//! `demo cgw`: a Service's VIP as its ingress and egress address on real nodes, with clients that poll both ways.

mod environment;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::cgw::{GATEWAY_LABEL, GATEWAYS, Installation, NAMESPACE};
use e2e::cluster::{Cluster, Prober, SEGMENT_GATEWAY};
use e2e::wait::until;

use crate::Options;
use crate::screen::Screen;
use environment::{Environment, Pod, WORKER};

/// The VIPs of Service `a` and of Service `b`, in the network of the gateways' second interface.
const VIPS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 18, 50, 201), Ipv4Addr::new(198, 18, 50, 202)];
/// When Kubernetes marks a silent Node as NotReady.
const GRACE: Duration = Duration::from_secs(8);
/// Probes in a row, a second without an interruption.
const STREAK: usize = 50;

pub(crate) async fn run(screen: &Screen, options: Options) -> Result<()> {
    screen.title("1/5 ── Three machines, and a network outside");
    screen.say(
        "Each node is a set of namespaces with its own root directory, kubelet, containerd and kube-proxy. All of them have a \
         second interface, eth1, in a network that reaches the outside, and packets of pods leave with the address of their node. \
         node-1 and node-2 are the gateways.",
    );
    let cluster = Cluster::builder().nodes(3).grace(GRACE).start();
    let cluster = screen.progress("Starting a cluster of three nodes", cluster).await?;
    let environment = Environment::on(cluster, VIPS).await?;
    let demo = Demo { screen, pause: options.pause, environment };
    demo.install().await?;
    let pods = demo.bind().await?;
    demo.fail_over(&pods).await?;
    demo.unbind(&pods).await?;
    screen.title("What you have seen");
    screen.say(
        "One address for both directions of a Service, from the images and manifests that users get, on kubelets, with packets that a \
         host outside received. Only the machines' hardware was simulated.",
    );
    if options.keep {
        demo.keep().await?;
    }
    Ok(())
}

struct Demo<'a> {
    screen: &'a Screen,
    pause: bool,
    environment: Environment,
}

impl Demo<'_> {
    async fn install(&self) -> Result<()> {
        self.chapter("2/5 ── kubectl apply -k: controller, keeper, agent").await;
        let images = self.environment.give_images();
        self.screen.progress("Building the images", images).await?;
        for name in GATEWAYS {
            self.kubectl(&format!("label node {name} {GATEWAY_LABEL}=")).await?;
        }
        self.screen.command("cat router-51/keeper.yaml");
        self.screen.output(&self.environment.keeper()?);
        self.screen.command(
            "kubectl apply -k .   # manifests/cgw-controller, agent, router-51, and the certificate",
        );
        self.environment.installation.apply(&self.environment.cluster).await?;
        let master = self.master(None).await?;
        self.screen.success("keepalived has a MASTER", &master);
        self.kubectl(&format!("-n {NAMESPACE} get pods -o wide")).await
    }

    async fn bind(&self) -> Result<[Pod; 2]> {
        self.chapter("3/5 ── One address for both directions").await;
        let [vip, other] = VIPS;
        self.screen.say(&format!("Services a and b have one pod each, on {WORKER}."));
        let pods = self.environment.pods().await?;
        let [a, _] = &pods;
        let node = self.environment.cluster.machine(WORKER).segment_ip()?;
        self.until_source(a, node).await?;
        self.screen.success("a host outside sees pod a with its node's address", &node.to_string());
        for (address, service) in [(vip, "a"), (other, "b")] {
            self.ctl(&format!("bind {address} demo {service}")).await?;
        }
        self.ctl("list").await?;
        let since = Instant::now();
        let prober = Prober::start_in(&a.network()?)?;
        prober.wait(Some(vip), since).await?;
        self.screen.success("egress: a host outside sees pod a as", &vip.to_string());
        let client = until("a response of the VIP", async || self.environment.client_of(vip).await).await?;
        ensure!(client == SEGMENT_GATEWAY, "ingress: pod a sees its client as {client}");
        self.screen.success("ingress: through the VIP, pod a sees its client as", &client.to_string());
        let seen = until("the hairpin", async || a.client_of(other).await).await?;
        ensure!(seen == vip, "hairpin: pod b sees pod a as {seen}");
        self.screen.success("hairpin: through b's VIP, pod b sees pod a as", &seen.to_string());
        drop(prober);
        self.screen.command(&format!("cgw ctl trace {} -n demo", a.name));
        self.screen.output(&self.environment.trace(&a.name).await?);
        Ok(pods)
    }

    async fn fail_over(&self, [a, _]: &[Pod; 2]) -> Result<()> {
        self.chapter("4/5 ── The gateway is powered off").await;
        let master = self.master(None).await?;
        let egress = Prober::start_in(&a.network()?)?;
        let ingress = self.environment.probe_ingress(VIPS[0])?;
        let begun = Instant::now();
        let steady = async |since| {
            until("both ways to work", async || {
                let is_steady = egress.streak(VIPS[0], since) >= STREAK
                    && ingress.streak(SEGMENT_GATEWAY, since) >= STREAK;
                Ok(is_steady.then_some(()))
            })
            .await
        };
        steady(begun).await?;
        let since = Instant::now();
        self.screen.command(&format!("e2e/cluster/machine.sh stop {master}"));
        self.environment.cluster.machine(&master).stop().await?;
        let next = self.master(Some(&master)).await?;
        self.screen.event(since.elapsed(), "keeper", &format!("{next} is MASTER"));
        steady(Instant::now()).await?;
        for (what, prober) in [("Egress is back", &egress), ("Ingress is back", &ingress)] {
            let (gap, lost) = prober.longest_gap(since);
            self.screen.success(what, &format!("{:.2} s gap, {lost} lost", gap.as_secs_f64()));
        }
        let sources = egress.since(begun).into_iter().filter_map(|probe| probe.seen);
        let wrong = sources.filter(|source| *source != VIPS[0]).count();
        self.screen.fact("packets with a wrong source", &wrong.to_string());
        ensure!(wrong == 0, "{wrong} packets left with another source than the VIP");
        // The cluster's only CoreDNS may be on it, which `cgw ctl` in a container needs.
        self.screen.command(&format!("e2e/cluster/machine.sh start {master}"));
        self.environment.cluster.machine(&master).start().await?;
        self.kubectl(&format!("wait node/{master} --for=condition=Ready --timeout=600s")).await?;
        self.kubectl("-n kube-system rollout status deployment/coredns --timeout=600s").await
    }

    async fn unbind(&self, [a, _]: &[Pod; 2]) -> Result<()> {
        self.chapter("5/5 ── The binding ends").await;
        let [vip, other] = VIPS;
        for (address, service) in [(vip, "a"), (other, "b")] {
            self.ctl(&format!("unbind {address} demo {service}")).await?;
        }
        let node = self.environment.cluster.machine(WORKER).segment_ip()?;
        self.until_source(a, node).await?;
        self.screen.success("a host outside sees pod a with its node's address", &node.to_string());
        self.screen.command(&format!("cgw ctl trace {} -n demo", a.name));
        self.screen.output(&self.environment.trace(&a.name).await?);
        Ok(())
    }

    async fn keep(&self) -> Result<()> {
        let cluster = &self.environment.cluster;
        self.screen.title("The cluster is yours until Ctrl-C");
        self.screen.line(&format!("  export KUBECONFIG={}", cluster.kubeconfig().display()));
        self.screen.line(&format!("  export PATH={}:$PATH", cluster.programs().display()));
        self.screen.gap();
        std::future::pending().await
    }

    async fn chapter(&self, title: &str) {
        if self.pause {
            self.screen.pause().await;
        }
        self.screen.title(title);
    }

    async fn kubectl(&self, command: &str) -> Result<()> {
        self.screen.command(&format!("kubectl {command}"));
        let output = self.environment.cluster.kubectl(&command.split(' ').collect::<Vec<_>>()).await?;
        self.screen.output(&output);
        Ok(())
    }

    async fn ctl(&self, command: &str) -> Result<()> {
        self.screen
            .command(&format!("kubectl -n {NAMESPACE} exec deployment/cgw-controller -- /cgw ctl {command}"));
        self.screen.output(&Installation::ctl(&self.environment.cluster, command).await?);
        Ok(())
    }

    /// Waits until a host outside sees the pod with this address.
    async fn until_source(&self, pod: &Pod, source: Ipv4Addr) -> Result<()> {
        let what = format!("a host outside to see {} as {source}", pod.name);
        until(&what, async || Ok((pod.source().await? == Some(source)).then_some(()))).await
    }

    /// The node that is MASTER, once it is another one than `previous`.
    async fn master(&self, previous: Option<&str>) -> Result<String> {
        until("a MASTER", async || {
            let master = self.environment.master().await?;
            Ok(master.filter(|name| Some(name.as_str()) != previous))
        })
        .await
    }
}
