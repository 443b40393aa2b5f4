//! A environment with machines, the natgws that act in it, and the witness.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use e2e::fault_proxy::{Then, When, kill_process};
use e2e::hetzner::NewFloatingIp;
use e2e::hollow_node::HollowNode;
use e2e::natgw::{FLOATING_IP_LABEL, Gateway, TestEnv};
use e2e::program::{Launch, Program};
use natgw::names;
use serde_json::json;
use tokio::time::timeout;

use crate::natgw_sweep::sight::{End, Sight};
use crate::natgw_sweep::witness::{Course, Script, Witness};

/// Longer than anything takes, with dozens of environments on a slow machine.
pub const TIMEOUT: Duration = Duration::from_secs(240);
/// How often the environment is looked at while nothing seems to change.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// A third of the grace that the control plane gives: dozens of Nodes share it.
const HEARTBEAT: Duration = Duration::from_secs(4);
/// How often natgw is asked how many walks it has made.
const WALKED: Duration = Duration::from_millis(40);

/// The environment and who acts in it.
pub struct Stage {
    pub env: Arc<TestEnv>,
    pub witness: Witness,
    pub gateways: Vec<Arc<Gateway>>,
    course: Course,
    launch: Launch,
    cast: Arc<Mutex<Vec<Arc<Program>>>>,
}

impl Stage {
    /// An empty one. `elects`: natgws contend for a Lease of a few seconds.
    pub async fn new(
        elects: bool,
        course: impl Fn(&str, &str) -> Script + Send + Sync + 'static,
    ) -> Result<Stage> {
        let env = Arc::new(TestEnv::start().await?);
        // As in a cluster of its own: dozens of environments share this one, and each Node's news would wake every natgw.
        env.api_proxy.narrow("/api/v1/nodes", &format!("labelSelector=env%3D{}", env.namespace));
        let launch = env.natgw("")?;
        let launch = if elects {
            // As short as leaves room for a busy machine.
            launch
                .args(["--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s"])
                .arg("--leader-elect-retry-period=400ms")
        } else {
            launch.arg("--leader-elect=false")
        };
        let witness = Witness::of(&env);
        let cast = Arc::new(Mutex::default());
        Ok(Stage { env, witness, gateways: Vec::new(), course: Arc::new(course), launch, cast })
    }

    /// A new Node with a floating IP on its server and in its label.
    pub async fn gateway(&mut self, ip: &str) -> Result<Arc<Gateway>> {
        let node = |name: &str, server| {
            HollowNode::builder(name).provider_id(format!("hcloud://{server}")).heartbeat(HEARTBEAT)
        };
        let gateway = Arc::new(self.env.node_as(Some(ip), node).await?);
        self.witness.observe(&gateway, self.course.clone());
        self.gateways.push(gateway.clone());
        Ok(gateway)
    }

    /// The same, as natgw leaves it once it is set up: the end of the first scenario.
    pub async fn settled(&mut self, ip: &str, primary: bool) -> Result<Arc<Gateway>> {
        let gateway = self.gateway(ip).await?;
        self.witness.was_set_up(&gateway, ip);
        let annotations =
            json!({ names::SETUP_ANNOTATION: ip, names::BOOT_ID_ANNOTATION: gateway.node.boot_id() });
        let labels = if primary { json!({ self.env.role_label(): "" }) } else { json!({}) };
        let body = json!({ "metadata": { "annotations": annotations, "labels": labels } });
        let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(self.env.client.clone());
        nodes.patch(&gateway.name, &Default::default(), &kube::api::Patch::Merge(body)).await?;
        if primary {
            self.env.hetzner.set_route(self.env.network, default_route(), Some(gateway.private_ip))?;
        }
        Ok(gateway)
    }

    /// Assigns another floating IP to the Node's server and writes its label.
    pub async fn relabel(&self, gateway: &Gateway, ip: &str) -> Result<()> {
        // All kinds of one project share their IDs: far from those of servers and of the first floating IPs.
        let floating = NewFloatingIp::new("another", ip).id(gateway.server + 700).server(&gateway.name);
        self.env.hetzner.add_floating_ip(floating)?;
        gateway.node.label(FLOATING_IP_LABEL, Some(ip)).await
    }

    /// Starts one natgw more.
    pub fn enter(&self) -> Result<()> {
        let program = Arc::new(self.launch.start()?);
        self.cast.lock().unwrap().push(program);
        Ok(())
    }

    /// The natgws that run, in the order of their entry.
    pub fn cast(&self) -> Vec<Arc<Program>> {
        self.cast.lock().unwrap().clone()
    }

    /// Kills the natgw that entered first of those that run, at its `n`th write from now, and lets another one enter. Then
    /// the next, at its first write, if `again`.
    pub fn kill_at(&self, n: u64, when: When, again: bool) -> Result<Killer> {
        let kills = Arc::new(Mutex::new(Vec::new()));
        arm(self.env.clone(), self.launch.clone(), self.cast.clone(), kills.clone(), (n, when, again))?;
        Ok(Killer(kills))
    }

