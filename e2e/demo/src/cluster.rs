//! `demo natgw-cluster`: the same story on real nodes, with a client that asks the Internet all the time as whom it is seen.

use std::io::BufRead;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use e2e::cluster::{Cloud, Cluster, Installation, Internet, Prober};
use natgw::names::FLOATING_IP_LABEL;

use crate::Wishes;
use crate::screen::Screen;

/// The gateways and their floating IPs; node-3 has no way out of its own.
const GATEWAYS: [(&str, Ipv4Addr); 2] =
    [("node-1", Ipv4Addr::new(198, 51, 100, 7)), ("node-2", Ipv4Addr::new(198, 51, 100, 8))];
const CLIENT: &str = "node-3";
/// A Node is NotReady after this silence: 50 s in a cluster as it comes, which is long to look at.
const GRACE: Duration = Duration::from_secs(8);
/// Nothing here takes so long, on a busy machine either.
const TIMEOUT: Duration = Duration::from_secs(180);
/// How often the answers are looked at: a person sees no shorter time.
const LOOK: Duration = Duration::from_millis(50);

/// Plays it; whatever was started is gone at the end, and when this is dropped.
pub(crate) async fn play(screen: &Screen, wishes: Wishes) -> Result<()> {
    screen.title("1/6 ── Three machines, a cloud, an Internet");
    screen.say(
        "Each node is a set of namespaces with a root view, a kubelet and a containerd of its own. They meet in a private \
         network like Hetzner's; node-1 and node-2 have a public interface besides. The cloud is a stand-in whose actions \
         take a second, as the real ones do; the network does what it says.",
    );
    let building = Cluster::builder().nodes(3).uplinks(2).grace(GRACE).start();
    let cluster = screen.progress("Starting a cluster of three nodes", building).await?;
    let show = Show::on(screen, cluster, wishes.pause).await?;
    show.install().await?;
    show.cordon().await?;
    show.cable().await?;
    show.reboot().await?;
    show.leader().await?;
    screen.title("What you have seen");
    screen.say(
        "natgw from its own image and its own manifests, on kubelets, with its Jobs on the nodes' own kernels' tables. In \
         each chapter the Internet told who came. Only the cloud and the machines' hardware were played.",
    );
    if wishes.keep {
        show.keep().await?;
    }
    Ok(())
}

struct Show<'a> {
    screen: &'a Screen,
    pause: bool,
    prober: Prober,
    _internet: Internet,
    cloud: Cloud,
    cluster: Cluster,
}

