//! A environment with a natgw and a witness.

use std::sync::Arc;

use e2e::hetzner::NewFloatingIp;
use e2e::natgw::{FLOATING_IP_LABEL, Gateway, TestEnv};
use e2e::program::Program;
use natgw::names;

use crate::natgw_faults::witness::Witness;

/// The environment and who acts in it.
pub struct Scene {
    pub env: TestEnv,
    pub witness: Witness,
    program: Arc<Program>,
}

impl Scene {
    /// A scene on the control plane that all scenes share.
    pub async fn start() -> Scene {
        Scene::with(TestEnv::start().await.unwrap()).await
    }

    /// A scene in this environment. natgw runs without an election: each scene has one at a time.
    pub async fn with(env: TestEnv) -> Scene {
        let witness = Witness::of(&env);
        let program = Arc::new(env.natgw("").unwrap().arg("--leader-elect=false").start().unwrap());
        Scene { env, witness, program }
    }

    /// natgw.
    pub fn program(&self) -> Arc<Program> {
        self.program.clone()
    }

    /// A new Node, and after it a floating IP on its server and in its label.
    pub async fn gateway(&self, ip: &str) -> Gateway {
        let gateway = self.env.node(None).await.unwrap();
        self.witness.observe(&gateway);
        let floating = NewFloatingIp::new(&format!("fip-of-{}", gateway.name), ip);
        // All kinds of one project share their IDs here: far from those of servers.
        self.env.hetzner.add_floating_ip(floating.id(gateway.server + 500).server(&gateway.name)).unwrap();
        gateway.node.label(FLOATING_IP_LABEL, Some(ip)).await.unwrap();
        gateway
    }

    /// Waits until the Node's setup annotation is this, and nothing is pending.
    pub async fn wait_for_setup(&self, gateway: &Gateway, ip: Option<&str>) {
        let env = &self.env;
        env.wait(&format!("the setup annotation {ip:?} of {}", gateway.name), || async {
            let said = env.annotation(&gateway.name, names::SETUP_ANNOTATION).await?;
            let pending = env.annotation(&gateway.name, names::PENDING_ANNOTATION).await?;
            Ok(said.as_deref() == ip && pending.is_none())
        })
        .await
        .unwrap();
    }

    /// Walks that succeeded and walks that failed, so far.
    pub async fn walks(&self) -> anyhow::Result<(f64, f64)> {
        let metrics = self.program().metrics().await?;
        let walks = |result| metrics.sum("controller_runtime_reconcile_total", &[("result", result)]);
        Ok((walks("success").unwrap_or(0.0), walks("error").unwrap_or(0.0)))
    }

    /// Waits for that many walks more that succeed, each called for by a change of the Node.
    pub async fn walks_on(&self, gateway: &Gateway, more: u32) {
        for _ in 0..more {
            let (walked, _) = self.walks().await.unwrap();
            let poke = format!("{:?}", std::time::Instant::now());
            gateway.node.annotate("env/poke", Some(&poke)).await.unwrap();
            self.env.wait("another walk", || async { Ok(self.walks().await?.0 > walked) }).await.unwrap();
        }
    }

    /// Waits until two walks in a row have written nothing.
    pub async fn rest(&self, gateway: &Gateway) {
        loop {
            let before = self.env.writes.count();
            self.walks_on(gateway, 2).await;
            if self.env.writes.count() == before {
                return;
            }
        }
    }
}
