//! `demo natgw`: the chapters. [`story`] shows and awaits what happens, [`timeline`] collects it, [`environment`] starts everything.

mod environment;
mod story;
mod timeline;

use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Result, ensure};
use natgw::names::FLOATING_IP_LABEL;
use nix::sys::signal::Signal;

use self::environment::{Environment, GRACE};
use self::story::{READING, Story};
use self::timeline::{State, What};
use crate::Options;
use crate::screen::Screen;
use crate::tenant::printed;

/// A Node, its private address and its floating IP.
type Gateway = (&'static str, Ipv4Addr, &'static str);
const G1: Gateway = ("gateway-1", Ipv4Addr::new(10, 0, 0, 2), "198.51.100.7");
const G2: Gateway = ("gateway-2", Ipv4Addr::new(10, 0, 0, 3), "198.51.100.8");
const WORKER: &str = "worker-1";

pub(crate) async fn run(screen: &Screen, options: Options) -> Result<()> {
    screen.title("natgw: one NAT gateway for a cluster");
    screen.say(
        "The Nodes of a cluster reach the internet through one Node that has a floating IP. natgw sets up this gateway, adds the \
         private network's default route to it, and moves the route to another gateway when this one fails.",
    );
    screen.title("1/11 ── The environment");
    screen.say(
        "A real control plane on this machine, a simulated Hetzner Cloud API, whose actions take a second as the real ones do, \
         and three Nodes with simulated kubelets. Nothing of yours is used.",
    );
    let control_plane = Environment::control_plane();
    let control_plane =
        screen.progress("etcd, kube-apiserver, kube-controller-manager", control_plane).await?;
    let env = screen.progress("simulated Hetzner Cloud, three Nodes", Environment::on(control_plane)).await?;
    let version = env.control_plane.client().apiserver_version().await?.git_version;
    screen.fact("Kubernetes", &format!("{version} at {}", env.control_plane.url()));
    screen.fact("Hetzner Cloud API", &format!("at {}", env.hetzner.url()));
    let mut story = Story::new(screen, options.pause, env);
    let played = async {
        story.play().await?;
        if options.keep { story.keep().await } else { Ok(()) }
    }
    .await;
    if played.is_err() {
        story.show_logs();
    }
    played
}

