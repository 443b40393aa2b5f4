//! Two natgw processes, each behind proxies of its own: one acts, the other is ready.

use std::sync::Arc;
use std::time::{Duration, Instant};

use e2e::fault_proxy::{Fault, FaultProxy, Matcher, Recorded, Then, Upstream, When, WriteCounter};
use e2e::natgw::{TIMEOUT, TestEnv};
use e2e::program::Program;
use nix::sys::signal::Signal;

use crate::leader_election::contender::{SHORT, Times};

/// One process with what lies between it and both servers.
pub struct Replica {
    pub program: Arc<Program>,
    pub api: FaultProxy,
    pub cloud: FaultProxy,
    /// Counts its writes to both servers.
    pub counter: WriteCounter,
}

impl Replica {
    pub async fn start(env: &TestEnv, name: &str, Times(lease, renew, retry): Times) -> Replica {
        let counter = WriteCounter::new();
        let api = FaultProxy::start_counted(env.upstream().unwrap(), &counter).await.unwrap();
        let cloud = FaultProxy::start_counted(Upstream::hetzner(env.hetzner.url()), &counter).await.unwrap();
        let kubeconfig = env.control_plane.token_kubeconfig(&api.url(), "the-certificate-counts").unwrap();
        let settings = format!("hetzner: {{endpoint: '{}', pollInterval: 3s}}\n", cloud.url());
        let launch = env.natgw(&settings).unwrap().name(name).env("POD_NAME", name);
        let program = launch
            .env("KUBECONFIG", kubeconfig)
            .args(["--namespace", &env.namespace])
            .args([
                format!("--leader-elect-lease-duration={lease}ms"),
                format!("--leader-elect-renew-deadline={renew}ms"),
                format!("--leader-elect-retry-period={retry}ms"),
            ])
            .start()
            .unwrap();
        Replica { program: Arc::new(program), api, cloud, counter }
    }

    pub async fn leads(&self) -> bool {
        let metrics = self.program.metrics().await;
        metrics.is_ok_and(|metrics| metrics.sum("leader_election_master_status", &[]) == Some(1.0))
    }

    async fn walks(&self) -> f64 {
        let metrics = self.program.metrics().await.unwrap();
        metrics.sum("controller_runtime_reconcile_total", &[("result", "success")]).unwrap_or(0.0)
    }

    /// Waits for that many walks more.
    pub async fn walks_on(&self, env: &TestEnv, more: f64) {
        let before = self.walks().await;
        env.wait("more walks", || async { Ok(self.walks().await >= before + more) }).await.unwrap();
    }

    /// What it asked to be written, of any kind, at either server.
    pub fn writes(&self) -> Vec<Recorded> {
        let mut all = self.api.requests();
        all.extend(self.cloud.requests());
        all.retain(|call| call.method != http::Method::GET);
        all
    }
}

