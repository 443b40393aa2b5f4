//! The chapters, in their order.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use natgw::names::FLOATING_IP_LABEL;
use nix::sys::signal::Signal;

use super::Story;
use crate::stage::{GRACE, NAMESPACE};
use crate::tape::{Now, What};

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
        self.world().await?;
        self.dry_run().await?;
        self.first_gateway().await?;
        self.second_gateway().await?;
        self.cordon().await?;
        self.uncordon().await?;
        self.silence().await?;
        self.kill().await?;
        self.unlabel().await?;
        self.cleanup().await?;
        self.end()
    }

    async fn world(&mut self) -> Result<()> {
        self.turn("The world").await?;
        self.screen.say("A real control plane on this machine; a stand-in for the Hetzner Cloud API, whose actions take \
                         a second as the real ones do; three Nodes whose kubelets are played. Nothing of yours is touched.");
        self.raise().await?;
        self.screen.command("kubectl get nodes; hcloud network describe lan");
        self.until("three Ready Nodes", |now, _| now.nodes.values().filter(|node| node.ready).count() == 3)
            .await?;
        self.show()?;
        self.screen.say("Hetzner has assigned 198.51.100.7 to gateway-1 and 198.51.100.8 to gateway-2. No Node is a \
                         gateway yet: LABEL is the label that asks for one, SET UP FOR the annotation that says it is one.");
        Ok(())
    }

    async fn dry_run(&mut self) -> Result<()> {
        self.turn("What would natgw do? A dry run").await?;
        self.screen.say(
            "An administrator asks for a gateway with a label. natgw does not run yet; a dry run prints its \
                         plan, with the reason of each step, and does nothing.",
        );
        self.label(G1, true).await?;
        self.until("the label", |now, _| now.nodes.get(G1.0).is_some_and(|node| node.label.is_some()))
            .await?;
        self.command("natgw --dry-run")?;
        let plan = self.stage()?.ask(&["--dry-run"]).await?;
        let took = self.cause.elapsed();
        self.screen.output(&plan);
        let steps =
            plan.lines().filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit())).count();
        ensure!(steps > 0, "the dry run planned nothing");
        let now = self.collect(Duration::ZERO)?;
        let untouched = now.nodes.values().all(|node| node.pending.is_none() && node.setup.is_none());
        ensure!(untouched && self.stage()?.hetzner.writes().is_empty(), "the dry run has changed something");
        self.proved(
            "A dry run prints the plan and writes nothing",
            format!("{steps} steps, {} ms", took.as_millis()),
        );
        Ok(())
    }

    async fn first_gateway(&mut self) -> Result<()> {
        self.turn("natgw starts: the label becomes a gateway").await?;
        self.screen.say("Now natgw runs, with `clients: {enabled: true}` in its settings. A Job sets the Node up, an \
                         annotation records it, then the route is added and the primary gets its role. The other Nodes \
                         are set up as its clients.");
        self.command(&format!("kubectl --namespace {NAMESPACE} scale deployment natgw --replicas=1"))?;
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
        let before = self.switches()?;
        self.label(G2, true).await?;
        self.until("gateway-2 as a candidate", |now, _| is_gateway(now, G2)).await?;
        let took = self.when(&What::Act("RecordSetup".into()))?;
        self.two_walks("natgw-1").await?;
        ensure!(self.switches()? == before, "the route was touched, though its gateway is well");
        self.command("natgw status")?;
        let status = self.stage()?.ask(&["status"]).await?;
        self.screen.output(&status);
        self.proved("A second gateway stood by, and the route stayed (it is sticky)", ms(took));
        Ok(())
    }

    async fn cordon(&mut self) -> Result<()> {
        self.turn("The primary is cordoned: the route moves").await?;
        let before = self.route_text(Some(G1.1))?;
        self.command("kubectl cordon gateway-1")?;
        self.stage()?.node(G1.0)?.cordon(true).await?;
        self.until("gateway-2 as the primary", |now, _| is_primary(now, G2)).await?;
        let moved = self.moved(G2.1)?;
        self.show()?;
        self.screen.line(&format!("    before: {before}"));
        self.screen.say(&format!(
            "{} after the cordon, of which Hetzner's two actions (remove, add; a route cannot be changed) took 2 s.",
            ms(moved)
        ));
        self.proved("Cordoned: the route moved to the other gateway", ms(moved));
        Ok(())
    }

    async fn uncordon(&mut self) -> Result<()> {
        self.turn("It is uncordoned: nothing moves back").await?;
        let before = self.switches()?;
        self.command("kubectl uncordon gateway-1")?;
        self.stage()?.node(G1.0)?.cordon(false).await?;
        self.two_walks("natgw-1").await?;
        ensure!(self.switches()? == before, "the route was touched, though its gateway is well");
        let took = self.cause.elapsed();
        self.screen.say(&format!(
            "natgw has looked at everything twice more in {}, and has done nothing: moving costs connections, and \
             gateway-2 is well.",
            ms(took)
        ));
        self.show()?;
        self.proved("Uncordoned: nothing moved back", format!("2 walks, {}", ms(took)));
        Ok(())
    }

    async fn silence(&mut self) -> Result<()> {
        self.turn("The gateway falls silent: the route moves").await?;
        self.screen.say(&format!(
            "Its machine is gone, or its cable. Kubernetes waits {} s for word from it (50 s where nobody has changed \
             that), then calls the Node NotReady; natgw does not wait longer.",
            GRACE.as_secs()
        ));
        self.command("ssh gateway-2 poweroff --force")?;
        self.stage()?.node(G2.0)?.silence().await;
        self.until("gateway-1 as the primary", |now, _| is_primary(now, G1)).await?;
        let lost = self.when(&What::Ready(G2.0.into(), false))?;
        let moved = self.moved(G1.1)?.saturating_sub(lost);
        self.show()?;
        self.screen.say(&format!("{} after Kubernetes noticed, the route was at gateway-1.", ms(moved)));
        self.proved("NotReady: the route moved as soon as Kubernetes noticed", ms(moved));
        Ok(())
    }

    async fn kill(&mut self) -> Result<()> {
        self.turn("natgw itself is killed: its standby takes over").await?;
        self.screen.say(
            "gateway-2 comes back. A second natgw waits for the Lease, then the first is killed where it \
                         stands. (Lease of 6 s here, 15 s where nobody has changed that.)",
        );
        self.command("hcloud server poweron gateway-2")?;
        self.stage()?.node(G2.0)?.resume().await?;
        self.until("gateway-2 being Ready", |now, _| now.nodes.get(G2.0).is_some_and(|node| node.ready))
            .await?;
        self.command(&format!("kubectl --namespace {NAMESPACE} scale deployment natgw --replicas=2"))?;
        let standby = self.start("natgw-2")?;
        let end = Instant::now() + super::PATIENCE;
        while !standby.get("/readyz").await.is_ok_and(|(status, _)| status.is_success()) {
            ensure!(Instant::now() < end, "waited in vain for the second natgw to be ready");
            self.linger(super::SETTLE).await?;
        }
        let before = self.switches()?;
        let leader = self.release("natgw-1")?;
        self.command(&format!("kill -9 {}   # natgw-1, which leads", leader.pid()))?;
        leader.kill()?;
        self.until("natgw-2 as the leader", |_, since| since.iter().any(|entry| entry.what == What::Leads))
            .await?;
        let took = self.when(&What::Leads)?;
        self.two_walks("natgw-2").await?;
        ensure!(self.switches()? == before, "the route was touched by a change of leader");
        self.show()?;
        self.screen.say("The route was never touched: it works without natgw.");
        self.proved("Killed: a standby took over, with the route untouched", ms(took));
        Ok(())
    }

    async fn unlabel(&mut self) -> Result<()> {
        self.turn("A gateway is given up").await?;
        self.screen.say(
            "The new leader at work: gateway-1 loses its label. Its traffic goes first, then its rules.",
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
        self.command(&format!("kubectl --namespace {NAMESPACE} scale deployment natgw --replicas=0"))?;
        let leader = self.release("natgw-2")?;
        leader.signal(Signal::SIGTERM)?;
        let status = leader.wait_exit(super::PATIENCE).await?;
        ensure!(status.success(), "natgw did not end well after SIGTERM: {status}");
        self.linger(super::SETTLE).await?;
        self.command("natgw cleanup")?;
        let cleanup = self.stage()?.controller(&["cleanup"])?;
        self.tape.as_mut().context("no tape")?.listen("natgw", cleanup.clone());
        let end = Instant::now() + super::PATIENCE;
        let status = loop {
            if let Some(status) = cleanup.exited()? {
                break status;
            }
            ensure!(
                Instant::now() < end,
                "waited {} s in vain for: natgw cleanup",
                super::PATIENCE.as_secs()
            );
            self.linger(super::SETTLE).await?;
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
        self.screen.line("");
        self.screen.say(&format!(
            "All of it in {:.0} s, with {requests} requests to Hetzner; its limit is 3,600 an hour.",
            self.begun.elapsed().as_secs_f64()
        ));
        Ok(())
    }

    /// Lets a person play until Ctrl-C.
    pub(crate) async fn keep(&mut self) -> Result<()> {
        self.screen.title("The world is yours until Ctrl-C");
        let stage = self.stage()?;
        self.screen.line(&format!("  export KUBECONFIG={}", stage.control_plane.kubeconfig().display()));
        self.screen.line(&format!("  export HCLOUD_ENDPOINT={}", stage.hetzner.url()));
        self.screen.line(&format!("  export HCLOUD_TOKEN={}", stage.hetzner.token()));
        self.screen.say(&format!(
            "natgw runs again, and what it does is shown here. Try in another terminal: \
             kubectl label node gateway-1 {FLOATING_IP_LABEL}={}",
            G1.2
        ));
        self.command("natgw")?;
        self.start("natgw-3")?;
        self.until_ended().await
    }

    async fn until_ended(&mut self) -> Result<()> {
        loop {
            self.linger(super::BREATH).await?;
            for (who, program) in &self.running {
                if let Some(status) = program.exited()? {
                    bail!("{who} has ended: {status}");
                }
            }
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

fn ms(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}
