//! The chapters, in their order.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use natgw::names::FLOATING_IP_LABEL;
use nix::sys::signal::Signal;

use super::{BREATH, CHAPTERS, SETTLE, Story, TIMEOUT};
use crate::stage::GRACE;
use crate::tape::{Now, Seen, What};

const G1: (&str, Ipv4Addr, &str) = ("gateway-1", Ipv4Addr::new(10, 0, 0, 2), "198.51.100.7");
const G2: (&str, Ipv4Addr, &str) = ("gateway-2", Ipv4Addr::new(10, 0, 0, 3), "198.51.100.8");
const WORKER: &str = "worker-1";

impl Story {
    /// Tells it all.
    pub(crate) async fn play(&mut self) -> Result<()> {
        self.screen.title("natgw: one gateway for a whole cluster");
        self.screen.say(
            "A cluster's Nodes reach the internet through one Node that holds a floating IP. natgw makes such a gateway, \
             points the private network's default route to it, and moves the route when the gateway is lost.",
        );
        self.env().await?;
        self.dry_run().await?;
        self.first_gateway().await?;
        self.second_gateway().await?;
        self.cordon().await?;
        self.uncordon().await?;
        self.silence().await?;
        self.reboot().await?;
        self.kill().await?;
        self.unlabel().await?;
        self.cleanup().await?;
        self.end()
    }

    async fn env(&mut self) -> Result<()> {
        self.turn("The env").await?;
        self.screen.say("A real control plane on this machine; a stand-in for the Hetzner Cloud API, whose actions take \
                         a second as the real ones do; three Nodes whose kubelets are played. Nothing of yours is touched.");
        self.raise().await?;
        self.screen.command("kubectl get nodes; hcloud network describe lan");
        self.until("three Ready Nodes", |now, _| now.nodes.values().filter(|node| node.ready).count() == 3)
            .await?;
        self.show()?;
        self.screen.say("Hetzner has assigned the floating IP 198.51.100.7 to gateway-1, and 198.51.100.8 to gateway-2. No \
                         Node is a gateway yet. FLOATING IP is the label that asks for one; SET UP FOR is the \
                         annotation that says it is one.");
        Ok(())
    }