/// A environment with one gateway in force, its leader, and a standby that is ready.
pub async fn pair(times: Times) -> (TestEnv, e2e::natgw::Gateway, Replica, Replica) {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some("198.51.100.1")).await.unwrap();
    let first = Replica::start(&env, "first", times).await;
    env.wait_for_primary(&gateway).await.unwrap();
    let second = Replica::start(&env, "second", times).await;
    env.wait("the standby to be ready", || async { Ok(second.program.get("/readyz").await?.0.is_success()) })
        .await
        .unwrap();
    assert!(first.leads().await && !second.leads().await, "ready is not leading");
    assert!(second.writes().is_empty() && second.cloud.requests().is_empty(), "a standby asks for nothing");
    (env, gateway, first, second)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_standby_takes_over_from_a_killed_leader_with_the_route_untouched() {
    let (env, gateway, first, second) = pair(SHORT).await;
    let routes = env.hetzner.route_history(env.network).len();
    let began = Instant::now();
    first.program.kill().unwrap();
    env.wait("the standby to lead", || async { Ok(second.leads().await) }).await.unwrap();
    let took = began.elapsed();
    second.walks_on(&env, 2.0).await;
    assert_eq!(env.hetzner.route_history(env.network).len(), routes, "the route was not touched");
    env.wait_for_primary(&gateway).await.unwrap();
    // And it acts.
    let other = env.node(Some("198.51.100.2")).await.unwrap();
    gateway.node.cordon(true).await.unwrap();
    env.wait_for_primary(&other).await.unwrap();
    println!("natgw killed: the standby led after {took:.1?}; the route was not touched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_asked_to_end_hands_over_at_once() {
    let (env, gateway, first, second) = pair(Times(60_000, 40_000, 500)).await;
    let routes = env.hetzner.route_history(env.network).len();
    let began = Instant::now();
    first.program.signal(Signal::SIGTERM).unwrap();
    let status = first.program.wait_exit(TIMEOUT).await.unwrap();
    assert_eq!(status.code(), Some(0), "a drain is no failure");
    env.wait("the standby to lead", || async { Ok(second.leads().await) }).await.unwrap();
    let took = began.elapsed();
    // A retry period with jitter is 1.1 s. Without the release it would have been a minute.
    assert!(took < Duration::from_secs(15), "{took:?}");
    second.walks_on(&env, 2.0).await;
    assert_eq!(env.hetzner.route_history(env.network).len(), routes, "the route was not touched");
    env.wait_for_primary(&gateway).await.unwrap();
    println!("natgw ended with code 0: the standby led after {took:.1?}; the route was not touched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_stopped_in_a_route_move_writes_nothing_when_it_wakes() {
    let (env, gateway, first, second) = pair(SHORT).await;
    let other = env.node(Some("198.51.100.2")).await.unwrap();
    env.wait("the second gateway", || async {
        let key = natgw::names::SETUP_ANNOTATION;
        Ok(env.annotation(&other.name, key).await?.is_some())
    })
    .await
    .unwrap();
    // Asleep with the old route deleted and the new one still to be added: the worst moment.
    let sleeper = first.program.clone();
    let stopped = first
        .cloud
        .on_write(1, When::AfterServerActed, move || async move {
            sleeper.pause().unwrap();
            Then::GoOn
        })
        .unwrap();
    gateway.node.cordon(true).await.unwrap();
    let write = stopped.wait(TIMEOUT).await.unwrap();
    assert!(write.target.ends_with("/actions/delete_route"), "{write:?}");
    env.wait_for_primary(&other).await.unwrap();
    assert!(second.leads().await);
    let before = first.writes().len();
    let routes = env.hetzner.route_history(env.network).len();
    first.program.resume().unwrap();
    assert_eq!(first.program.wait_exit(TIMEOUT).await.unwrap().code(), Some(1), "a lost lease is a failure");
    second.walks_on(&env, 2.0).await;
    let after = first.writes();
    assert_eq!(after.len(), before, "it wrote when it woke: {:?}", &after[before.min(after.len())..]);
    assert_eq!(env.hetzner.route_history(env.network).len(), routes);
    env.wait_for_primary(&other).await.unwrap();
    println!(
        "natgw stopped between delete_route and add_route: the standby finished the move, the sleeper wrote nothing"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_without_an_api_server_ends_and_the_standby_takes_over() {
    let (env, gateway, first, second) = pair(SHORT).await;
    let routes = env.hetzner.route_history(env.network).len();
    let began = Instant::now();
    first.api.rule(Matcher::any(), Fault::Blackhole);
    let status = first.program.wait_exit(TIMEOUT).await.unwrap();
    let ended = began.elapsed();
    assert_eq!(status.code(), Some(1), "a lost lease is a failure");
    env.wait("the standby to lead", || async { Ok(second.leads().await) }).await.unwrap();
    let took = began.elapsed();
    second.walks_on(&env, 2.0).await;
    assert_eq!(env.hetzner.route_history(env.network).len(), routes, "the route was not touched");
    env.wait_for_primary(&gateway).await.unwrap();
    println!(
        "natgw cut off: it ended after {ended:.1?}, the standby led after {took:.1?}; the route was not touched"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_cannot_ask_the_cloud_hands_over_to_one_that_can() {
    let (env, gateway, first, second) = pair(SHORT).await;
    let other = env.node(Some("198.51.100.2")).await.unwrap();
    env.wait_for_setup(&other, "198.51.100.2").await.unwrap();
    // Its way to the cloud led by the gateway, say, which is dead.
    first.cloud.rule(Matcher::any(), Fault::Refuse);
    gateway.node.cordon(true).await.unwrap();
    env.wait_for_primary(&other).await.unwrap();
    assert!(second.leads().await);
    let stepped_down = async |replica: &Replica| {
        Ok(replica.program.output().lines().iter().any(|line| line.contains("stepped down")))
    };
    env.wait("the first to step down", || stepped_down(&first)).await.unwrap();
    let why = "the cloud is unreachable from here; stepping down so that another replica can lead";
    let lines = first.program.output().lines();
    assert!(lines.iter().any(|line| line.contains(why)), "{lines:#?}");
    assert!(first.program.exited().unwrap().is_none(), "it is the same process");
    assert_eq!(lines.iter().filter(|line| line.contains("\"started\"")).count(), 1, "it does not restart");
    // Where no replica can reach it, the lease changes hands and each one retries.
    second.cloud.rule(Matcher::any(), Fault::Refuse);
    env.wait("the second to step down", || stepped_down(&second)).await.unwrap();
}