    /// Waits until the environment is as `wanted` says.
    pub async fn wait_until(&self, what: &str, wanted: impl Fn(&Sight) -> bool) -> Result<Sight> {
        let waits = async {
            loop {
                self.replace_the_fallen()?;
                if let Some(sight) = self.witness.now().await.filter(|sight| wanted(sight)) {
                    return Ok(sight);
                }
                // The look itself has said that something changed; a second one is not needed for that.
                self.witness.changed().await;
                let _ = timeout(LOOK_AGAIN, self.witness.changed()).await;
            }
        };
        match timeout(TIMEOUT, waits).await {
            Ok(sight) => sight,
            Err(_) => bail!("still waiting for {what}; there is {:#?}", self.witness.now().await),
        }
    }

    /// Who ended by itself (a lost lease) is started again, as a kubelet does.
    fn replace_the_fallen(&self) -> Result<()> {
        let mut cast = self.cast.lock().unwrap();
        for program in cast.iter_mut() {
            if program.exited()?.is_some() {
                *program = Arc::new(self.launch.start()?);
            }
        }
        Ok(())
    }

    /// Waits until two walks in a row, each called for, have written nothing.
    pub async fn rest(&self) -> Result<()> {
        let until = Instant::now() + TIMEOUT;
        while Instant::now() < until {
            let before = self.env.writes.count();
            for _ in 0..2 {
                self.another_walk(until).await?;
            }
            if self.env.writes.count() == before {
                return Ok(());
            }
        }
        bail!("natgw never rests; its writes: {:?}", self.env.writes.count())
    }

    /// Calls for a walk and waits for one.
    pub async fn another_walk(&self, until: Instant) -> Result<()> {
        let gateway = self.gateways.first().context("no Node")?;
        let (cast, before) = self.walks().await;
        gateway.node.annotate("env/poke", Some(&format!("{:?}", Instant::now()))).await?;
        while Instant::now() < until {
            self.replace_the_fallen()?;
            let (now, walks) = self.walks().await;
            if walks > if now == cast { before } else { 0.0 } {
                return Ok(());
            }
            tokio::time::sleep(WALKED).await;
        }
        bail!("natgw walks no more")
    }

    /// Who runs, and how many walks they have made.
    pub async fn walks(&self) -> (Vec<u32>, f64) {
        let (mut who, mut sum) = (Vec::new(), 0.0);
        for program in self.cast() {
            who.push(program.pid());
            // No answer: it is dead or is being born.
            if let Ok(metrics) = program.metrics().await {
                let walks = |result| metrics.sum("controller_runtime_reconcile_total", &[("result", result)]);
                sum += walks("success").unwrap_or(0.0) + walks("error").unwrap_or(0.0);
            }
        }
        (who, sum)
    }

    /// Waits until somebody has made a walk.
    pub async fn first_walk(&self) -> Result<()> {
        let until = Instant::now() + TIMEOUT;
        while self.walks().await.1 == 0.0 {
            self.replace_the_fallen()?;
            anyhow::ensure!(Instant::now() < until, "natgw never walks");
            tokio::time::sleep(WALKED).await;
        }
        Ok(())
    }

    /// The end of the story as `sight` has it.
    pub fn end(&self, sight: &Sight) -> End {
        let order: Vec<String> = self.gateways.iter().map(|gateway| gateway.name.clone()).collect();
        End::of(sight, &self.witness.machines(), &order)
    }

    /// The last lines that the natgws wrote, for the report of a failure.
    pub fn last_words(&self) -> String {
        let lines = self.cast().into_iter().flat_map(|program| {
            let lines = program.output().lines();
            let skip = lines.len().saturating_sub(40);
            lines.into_iter().skip(skip)
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Everybody leaves, and the Nodes go: dead ones would keep the control plane busy.
    pub async fn close(self) -> Result<()> {
        self.env.writes.forget_actions();
        for program in self.cast.lock().unwrap().drain(..) {
            // One that is gone already is as good.
            let _ = program.kill();
        }
        for gateway in self.gateways {
            gateway.node.silence().await;
            let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(self.env.client.clone());
            nodes.delete(&gateway.name, &Default::default()).await?;
        }
        Ok(())
    }
}

/// 0.0.0.0/0
pub fn default_route() -> ipnet::Ipv4Net {
    ipnet::Ipv4Net::default()
}

/// Who was killed, and when.
pub struct Killer(Arc<Mutex<Vec<String>>>);

impl Killer {
    /// The writes at which somebody was killed.
    pub fn kills(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn arm(
    env: Arc<TestEnv>,
    launch: Launch,
    cast: Arc<Mutex<Vec<Arc<Program>>>>,
    kills: Arc<Mutex<Vec<String>>>,
    (n, when, again): (u64, When, bool),
) -> Result<()> {
    let victim = cast.clone();
    let fired = env.writes.on_write(n, when, move || async move {
        let pid = victim.lock().unwrap().first().map(|program| program.pid());
        if let Some(pid) = pid {
            // A pid of our own child, which is not collected before it leaves the cast: it is nobody else's.
            kill_process(pid).await.unwrap();
        }
        Then::Cut
    })?;
    tokio::spawn(async move {
        let Ok(write) = fired.wait(TIMEOUT).await else { return };
        kills.lock().unwrap().push(format!("{} {}", write.method, write.target));
        let Ok(next) = launch.start() else { return };
        {
            let mut cast = cast.lock().unwrap();
            cast.remove(0);
            cast.push(Arc::new(next));
        }
        if again {
            let _ = arm(env, launch, cast, kills, (1, when, false));
        }
    });
    Ok(())
}
