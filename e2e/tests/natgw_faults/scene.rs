//! A world with a natgw that can die and be started again, and a witness.

use std::sync::{Arc, Mutex};

use e2e::fault_proxy::{Then, When, kill_process};
use e2e::hetzner::NewFloatingIp;
use e2e::natgw::{FLOATING_IP_LABEL, Gateway, PATIENCE, World};
use e2e::program::{Launch, Program};
use natgw::names;
use tokio::task::JoinHandle;

use crate::witness::Witness;

/// The world and who acts in it.
pub struct Scene {
    pub world: World,
    pub witness: Witness,
    launch: Launch,
    program: Arc<Mutex<Arc<Program>>>,
}

impl Scene {
    /// A scene on the control plane that all scenes share.
    pub async fn start() -> Scene {
        Scene::with(World::start().await.unwrap()).await
    }

    /// A scene in this world. natgw runs without an election: each scene has one at a time.
    pub async fn with(world: World) -> Scene {
        let witness = Witness::of(&world);
        let launch = world.natgw("").unwrap().arg("--leader-elect=false");
        let program = Arc::new(Mutex::new(Arc::new(launch.start().unwrap())));
        Scene { world, witness, launch, program }
    }

    /// natgw as it runs now.
    pub fn program(&self) -> Arc<Program> {
        self.program.lock().unwrap().clone()
    }

    /// Kills natgw at its `n`th write from now, and starts it again. The handle ends with the write's request line, or with
    /// none if it never came.
    pub fn kill_at(&self, n: u64, when: When) -> JoinHandle<Option<String>> {
        let pid = self.program().pid();
        let killed = self.world.writes.on_write(n, when, move || async move {
            kill_process(pid).await.unwrap();
            Then::Cut
        });
        let (killed, launch, program) = (killed.unwrap(), self.launch.clone(), self.program.clone());
        tokio::spawn(async move {
            let write = killed.wait(PATIENCE * 2).await.ok()?;
            let again = Arc::new(launch.start().unwrap());
            *program.lock().unwrap() = again;
            Some(format!("{} {}", write.method, write.target))
        })
    }

    /// A new Node, and after it a floating IP on its server and in its label.
    pub async fn gateway(&self, ip: &str) -> Gateway {
        let gateway = self.world.node(None).await.unwrap();
        self.witness.observe(&gateway);
        let floating = NewFloatingIp::new(&format!("fip-of-{}", gateway.name), ip);
        // All kinds of one project share their IDs here: far from those of servers.
        self.world.hetzner.add_floating_ip(floating.id(gateway.server + 500).server(&gateway.name)).unwrap();
        gateway.node.label(FLOATING_IP_LABEL, Some(ip)).await.unwrap();
        gateway
    }

    /// Waits until the Node's setup annotation is this, and nothing is pending.
    pub async fn wait_for_setup(&self, gateway: &Gateway, ip: Option<&str>) {
        let world = &self.world;
        world
            .wait(&format!("the setup annotation {ip:?} of {}", gateway.name), || async {
                let said = world.annotation(&gateway.name, names::SETUP_ANNOTATION).await?;
                let pending = world.annotation(&gateway.name, names::PENDING_ANNOTATION).await?;
                Ok(said.as_deref() == ip && pending.is_none())
            })
            .await
            .unwrap();
    }

    /// Walks that succeeded and walks that failed, of the natgw that runs now.
    pub async fn walks(&self) -> anyhow::Result<(f64, f64)> {
        let metrics = self.program().metrics().await?;
        let walks = |result| metrics.sum("controller_runtime_reconcile_total", &[("result", result)]);
        Ok((walks("success").unwrap_or(0.0), walks("error").unwrap_or(0.0)))
    }

    /// Waits for that many walks more that succeed, each called for by a change of the Node.
    pub async fn walks_on(&self, gateway: &Gateway, more: u32) {
        for _ in 0..more {
            let before = self.program().pid();
            // No answer: it has just been killed; its successor counts from nothing.
            let walked = self.walks().await.map_or(0.0, |(walked, _)| walked);
            let poke = format!("{:?}", std::time::Instant::now());
            gateway.node.annotate("world/poke", Some(&poke)).await.unwrap();
            self.world
                .wait("another walk", || async {
                    let (now, _) = self.walks().await?;
                    Ok(now > if self.program().pid() == before { walked } else { 0.0 })
                })
                .await
                .unwrap();
        }
    }

    /// Waits until two walks in a row have written nothing.
    pub async fn rest(&self, gateway: &Gateway) {
        loop {
            let before = self.world.writes.count();
            self.walks_on(gateway, 2).await;
            if self.world.writes.count() == before {
                return;
            }
        }
    }
}
