//! Each fault at each request of a controller to the API server: from its start over a binding and a move of the VIP to the unbinding. The
//! callers repeat what was refused, as an administrator and a keeper do, and each step ends as without faults.
//!
//! `make test` injects a slice of the faults, `make test-full` all of them, `SWEEP=k/n` a part.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};
use e2e::sweep::{Case, Kind, OF_READS, OF_WRITES, Slice, sweep};
use serde_json::{Value, json};

use super::env::{CLASS, Caller, Controller, FIRST, PREFIX, SECOND, TestEnv, VIP, mac};

/// `make test` injects one of this many faults.
const SLICES: u64 = 64;

type Calls = ((), Kind);

/// The state that a client, an agent and an administrator see.
#[derive(Debug, PartialEq)]
struct State {
    is_recorded: bool,
    vip: Option<String>,
    gateway: (String, String),
    ingress: Vec<String>,
}

struct Scenario<'a> {
    env: &'a TestEnv,
    admin: Caller,
    keeper: Caller,
    runs: AtomicU32,
}

impl Scenario<'_> {
    async fn state(&self) -> State {
        let service = self.env.read(&self.env.x, "a").await;
        let status = service.status.unwrap_or_default().load_balancer.unwrap_or_default();
        State {
            is_recorded: self.env.record(VIP).await.is_some(),
            vip: self.env.annotation(&self.env.x, "a", "vip").await,
            gateway: self.env.gateway(&self.env.x, "a").await,
            ingress: status.ingress.unwrap_or_default().into_iter().filter_map(|one| one.ip).collect(),
        }
    }

    async fn reach(&self, step: &str, desired: State) -> Result<()> {
        let reached =
            e2e::wait::until(step, async || Ok((self.state().await == desired).then_some(()))).await;
        match reached {
            Ok(()) => Ok(()),
            Err(error) => Err(error.context(format!("{:?} instead of {desired:?}", self.state().await))),
        }
    }

    /// Sends a request until the response has one of the codes.
    async fn send(&self, controller: &Controller, caller: &Caller, request: Request<'_>) -> Result<()> {
        let Request { method, path, body, codes } = request;
        let send = async || {
            let response = caller.send(controller.api, method, path, body.clone()).await;
            // A caller that is refused for good would not repeat.
            let may_repeat = matches!(response.code, 401 | 403 | 429 | 500..600);
            ensure!(codes.contains(&response.code) || may_repeat, "{method} {path}: {response:?}");
            Ok(codes.contains(&response.code).then_some(()))
        };
        e2e::wait::until(method, send).await
    }

    async fn run(&self, case: Case<Calls>) -> Result<[(Calls, u64); 2]> {
        let env = self.env;
        // Epochs never go backwards, also from run to run.
        let since = f64::from(self.runs.fetch_add(1, Ordering::Relaxed) + 1) * 100.0;
        let epoch = |since: f64| format!("{:.0}", since * 1000.0);
        env.keepers[0].reports(Some(("MASTER", since)));
        env.keepers[1].reports(Some(("BACKUP", since)));
        env.annotate(&env.own, "cgw-providers", json!({ format!("{PREFIX}/provider.{VIP}"): null })).await;
        let (requests, changes) = (env.proxy.requests().len(), env.changes().len());
        let armed = case.arm(env.proxy.counter(), &Default::default(), |((), kind)| kind.at(&env.proxy))?;

        // Without polls, the number of its requests does not depend on how fast the machine is.
        let controller = Controller::of(env.launch_with_resync("1h").start()?).await;
        let bind = json!({ "vip": VIP, "namespace": env.x, "service": "a" });
        let request = Request { method: "POST", path: "/vip", body: Some(bind), codes: &[200, 201] };
        self.send(&controller, &self.admin, request).await.context("bind")?;
        let gateway = (FIRST.to_owned(), epoch(since));
        let bound = State { is_recorded: true, vip: Some(VIP.into()), gateway, ingress: vec![VIP.into()] };
        self.reach("bound", bound).await?;

        let later = since + 10.0;
        env.keepers[0].reports(Some(("BACKUP", later)));
        env.keepers[1].reports(Some(("MASTER", later)));
        let notify = json!({ "vips": [VIP], "node_ip": SECOND, "tun_mac": mac(SECOND), "since": later });
        let request = Request { method: "POST", path: "/master_notify", body: Some(notify), codes: &[200] };
        self.send(&controller, &self.keeper, request).await.context("notify")?;
        let gateway = (SECOND.to_owned(), epoch(later));
        let moved = State { is_recorded: true, vip: Some(VIP.into()), gateway, ingress: vec![VIP.into()] };
        self.reach("moved", moved).await?;

        let path = format!("/vip/{VIP}/{}/a", env.x);
        // 404: the request before it succeeded, and its response was lost.
        let request = Request { method: "DELETE", path: &path, body: None, codes: &[200, 404] };
        self.send(&controller, &self.admin, request).await.context("unbind")?;
        let gateway = (String::new(), epoch(later));
        self.reach("unbound", State { is_recorded: false, vip: None, gateway, ingress: vec![] }).await?;

        let own = ["cgw-hosts", "cgw-binds", "cgw-providers"].map(|store| (env.own.as_str(), store));
        let written = env.changes().split_off(changes);
        for write in &written {
            let mut objects = own.iter().copied().chain([(env.x.as_str(), "a")]);
            let is_own = |(namespace, name)| {
                let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
                write.path == path || write.path == format!("{path}/status")
            };
            ensure!(objects.any(is_own), "forbidden: {write:?}");
        }
        let counts = Kind::count((), &env.proxy.requests().split_off(requests));
        armed.happened().with_context(|| format!("{counts:?}"))?;
        Ok(counts)
    }
}

struct Request<'a> {
    method: &'static str,
    path: &'a str,
    body: Option<Value>,
    codes: &'a [u16],
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_ends_as_without_it() {
    let env = TestEnv::start().await;
    env.service(&env.x, "a", 80, json!({ "type": "LoadBalancer", "loadBalancerClass": CLASS })).await;
    env.service(&env.x, "other", 81, json!({ "type": "LoadBalancer", "loadBalancerClass": CLASS })).await;
    let (admin, keeper) = (env.admin().await, env.keeper(SECOND).await);
    let scenario = Scenario { env: &env, admin, keeper, runs: AtomicU32::new(0) };
    let counts = scenario.run(Case::Undisturbed).await.unwrap();
    let slice = Slice::chosen("cgw-controller", SLICES).unwrap();
    let cases = slice.pick(Case::faults_by_kind(&counts, &OF_READS, &OF_WRITES));
    println!("{counts:?}: {} cases, {slice}", cases.len());
    let run = async |case| scenario.run(case).await.map(drop);
    sweep(&cases, run, || env.proxy.clear()).await.unwrap();
}
