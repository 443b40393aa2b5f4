//! `demo natgw-cluster`: natgw on real nodes, with a client that polls the internet for the source address that it sees.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::cluster::{Cloud, Cluster, Installation, Prober, Servers};
use e2e::wait::{TIMEOUT, until};
use natgw::names::{FLOATING_IP_LABEL, ROLE_LABEL, SETUP_ANNOTATION};

use crate::Options;
use crate::screen::Screen;

/// The gateways and their floating IPs.
const GATEWAYS: [(&str, Ipv4Addr); 2] =
    [("node-1", Ipv4Addr::new(198, 51, 100, 7)), ("node-2", Ipv4Addr::new(198, 51, 100, 8))];
/// A node without a public interface.
const CLIENT: &str = "node-3";
/// When Kubernetes marks a silent Node as NotReady: a cluster's default of 50 s is long for a demo.
const GRACE: Duration = Duration::from_secs(8);
/// A person does not notice a shorter time.
const POLL: Duration = Duration::from_millis(50);

pub(crate) async fn run(screen: &Screen, options: Options) -> Result<()> {
    screen.title("1/6 ── Three machines, a cloud, an internet");
    screen.say(
        "Each node is a set of namespaces with its own root directory, kubelet and containerd. A private network like \
         Hetzner's connects them. node-1 and node-2 also have a public interface. The cloud is simulated: its actions take a \
         second, as the real ones do, and the network follows its routes and floating IPs.",
    );
    let cluster = Cluster::builder().nodes(3).uplinks(2).grace(GRACE).start();
    let cluster = screen.progress("Starting a cluster of three nodes", cluster).await?;
    let demo = ClusterDemo::on(screen, cluster, options.pause).await?;
    demo.install().await?;
    demo.cordon().await?;
    demo.disconnect().await?;
    demo.reboot().await?;
    demo.kill_leader().await?;
    screen.title("What you have seen");
    screen.say(
        "natgw from its own image and manifests, on kubelets, with Jobs that change the nodes' own routes and packet filters. \
         In each chapter a host in the internet reported the source address. Only the cloud and the machines' hardware were \
         simulated.",
    );
    if options.keep {
        demo.keep().await?;
    }
    Ok(())
}

struct ClusterDemo<'a> {
    screen: &'a Screen,
    pause: bool,
    prober: Prober,
    _internet: Servers,
    cloud: Cloud,
    cluster: Cluster,
}

impl<'a> ClusterDemo<'a> {
    async fn on(screen: &'a Screen, cluster: Cluster, pause: bool) -> Result<Self> {
        let cloud = cluster.cloud(GATEWAYS.len()).await?;
        for (name, ip) in GATEWAYS {
            cloud.floating_ip(ip, name)?;
        }
        let _internet = cluster.internet()?;
        let prober = Prober::start(&cluster.machine(CLIENT))?;
        Ok(Self { screen, pause, prober, _internet, cloud, cluster })
    }

    async fn install(&self) -> Result<()> {
        self.chapter("2/6 ── kubectl apply -k: two labels become two gateways").await;
        self.screen.say("node-3 has no route to the internet yet.");
        let images = Installation::give_images(&self.cluster);
        self.screen.progress("Building natgw's image", images).await?;
        for (name, ip) in GATEWAYS {
            self.kubectl(&format!("label node {name} {FLOATING_IP_LABEL}={ip}")).await?;
        }
        let installation = Installation::write(&self.cloud)?;
        self.screen.command("cat natgw.yaml");
        self.screen.output(&installation.settings()?);
        let since = Instant::now();
        self.screen
            .command("kubectl apply -k .   # manifests/natgw, components/ha/natgw, natgw.yaml, the token");
        installation.apply(&self.cluster).await?;
        self.until_seen(since, TIMEOUT, |source| source.is_some()).await?;
        self.show_nodes().await
    }

    async fn cordon(&self) -> Result<()> {
        self.chapter("3/6 ── The gateway is cordoned").await;
        let (name, other) = self.gateways().await?;
        let since = Instant::now();
        self.kubectl(&format!("cordon {name}")).await?;
        self.until_seen_as(other, since).await?;
        self.kubectl(&format!("uncordon {name}")).await?;
        self.screen
            .say("It is a candidate again. The route does not move back: each move interrupts connections.");
        self.show_nodes().await
    }

    async fn disconnect(&self) -> Result<()> {
        self.chapter("4/6 ── The gateway's cables are pulled").await;
        let (name, other) = self.gateways().await?;
        let (_, node) = Installation::another_leader(&self.cluster, None).await?;
        self.screen.say(&format!(
            "Kubernetes marks the Node as NotReady when its kubelet has been silent for {} s. natgw's leader runs on {node}. \
             If that is the lost Node, the other replica takes over first, when the Lease has not been renewed for 15 s.",
            GRACE.as_secs()
        ));
        let since = Instant::now();
        self.screen.command(&format!("e2e/cluster/machine.sh cut {name}"));
        self.cluster.machine(name).cut().await?;
        self.until_seen_as(other, since).await?;
        self.cluster.machine(name).join().await?;
        self.kubectl(&format!("wait --for=condition=Ready node/{name} --timeout=600s")).await?;
        self.show_nodes().await
    }

    async fn reboot(&self) -> Result<()> {
        self.chapter("5/6 ── The gateway reboots and loses its setup").await;
        let (name, other) = self.gateways().await?;
        let (_, node) = Installation::another_leader(&self.cluster, None).await?;
        self.screen
            .say(&format!("natgw's leader runs on {node}. It detects a reboot by the Node's new boot ID."));
        let since = Instant::now();
        self.screen.command(&format!("e2e/cluster/machine.sh reboot {name}"));
        self.cluster.machine(name).reboot().await?;
        self.until_seen_as(other, since).await?;
        self.screen.say("natgw runs the setup Job again before the Node is a candidate.");
        Ok(())
    }