impl<'a> Show<'a> {
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
        self.turn("2/6 ── kubectl apply -k: two labels become a gateway").await?;
        self.screen.say("Until now nobody in the Internet has heard of node-3: it has no way out.");
        self.screen.progress("Building natgw's image", Installation::give_images(&self.cluster)).await?;
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
        self.seen_as_any(since).await?;
        self.nodes().await
    }

    async fn cordon(&self) -> Result<()> {
        self.turn("3/6 ── The gateway is cordoned").await?;
        let (name, other) = self.gateways()?;
        self.standby(other).await?;
        let since = Instant::now();
        self.kubectl(&format!("cordon {name}")).await?;
        self.seen_as(other.1, since).await?;
        self.kubectl(&format!("uncordon {name}")).await?;
        self.screen.say("It may be used again, and nothing moves back: a move costs connections.");
        self.nodes().await
    }

    async fn cable(&self) -> Result<()> {
        self.turn("4/6 ── Somebody pulls the gateway's cables").await?;
        let (name, other) = self.gateways()?;
        self.standby(other).await?;
        let (_, place) = self.another_leader(None).await?;
        self.screen.say(&format!(
            "Kubernetes waits {} s for word from its kubelet here. natgw leads on {place}; where that is the Node that is \
             lost, its other replica takes over first, when the Lease is 15 s old.",
            GRACE.as_secs()
        ));
        let since = Instant::now();
        self.screen.command(&format!("e2e/cluster/machine.sh cut {name}"));
        self.cluster.machine(name).cut().await?;
        self.seen_as(other.1, since).await?;
        self.cluster.machine(name).join().await?;
        self.kubectl(&format!("wait --for=condition=Ready node/{name} --timeout=120s")).await?;
        self.nodes().await
    }

    async fn reboot(&self) -> Result<()> {
        self.turn("5/6 ── The gateway reboots, and has forgotten everything").await?;
        let (name, other) = self.gateways()?;
        self.standby(other).await?;
        let (_, place) = self.another_leader(None).await?;
        self.screen.say(&format!("natgw leads on {place}. What a Node forgets, its new boot ID tells."));
        let since = Instant::now();
        self.screen.command(&format!("e2e/cluster/machine.sh reboot {name}"));
        self.cluster.machine(name).reboot().await?;
        self.seen_as(other.1, since).await?;
        self.screen.say("Its setup runs again before it is counted on.");
        Ok(())
    }

    async fn leader(&self) -> Result<()> {
        self.turn("6/6 ── natgw's leader is killed").await?;
        let (leader, _) = self.another_leader(None).await?;
        let since = Instant::now();
        self.kubectl(&format!("-n natgw delete pod {leader} --force --grace-period=0")).await?;
        let (next, _) = self.another_leader(Some(&leader)).await?;
        self.screen.event(since.elapsed(), "natgw", &format!("{next} leads"));
        let asked = self.prober.probes().into_iter().filter(|probe| probe.at >= since);
        let lost = asked.clone().filter(|probe| probe.seen.is_none()).count();
        self.screen.say(&format!(
            "Of {} connections meanwhile {lost} were lost: traffic does not need natgw.",
            asked.count()
        ));
        self.nodes().await
    }

    /// Lets a person play until Ctrl-C.
    async fn keep(&self) -> Result<()> {
        self.screen.title("The cluster is yours until Ctrl-C");
        self.screen.line(&format!("  export KUBECONFIG={}", self.cluster.kubeconfig().display()));
        self.screen.line(&format!("  export PATH={}:$PATH", self.cluster.programs().display()));
        self.screen.line(&format!("  export HCLOUD_ENDPOINT={}", self.cloud.hetzner.url()));
        self.screen.line(&format!("  export HCLOUD_TOKEN={}", self.cloud.hetzner.token()));
        self.screen.gap();
        self.watch(Instant::now(), Duration::MAX, |_| false).await
    }

    async fn turn(&self, title: &str) -> Result<()> {
        if self.pause {
            self.screen.part("  Enter: next chapter ");
            let enter = || std::io::stdin().lock().read_line(&mut String::new());
            tokio::task::spawn_blocking(enter).await?.context("standard input")?;
        }
        self.screen.title(title);
        Ok(())
    }

    async fn kubectl(&self, command: &str) -> Result<()> {
        self.screen.command(&format!("kubectl {command}"));
        self.cluster.kubectl(&command.split(' ').collect::<Vec<_>>()).await.map(drop)
    }

    /// Shows the Nodes, when the role has followed the route.
    async fn nodes(&self) -> Result<()> {
        let end = Instant::now() + TIMEOUT;
        let role = format!("--selector={}", natgw::names::ROLE_LABEL);
        loop {
            let holders = self
                .cluster
                .kubectl(&["get", "nodes", &role, "-o", "jsonpath={.items[*].metadata.name}"])
                .await?;
            if self.cloud.gateway() == Some(holders) {
                break;
            }
            ensure!(Instant::now() < end, "waited {TIMEOUT:?} in vain for the role to follow the route");
            tokio::time::sleep(LOOK).await;
        }
        self.screen.command("kubectl get nodes");
        self.screen.output(&self.cluster.kubectl(&["get", "nodes"]).await?);
        Ok(())
    }

    /// Which pod leads, when it is not the one named, and on which Node.
    async fn another_leader(&self, but: Option<&str>) -> Result<(String, String)> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let leader = Installation::leader(&self.cluster).await?;
            if let Some(leader) = leader.filter(|leader| Some(leader.as_str()) != but) {
                let node = ["-n", "natgw", "get", "pod", &leader, "-o", "jsonpath={.spec.nodeName}"];
                let node = self.cluster.kubectl(&node).await?;
                return Ok((leader, node));
            }
            ensure!(Instant::now() < end, "waited {TIMEOUT:?} in vain for a leader");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The gateway that is used, and the other one.
    fn gateways(&self) -> Result<(&'static str, (&'static str, Ipv4Addr))> {
        let used = self.cloud.gateway().context("the network has no default route")?;
        match GATEWAYS {
            [(first, _), second] if first == used => Ok((first, second)),
            [first, (second, _)] if second == used => Ok((second, first)),
            _ => bail!("the default route leads to {used}"),
        }
    }

    /// Waits until a gateway could be the primary.
    async fn standby(&self, (name, ip): (&str, Ipv4Addr)) -> Result<()> {
        let annotation = natgw::names::SETUP_ANNOTATION.replace('.', "\\.");
        let wanted = format!("--for=jsonpath={{.metadata.annotations.{annotation}}}={ip}");
        self.cluster.kubectl(&["wait", &wanted, &format!("node/{name}"), "--timeout=120s"]).await.map(drop)
    }

    async fn seen_as(&self, ip: Ipv4Addr, since: Instant) -> Result<()> {
        self.watch(since, TIMEOUT, |seen| seen == Some(ip)).await?;
        self.tell_gap(since, |seen| seen == Some(ip))
    }

    async fn seen_as_any(&self, since: Instant) -> Result<()> {
        self.watch(since, TIMEOUT, |seen| seen.is_some()).await
    }

    fn tell_gap(&self, since: Instant, wanted: impl Fn(Option<Ipv4Addr>) -> bool) -> Result<()> {
        let probes = self.prober.probes();
        let first =
            probes.iter().find(|probe| probe.at >= since && wanted(probe.seen)).context("no answer")?;
        let (gap, lost) = self.prober.gap_before(first);
        self.screen.seen(
            "The next connections leave by the other gateway",
            &format!("{:.1} s gap, {lost} lost", gap.as_secs_f64()),
        );
        Ok(())
    }

    /// Shows as whom the Internet sees the client, until it is so: each change on a line, and on a terminal the present.
    async fn watch(
        &self,
        since: Instant,
        within: Duration,
        so: impl Fn(Option<Ipv4Addr>) -> bool,
    ) -> Result<()> {
        let (mut shown, mut last) = (0, None);
        loop {
            let probes = self.prober.probes();
            for probe in probes.iter().skip(shown).filter(|probe| probe.at >= since) {
                if last != Some(probe.seen) {
                    self.clear();
                    let text = match probe.seen {
                        Some(ip) => format!("sees {CLIENT} as {ip}"),
                        None => format!("does not hear from {CLIENT}"),
                    };
                    self.screen.event(probe.at.duration_since(since), "internet", &text);
                    last = Some(probe.seen);
                }
                if so(probe.seen) {
                    return Ok(());
                }
            }
            shown = probes.len();
            ensure!(
                since.elapsed() < within,
                "waited {within:?} in vain; the Internet sees {CLIENT} as {last:?}"
            );
            if self.screen.is_live() {
                let now = last.flatten().map_or_else(|| "nobody".to_owned(), |ip| ip.to_string());
                self.screen.part(&format!(
                    "\r{:>8} ms  now: {now:<15} ({shown} connections)",
                    since.elapsed().as_millis()
                ));
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn clear(&self) {
        if self.screen.is_live() {
            self.screen.part("\r\x1b[K");
        }
    }
}