    async fn dry_run(&mut self) -> Result<()> {
        self.turn("What would natgw do? A dry run").await?;
        self.screen.say(
            "An administrator asks for a gateway with a label. natgw does not run yet. A dry run prints its \
                         plan, with the reason of each step, and does nothing.",
        );
        self.label(G1, true).await?;
        self.until("the label", |now, _| now.nodes.get(G1.0).is_some_and(|node| node.label.is_some()))
            .await?;
        self.command("cat natgw.yaml")?;
        self.screen.output(&self.stage()?.settings()?);
        self.command("natgw --config natgw.yaml --dry-run")?;
        let plan = self.stage()?.ask(&["--dry-run"]).await?;
        let took = self.cause.elapsed();
        self.screen.output(&plan);
        let steps =
            plan.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit())).count();
        ensure!(steps > 0, "the dry run planned nothing");
        let untouched = |node: &Seen| node.pending.is_none() && node.setup.is_none() && !node.client;
        let now = self.collect(Duration::ZERO)?;
        let writes = self.stage()?.hetzner.writes().len();
        ensure!(now.nodes.values().all(untouched) && writes == 0, "the dry run has changed something");
        self.proved("A dry run prints the plan and writes nothing", format!("{steps} steps in {}", ms(took)));
        Ok(())
    }

    async fn first_gateway(&mut self) -> Result<()> {
        self.turn("natgw starts: the label becomes a gateway").await?;
        self.screen.say(
            "A Job sets the Node up, an annotation records it; then the route is added, and the primary gets its role. \
             The other Nodes become its clients, as `clients: {enabled: true}` asks for. Before each Job its Node is \
             marked as pending: a natgw that is stopped at any point finds its way on from there.",
        );
        self.screen.say(
            "Times count from the command. Lines of natgw are its own log: what it did, and below it why.",
        );
        self.command("natgw --config natgw.yaml")?;
        self.start("natgw-1")?;
        self.until("gateway-1 as the primary, the others as its clients", |now, _| {
            is_primary(now, G1) && is_client(now, G2.0) && is_client(now, WORKER)
        })
        .await?;
        let took = self.when(&What::Route(Some(G1.1)))?;
        self.show()?;
        self.proved("A label became a gateway: Job, annotation, default route, role", ms(took));
        Ok(())
    }

    async fn second_gateway(&mut self) -> Result<()> {
        self.turn("A second gateway stands by").await?;
        self.screen.say(
            "It was a client until now, so that is undone first. Then it is a candidate, and nothing more: \
                         the route stays where it works.",
        );
        let before = self.route_changes()?;
        self.label(G2, true).await?;
        self.until("gateway-2 as a candidate", |now, _| is_gateway(now, G2)).await?;
        let took = self.when(&What::Act("RecordSetup".into()))?;
        self.two_walks("natgw-1").await?;
        ensure!(self.route_changes()? == before, "the route was touched, though its gateway is well");
        self.command("natgw --config natgw.yaml status")?;
        let status = self.stage()?.ask(&["status"]).await?;
        self.screen.output(&status);
        self.proved("A second gateway stood by, and the route stayed (it is sticky)", ms(took));
        Ok(())
    }

    async fn cordon(&mut self) -> Result<()> {
        self.turn("The primary is cordoned: the route moves").await?;
        self.screen.say(
            "A cordon says that a Node is about to be worked on. Hetzner cannot change a route: it is \
                         removed, then added, a second each.",
        );
        self.command("kubectl cordon gateway-1")?;
        self.stage()?.node(G1.0)?.cordon(true).await?;
        self.until("gateway-2 as the primary", |now, _| is_primary(now, G2)).await?;
        let moved = self.moved(G2.1)?;
        let asked = self.asked()?;
        self.show()?;
        self.screen.say(&format!(
            "The route was there {} after the cordon. natgw asked Hetzner for it after {}; the rest is Hetzner's.",
            ms(moved),
            ms(asked)
        ));
        self.proved("Cordoned: the route moved to the other gateway", of_which(moved, asked));
        Ok(())
    }

    async fn uncordon(&mut self) -> Result<()> {
        self.turn("It is uncordoned: nothing moves back").await?;
        let before = self.route_changes()?;
        self.command("kubectl uncordon gateway-1")?;
        self.stage()?.node(G1.0)?.cordon(false).await?;
        self.two_walks("natgw-1").await?;
        ensure!(self.route_changes()? == before, "the route was touched, though its gateway is well");
        let took = self.cause.elapsed();
        self.show()?;
        self.screen.say(&format!(
            "natgw has looked at everything twice more in {}, and has done nothing: a move costs connections, and \
             gateway-2 is well.",
            ms(took)
        ));
        self.proved("Uncordoned: nothing moved back", format!("2 looks in {}", ms(took)));
        Ok(())
    }

    async fn silence(&mut self) -> Result<()> {
        self.turn("The gateway falls silent: the route moves").await?;
        self.screen.say(&format!(
            "Kubernetes waits {} s for word from its kubelet here (50 s where nobody has changed that), then calls the \
             Node NotReady. natgw waits no longer than that.",
            GRACE.as_secs()
        ));
        self.command("hcloud server poweroff gateway-2")?;
        self.stage()?.power_off(G2.0).await?;
        self.until("gateway-1 as the primary", |now, _| is_primary(now, G1)).await?;
        let lost = self.when(&What::Ready(G2.0.into(), false))?;
        let moved = self.moved(G1.1)?.saturating_sub(lost);
        let asked = self.asked()?.saturating_sub(lost);
        self.show()?;
        self.screen.say(&format!(
            "The route was there {} after Kubernetes had noticed; natgw asked Hetzner for it after {}.",
            ms(moved),
            ms(asked)
        ));
        self.proved("NotReady: the route moved once Kubernetes had noticed", of_which(moved, asked));
        Ok(())
    }

    async fn reboot(&mut self) -> Result<()> {
        self.turn("It comes back, and has forgotten everything").await?;
        self.screen.say("Addresses and packet filter rules do not outlive a reboot. The annotation alone would tell a lie \
                         now; natgw sees the new boot ID, and sets the Node up again before it counts on it.");
        let before = self.route_changes()?;
        self.command("hcloud server poweron gateway-2")?;
        self.stage()?.power_on(G2.0).await?;
        let recorded = What::Act("RecordSetup".into());
        self.until("gateway-2 as a candidate again", |now, since| {
            is_gateway(now, G2) && since.iter().any(|entry| entry.what == recorded)
        })
        .await?;
        let took = self.when(&recorded)?;
        ensure!(self.route_changes()? == before, "the route was touched, though its gateway is well");
        self.proved("Rebooted: set up again, and the route stayed", ms(took));
        Ok(())
    }

    async fn kill(&mut self) -> Result<()> {
        self.turn("natgw itself is killed: its standby takes over").await?;
        self.screen.say("A second natgw is started; then the first is killed where it stands, without a chance to give \
                         its Lease back. (The Lease runs out after 6 s here, after 15 s where nobody has changed that.)");
        self.command("natgw --config natgw.yaml   # a second one")?;
        let standby = self.start("natgw-2")?;
        let end = Instant::now() + TIMEOUT;
        while !standby.get("/readyz").await.is_ok_and(|(status, _)| status.is_success()) {
            ensure!(Instant::now() < end, "waited in vain for the second natgw to be ready");
            self.linger(SETTLE).await?;
        }
        let ready = self.cause.elapsed();
        self.screen.event(ready, "natgw-2", "is ready, and waits: natgw-1 holds the Lease");
        let before = self.route_changes()?;
        let leader = self.release("natgw-1")?;
        self.command(&format!("kill -9 {}   # natgw-1", leader.pid()))?;
        leader.kill()?;
        self.until("natgw-2 as the leader", |_, since| since.iter().any(|entry| entry.what == What::Leads))
            .await?;
        let took = self.when(&What::Leads)?;
        self.two_walks("natgw-2").await?;
        ensure!(self.route_changes()? == before, "the route was touched by a change of leader");
        self.show()?;
        self.screen.say("The route was never touched: traffic does not need natgw, only changes do.");
        self.proved("Killed: a standby took over, and the route stayed", ms(took));
        Ok(())
    }

    async fn unlabel(&mut self) -> Result<()> {
        self.turn("A gateway is given up").await?;
        self.screen.say(
            "The new leader at work: gateway-1 loses its label. It loses its traffic first, then its rules; then it \
             becomes a client like the others. There are never two Jobs at work on one Node.",
        );
        self.label(G1, false).await?;
        self.until("gateway-2 as the primary, gateway-1 as its client", |now, _| {
            is_primary(now, G2) && is_client(now, G1.0)
        })
        .await?;
        let route = self.when(&What::Route(Some(G2.1)))?;
        let torn = self.when(&What::Act("RecordTeardown".into()))?;
        ensure!(route < torn, "gateway-1 was torn down before the route had left it");
        self.show()?;
        self.proved("Label removed: the route left first, then a Job undid the setup", ms(torn));
        Ok(())
    }

    async fn cleanup(&mut self) -> Result<()> {
        self.turn("natgw leaves, and takes everything with it").await?;
        let leader = self.release("natgw-2")?;
        self.command(&format!(
            "kill {}   # natgw-2: it ends what it is at, and gives its Lease back",
            leader.pid()
        ))?;
        leader.signal(Signal::SIGTERM)?;
        let status = leader.wait_exit(TIMEOUT).await?;
        let drained = self.cause.elapsed();
        ensure!(status.success(), "natgw did not end well after SIGTERM: {status}");
        self.linger(SETTLE).await?;
        self.screen.event(drained, "natgw-2", "has ended with exit code 0");
        self.command("natgw --config natgw.yaml cleanup")?;
        let cleanup = self.stage()?.controller(&["cleanup"])?;
        self.tape.as_mut().context("no tape")?.listen("natgw", cleanup.clone());
        let end = Instant::now() + TIMEOUT;
        let status = loop {
            if let Some(status) = cleanup.exited()? {
                break status;
            }
            ensure!(Instant::now() < end, "waited {} s in vain for: natgw cleanup", TIMEOUT.as_secs());
            self.linger(SETTLE).await?;
        };
        let took = self.cause.elapsed();
        ensure!(status.success(), "natgw cleanup failed: {status}");
        self.until("no trace of natgw on any Node", |now, _| {
            now.route.is_none()
                && now
                    .nodes
                    .values()
                    .all(|n| !n.role && n.setup.is_none() && !n.client && n.pending.is_none())
        })
        .await?;
        self.show()?;
        self.proved("Cleaned up: no route, role or annotation of natgw is left", ms(took));
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.screen.title("What you have seen");
        for (text, figure) in &self.proofs {
            self.screen.seen(text, figure);
        }
        let requests = self.stage()?.hetzner.requests().len();
        self.screen.gap();
        self.screen.say("In brackets: how much of it natgw needed until it asked Hetzner.");
        self.screen.gap();
        self.screen.say(&format!(
            "All of it took {:.0} s and {requests} requests to Hetzner's API, which allows 3,600 an hour. The control \
             plane and natgw are what a user runs; only the cloud and the Nodes' machines were played.",
            self.begun.elapsed().as_secs_f64()
        ));
        ensure!(self.chapter == CHAPTERS, "{CHAPTERS} chapters were announced, and {} told", self.chapter);
        Ok(())
    }

    /// Lets a person play until Ctrl-C.
    pub(crate) async fn keep(&mut self) -> Result<()> {
        self.screen.title("The env is yours until Ctrl-C");
        let stage = self.stage()?;
        self.screen.line(&format!("  export KUBECONFIG={}", stage.control_plane.kubeconfig().display()));
        self.screen.line(&format!("  export HCLOUD_ENDPOINT={}", stage.hetzner.url()));
        self.screen.line(&format!("  export HCLOUD_TOKEN={}", stage.hetzner.token()));
        self.screen.gap();
        self.screen.say("natgw runs again, and what it does is shown here. Try in another terminal:");
        self.screen.line(&format!("  kubectl label node {} {FLOATING_IP_LABEL}={}", G1.0, G1.2));
        self.screen.gap();
        self.command("natgw --config natgw.yaml")?;
        self.start("natgw-3")?;
        loop {
            self.linger(BREATH).await?;
            self.all_run()?;
        }
    }

    async fn label(&mut self, (name, _, floating_ip): (&str, Ipv4Addr, &str), on: bool) -> Result<()> {
        let change = if on { format!("={floating_ip}") } else { "-".to_owned() };
        self.command(&format!("kubectl label node {name} {FLOATING_IP_LABEL}{change}"))?;
        self.stage()?.node(name)?.label(FLOATING_IP_LABEL, on.then_some(floating_ip)).await
    }

    /// How long after the command the route was there. Fails if it was anywhere else in between.
    fn moved(&self, to: Ipv4Addr) -> Result<Duration> {
        let routes = self.since.iter().filter_map(|entry| match &entry.what {
            What::Route(route) => Some(*route),
            _ => None,
        });
        let way: Vec<_> = routes.collect();
        ensure!(way == [None, Some(to)], "the route has gone another way: {way:?}");
        self.when(&What::Route(Some(to)))
    }
}

fn is_primary(now: &Now, (name, ip, floating_ip): (&str, Ipv4Addr, &str)) -> bool {
    let holders: Vec<&String> =
        now.nodes.iter().filter(|(_, node)| node.role).map(|(name, _)| name).collect();
    now.route == Some(ip) && holders == [name] && is_gateway(now, (name, ip, floating_ip))
}

fn is_gateway(now: &Now, (name, _, floating_ip): (&str, Ipv4Addr, &str)) -> bool {
    now.nodes
        .get(name)
        .is_some_and(|node| node.setup.as_deref() == Some(floating_ip) && node.pending.is_none())
}

fn is_client(now: &Now, name: &str) -> bool {
    now.nodes.get(name).is_some_and(|node| node.client && node.pending.is_none())
}

/// A time, and how much of it natgw took.
fn of_which(time: Duration, natgw: Duration) -> String {
    format!("{} (natgw: {})", ms(time), ms(natgw))
}

fn ms(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}