    async fn kill_leader(&self) -> Result<()> {
        self.chapter("6/6 ── natgw's leader is killed").await;
        let (leader, _) = Installation::another_leader(&self.cluster, None).await?;
        let since = Instant::now();
        self.kubectl(&format!("-n natgw delete pod {leader} --force --grace-period=0")).await?;
        let (next, _) = Installation::another_leader(&self.cluster, Some(&leader)).await?;
        self.screen.event(since.elapsed(), "natgw", &format!("{next} is the leader"));
        let probes: Vec<_> = self.prober.probes().into_iter().filter(|probe| probe.at >= since).collect();
        let lost = probes.iter().filter(|probe| probe.seen.is_none()).count();
        self.screen.say(&format!(
            "{lost} of {} connections failed in this time: traffic does not depend on natgw.",
            probes.len()
        ));
        self.show_nodes().await
    }

    async fn keep(&self) -> Result<()> {
        self.screen.title("The cluster is yours until Ctrl-C");
        self.screen.line(&format!("  export KUBECONFIG={}", self.cluster.kubeconfig().display()));
        self.screen.line(&format!("  export PATH={}:$PATH", self.cluster.programs().display()));
        self.screen.line(&format!("  export HCLOUD_ENDPOINT={}", self.cloud.hetzner.url()));
        self.screen.line(&format!("  export HCLOUD_TOKEN={}", self.cloud.hetzner.token()));
        self.screen.gap();
        self.until_seen(Instant::now(), Duration::MAX, |_| false).await
    }

    async fn chapter(&self, title: &str) {
        if self.pause {
            self.screen.pause().await;
        }
        self.screen.title(title);
    }

    async fn kubectl(&self, command: &str) -> Result<()> {
        self.screen.command(&format!("kubectl {command}"));
        self.cluster.kubectl(&command.split(' ').collect::<Vec<_>>()).await.map(drop)
    }

    /// Shows the Nodes when the role label is where the route is.
    async fn show_nodes(&self) -> Result<()> {
        let role = format!("--selector={ROLE_LABEL}");
        let list = ["get", "nodes", &role, "-o", "jsonpath={.items[*].metadata.name}"];
        until("the role label to follow the route", async || {
            let primary = self.cluster.kubectl(&list).await?;
            Ok((self.cloud.gateway() == Some(primary)).then_some(()))
        })
        .await?;
        self.screen.command("kubectl get nodes");
        self.screen.output(&self.cluster.kubectl(&["get", "nodes"]).await?);
        Ok(())
    }

    /// The primary gateway, and the floating IP of the other one, once that is set up.
    async fn gateways(&self) -> Result<(&'static str, Ipv4Addr)> {
        let primary = self.cloud.gateway().context("the network has no default route")?;
        let (primary, (other, ip)) = match GATEWAYS {
            [(first, _), second] if first == primary => (first, second),
            [first, (second, _)] if second == primary => (second, first),
            _ => bail!("the default route leads to {primary}"),
        };
        let annotation = SETUP_ANNOTATION.replace('.', "\\.");
        let set_up = format!("--for=jsonpath={{.metadata.annotations.{annotation}}}={ip}");
        self.cluster.kubectl(&["wait", &set_up, &format!("node/{other}"), "--timeout=600s"]).await?;
        Ok((primary, ip))
    }

    /// Waits until the internet sees the client as `ip`, and shows how long it saw nothing.
    async fn until_seen_as(&self, ip: Ipv4Addr, since: Instant) -> Result<()> {
        self.until_seen(since, TIMEOUT, |source| source == Some(ip)).await?;
        let probes = self.prober.probes();
        let first = probes.iter().find(|probe| probe.at >= since && probe.seen == Some(ip));
        let (gap, lost) = self.prober.gap_before(first.context("no connection")?);
        let figure = format!("{:.1} s gap, {lost} lost", gap.as_secs_f64());
        self.screen.success("New connections leave through the other gateway", &figure);
        Ok(())
    }

    /// Shows each change of the source address that the internet sees, until `done`; on a terminal also the current one.
    async fn until_seen(
        &self,
        since: Instant,
        timeout: Duration,
        done: impl Fn(Option<Ipv4Addr>) -> bool,
    ) -> Result<()> {
        let (mut shown, mut last) = (0, None);
        loop {
            let probes = self.prober.probes();
            for probe in probes.iter().skip(shown).filter(|probe| probe.at >= since) {
                if last != Some(probe.seen) {
                    if self.screen.is_terminal() {
                        self.screen.part("\r\x1b[K");
                    }
                    let text = match probe.seen {
                        Some(ip) => format!("sees {CLIENT} as {ip}"),
                        None => format!("receives nothing from {CLIENT}"),
                    };
                    self.screen.event(probe.at.duration_since(since), "internet", &text);
                    last = Some(probe.seen);
                }
                if done(probe.seen) {
                    return Ok(());
                }
            }
            shown = probes.len();
            ensure!(since.elapsed() < timeout, "after {timeout:?} the internet sees {CLIENT} as {last:?}");
            if self.screen.is_terminal() {
                let now = last.flatten().map_or_else(|| "no address".to_owned(), |ip| ip.to_string());
                let time = since.elapsed().as_millis();
                self.screen.part(&format!("\r{time:>8} ms  now: {now:<15} ({shown} connections)"));
            }
            tokio::time::sleep(POLL).await;
        }
    }
}