impl Story<'_> {
    async fn play(&mut self) -> Result<()> {
        self.environment().await?;
        self.dry_run().await?;
        self.first_gateway().await?;
        self.second_gateway().await?;
        self.cordon().await?;
        self.uncordon().await?;
        self.power_off().await?;
        self.power_on().await?;
        self.kill_leader().await?;
        self.unlabel().await?;
        self.cleanup().await?;
        self.end()
    }

    async fn environment(&mut self) -> Result<()> {
        self.command("kubectl get nodes; hcloud network describe lan");
        let three = async |now: &State, _: &_| Ok(now.nodes.values().filter(|node| node.ready).count() == 3);
        self.until("three Ready Nodes", three).await?;
        self.show_state();
        self.screen.say(
            "At Hetzner, the floating IP 198.51.100.7 is assigned to gateway-1, and 198.51.100.8 to gateway-2. No Node is a \
             gateway yet. The column FLOATING IP shows the label that makes a Node a gateway. SET UP FOR shows the annotation \
             with which natgw records the result.",
        );
        Ok(())
    }

    async fn dry_run(&mut self) -> Result<()> {
        self.chapter("2/11 ── A dry run").await?;
        self.screen.say(
            "An administrator labels a Node. natgw does not run yet. A dry run prints the actions that it would run, and why, \
             and changes nothing.",
        );
        self.label(G1, true).await?;
        let labelled =
            async |now: &State, _: &_| Ok(now.nodes.get(G1.0).is_some_and(|node| node.label.is_some()));
        self.until("the label", labelled).await?;
        self.command("cat natgw.yaml");
        self.screen.output(&self.env.config()?);
        self.command("natgw --config natgw.yaml --dry-run");
        let plan = printed(self.env.natgw()?.arg("--dry-run")).await?;
        let took = self.elapsed();
        self.screen.output(&plan);
        let is_action = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
        let actions = plan.lines().filter(is_action).count();
        ensure!(actions > 0, "the dry run printed no action");
        let unchanged = without_natgw(&self.collect(Duration::ZERO));
        ensure!(unchanged && self.env.hetzner.writes().is_empty(), "the dry run changed something");
        let figure = format!("{actions} actions in {} ms", took.as_millis());
        self.proved("A dry run printed the actions and changed nothing", figure);
        Ok(())
    }

    async fn first_gateway(&mut self) -> Result<()> {
        self.chapter("3/11 ── natgw starts: the labelled Node becomes the gateway").await?;
        self.screen.say(
            "A Job sets up the Node, and an annotation records that it succeeded. natgw then adds the default route and labels \
             the Node with the gateway's role. The other Nodes become clients of the gateway, because the configuration has \
             `clients: {enabled: true}`. Before each Job natgw annotates the Node as pending, so that it can continue after a \
             crash at any point.",
        );
        self.screen.say(
            "Times count from the command. Lines of natgw are its log. Below each action stands the reason.",
        );
        self.command("natgw --config natgw.yaml");
        self.keep_running("natgw-1")?;
        self.until("gateway-1 is the primary, the others are clients", async |now, _| {
            Ok(is_primary(now, G1) && is_client(now, G2.0) && is_client(now, WORKER))
        })
        .await?;
        let took = self.when(&What::Route(Some(G1.1)))?;
        self.show_state();
        self.proved("A label made a gateway: Job, annotation, default route, role", ms(took));
        Ok(())
    }

    async fn second_gateway(&mut self) -> Result<()> {
        self.chapter("4/11 ── A second gateway on standby").await?;
        self.screen.say(
            "gateway-2 is a client, so its client setup is undone first. Then it becomes a candidate. The route stays, because \
             its gateway works.",
        );
        let changes = self.route_changes();
        self.label(G2, true).await?;
        self.until("gateway-2 is a candidate", async |now, _| Ok(is_gateway(now, G2))).await?;
        let took = self.when(&What::Action("RecordSetup".into()))?;
        self.route_stays("natgw-1", changes).await?;
        self.command("natgw --config natgw.yaml status");
        self.screen.output(&printed(self.env.natgw()?.arg("status")).await?);
        self.proved("A second gateway was set up, the route stayed", ms(took));
        Ok(())
    }

    async fn cordon(&mut self) -> Result<()> {
        self.chapter("5/11 ── The primary is cordoned: the route moves").await?;
        self.screen.say(
            "A cordon announces maintenance. Hetzner's API cannot change a route: natgw deletes it, then adds it again. Each of \
             these actions takes a second.",
        );
        self.command("kubectl cordon gateway-1");
        self.env.node(G1.0)?.cordon(true).await?;
        self.until("gateway-2 is the primary", async |now, _| Ok(is_primary(now, G2))).await?;
        let (moved, requested) = (self.moved(G2.1)?, self.requested()?);
        self.show_state();
        self.screen.say(&format!(
            "The route was moved {} after the cordon. natgw's first request to Hetzner came after {}. The rest is the duration \
             of Hetzner's actions.",
            ms(moved),
            ms(requested)
        ));
        self.proved("Cordoned: the route moved", of_which(moved, requested));
        Ok(())
    }

    async fn uncordon(&mut self) -> Result<()> {
        self.chapter("6/11 ── It is uncordoned: the route stays").await?;
        let changes = self.route_changes();
        self.command("kubectl uncordon gateway-1");
        self.env.node(G1.0)?.cordon(false).await?;
        self.route_stays("natgw-1", changes).await?;
        let took = self.elapsed();
        self.show_state();
        self.screen.say(&format!(
            "natgw has reconciled twice in {} and changed nothing. gateway-2 works, and each move interrupts connections.",
            ms(took)
        ));
        self.proved("Uncordoned: the route stayed", format!("2 reconciliations in {}", ms(took)));
        Ok(())
    }

    async fn power_off(&mut self) -> Result<()> {
        self.chapter("7/11 ── The gateway loses power: the route moves").await?;
        self.screen.say(&format!(
            "Kubernetes marks a Node as NotReady when its kubelet has been silent for {} s (here; 50 s by default). natgw moves \
             the route as soon as the Node is NotReady.",
            GRACE.as_secs()
        ));
        self.command("hcloud server poweroff gateway-2");
        self.env.power_off(G2.0).await?;
        self.until("gateway-1 is the primary", async |now, _| Ok(is_primary(now, G1))).await?;
        let not_ready = self.when(&What::Ready(G2.0.into(), false))?;
        let moved = self.moved(G1.1)?.saturating_sub(not_ready);
        let requested = self.requested()?.saturating_sub(not_ready);
        self.show_state();
        self.screen.say(&format!(
            "The route was moved {} after the Node was NotReady. natgw's first request to Hetzner came after {}.",
            ms(moved),
            ms(requested)
        ));
        self.proved("NotReady: the route moved", of_which(moved, requested));
        Ok(())
    }

    async fn power_on(&mut self) -> Result<()> {
        self.chapter("8/11 ── It boots again, without its setup").await?;
        self.screen.say(
            "Addresses and packet filter rules do not survive a reboot, but the annotation does. natgw detects the new boot ID \
             and sets up the Node again before it is a candidate.",
        );
        let changes = self.route_changes();
        self.command("hcloud server poweron gateway-2");
        self.env.power_on(G2.0).await?;
        let recorded = What::Action("RecordSetup".into());
        self.until("gateway-2 is a candidate again", async |now, events| {
            Ok(is_gateway(now, G2) && events.iter().any(|event| event.what == recorded))
        })
        .await?;
        let took = self.when(&recorded)?;
        ensure!(self.route_changes() == changes, "natgw changed the route although its gateway works");
        self.proved("Rebooted: set up again, the route stayed", ms(took));
        Ok(())
    }

    async fn kill_leader(&mut self) -> Result<()> {
        self.chapter("9/11 ── natgw is killed: another replica takes over").await?;
        self.screen.say(
            "A second replica is started. Then the leader is killed, so that it cannot release its Lease. The Lease expires \
             after 6 s (here; 15 s by default).",
        );
        self.command("natgw --config natgw.yaml   # a second replica");
        let standby = self.keep_running("natgw-2")?;
        self.until("natgw-2 is ready", async |_, _| {
            Ok(standby.get("/readyz").await.is_ok_and(|(status, _)| status.is_success()))
        })
        .await?;
        self.screen.event(self.elapsed(), "natgw-2", "is ready; natgw-1 holds the Lease");
        let changes = self.route_changes();
        let leader = self.release("natgw-1")?;
        self.command(&format!("kill -9 {}   # natgw-1", leader.pid()));
        leader.kill()?;
        let leads = async |_: &_, events: &[timeline::Event]| {
            Ok(events.iter().any(|event| event.what == What::Leader))
        };
        self.until("natgw-2 is the leader", leads).await?;
        let took = self.when(&What::Leader)?;
        self.route_stays("natgw-2", changes).await?;
        self.show_state();
        self.screen.say("The route was not changed: traffic does not depend on natgw.");
        self.proved("Killed: another replica took over, the route stayed", ms(took));
        Ok(())
    }

    async fn unlabel(&mut self) -> Result<()> {
        self.chapter("10/11 ── A gateway loses its label").await?;
        self.screen.say(
            "The new leader moves the route away from gateway-1 first, then removes its rules, then sets it up as a client. A \
             Node never runs two Jobs at a time.",
        );
        self.label(G1, false).await?;
        self.until("gateway-2 is the primary, gateway-1 its client", async |now, _| {
            Ok(is_primary(now, G2) && is_client(now, G1.0))
        })
        .await?;
        let route = self.when(&What::Route(Some(G2.1)))?;
        let removed = self.when(&What::Action("RecordTeardown".into()))?;
        ensure!(route < removed, "the setup of gateway-1 was removed before the route was moved");
        self.show_state();
        self.proved("Label removed: the route moved first, then a Job undid the setup", ms(removed));
        Ok(())
    }

    async fn cleanup(&mut self) -> Result<()> {
        self.chapter("11/11 ── natgw is uninstalled").await?;
        let leader = self.release("natgw-2")?;
        self.command(&format!(
            "kill {}   # natgw-2: it finishes its action and releases the Lease",
            leader.pid()
        ));
        leader.signal(Signal::SIGTERM)?;
        let status = leader.wait_exit().await?;
        let took = self.elapsed();
        ensure!(status.success(), "natgw failed after SIGTERM: {status}");
        self.collect(Duration::ZERO);
        self.screen.event(took, "natgw-2", "ended with exit code 0");
        self.command("natgw --config natgw.yaml cleanup");
        let cleanup = self.start("natgw", &["cleanup"])?;
        self.until("natgw cleanup", async |_, _| Ok(cleanup.exited()?.is_some())).await?;
        let took = self.elapsed();
        let status = cleanup.wait_exit().await?;
        ensure!(status.success(), "natgw cleanup failed: {status}");
        self.until("nothing of natgw is left", async |now, _| Ok(now.route.is_none() && without_natgw(now)))
            .await?;
        self.show_state();
        self.proved("Uninstalled: no route, role or annotation of natgw is left", ms(took));
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.screen.title("What you have seen");
        let took = self.show_proofs();
        let requests = self.env.hetzner.requests().len();
        self.screen.gap();
        self.screen.say(&format!(
            "In parentheses: the time until natgw's first request to Hetzner. The demo took {:.0} s and {requests} requests to \
             Hetzner's API, which allows 3,600 an hour. Only the cloud and the Nodes' machines were simulated. docs/natgw.md \
             describes the installation.",
            took.as_secs_f64()
        ));
        Ok(())
    }

    /// Runs natgw until Ctrl-C.
    async fn keep(&mut self) -> Result<()> {
        self.screen.title("The environment is yours until Ctrl-C");
        self.screen.line(&format!("  export KUBECONFIG={}", self.env.control_plane.kubeconfig().display()));
        self.screen.line(&format!("  export HCLOUD_ENDPOINT={}", self.env.hetzner.url()));
        self.screen.line(&format!("  export HCLOUD_TOKEN={}", self.env.hetzner.token()));
        self.screen.gap();
        self.screen.say("natgw runs again, and its actions are shown here. Try in another terminal:");
        self.screen.line(&format!("  kubectl label node {} {FLOATING_IP_LABEL}={}", G1.0, G1.2));
        self.screen.gap();
        self.command("natgw --config natgw.yaml");
        let natgw = self.start("natgw-3", &[])?;
        while natgw.exited()?.is_none() {
            self.linger(READING).await;
        }
        anyhow::bail!("natgw-3 ended")
    }

    async fn label(&mut self, (name, _, floating_ip): Gateway, add: bool) -> Result<()> {
        let change = if add { format!("={floating_ip}") } else { "-".to_owned() };
        self.command(&format!("kubectl label node {name} {FLOATING_IP_LABEL}{change}"));
        self.env.node(name)?.label(FLOATING_IP_LABEL, add.then_some(floating_ip)).await
    }
}

fn is_primary(now: &State, gateway: Gateway) -> bool {
    let mut holders = now.nodes.iter().filter(|(_, node)| node.role).map(|(name, _)| name);
    let only = holders.next().is_some_and(|name| name == gateway.0) && holders.next().is_none();
    only && now.route == Some(gateway.1) && is_gateway(now, gateway)
}

fn is_gateway(now: &State, (name, _, floating_ip): Gateway) -> bool {
    let node = now.nodes.get(name);
    node.is_some_and(|node| node.setup.as_deref() == Some(floating_ip) && !node.pending)
}

fn is_client(now: &State, name: &str) -> bool {
    now.nodes.get(name).is_some_and(|node| node.client && !node.pending)
}

/// No Node has a role or an annotation of natgw.
fn without_natgw(now: &State) -> bool {
    now.nodes.values().all(|node| !node.role && node.setup.is_none() && !node.client && !node.pending)
}

/// A time, and the part of it until natgw's first request.
fn of_which(time: Duration, natgw: Duration) -> String {
    format!("{} (natgw: {})", ms(time), ms(natgw))
}

fn ms(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}
