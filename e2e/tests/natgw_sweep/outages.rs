//! Faults that last, and those that need a control plane of their own.

use std::time::{Duration, SystemTime};

use e2e::control_plane::{ControlPlane, Part};
use e2e::fault_proxy::{EventFilter, Fate, Fault, Matcher, Recorded, Reply};
use e2e::natgw::{FLOATING_IP_LABEL, Gateway, TIMEOUT, TestEnv};
use natgw::names;

use super::env::SweepEnv;
use super::invariants::Script;
use super::scenario::{FIRST, SECOND, Scenario};
use super::{Case, Run};

/// The first gateway is the primary, the second one is set up, and natgw has reconciled.
async fn settled(env: TestEnv) -> SweepEnv {
    let mut env = SweepEnv::new(env, "", false, |_, _| Script::Succeeds).unwrap();
    env.settled(FIRST, true).await.unwrap();
    env.settled(SECOND, false).await.unwrap();
    env.start().unwrap();
    env.rest().await.unwrap();
    env
}

impl SweepEnv {
    async fn wait_for_primary(&self, number: usize) {
        let name = &self.gateways[number].name;
        self.wait_until(&format!("{name} as the primary"), |observed| observed.has_primary(name))
            .await
            .unwrap();
    }

    /// No forbidden state was seen, and natgw was not restarted.
    async fn close_clean(self, pid: u32) {
        self.rest().await.unwrap();
        self.checker.at_rest().await.unwrap();
        let violations = self.checker.violations();
        assert!(violations.is_empty(), "forbidden: {violations:#?}");
        assert_eq!(self.programs()[0].pid(), pid, "the same process all the time");
        self.close().await.unwrap();
    }

    fn pid(&self) -> u32 {
        self.programs()[0].pid()
    }

    async fn job_event(&self, node: &Gateway) {
        let reported = || async {
            let events = self.env.events_about("Node", &node.name).await?;
            Ok(events.iter().any(|event| event.action.as_deref() == Some("CreateJob")))
        };
        self.env.wait(&format!("an Event of the Job of {}", node.name), reported).await.unwrap();
    }

    /// Nodes without a floating IP whose labels name one.
    async fn labelled(&self, count: u8) -> Vec<Gateway> {
        let mut nodes = Vec::new();
        for _ in 0..count {
            nodes.push(self.env.node(None).await.unwrap());
        }
        for (node, number) in nodes.iter().zip(100..) {
            node.node.label(FLOATING_IP_LABEL, Some(&format!("198.51.100.{number}"))).await.unwrap();
        }
        nodes
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn natgw_stays_ready_and_continues_when_the_api_server_is_restarted() {
    // Without the API server the Nodes cannot renew their Leases: they must not become NotReady on a busy machine.
    let control_plane = ControlPlane::builder().grace(Duration::from_secs(120)).start().await.unwrap();
    let env = settled(TestEnv::on(control_plane).await.unwrap()).await;
    let (inner, program, pid) = (&env.env, env.programs()[0].clone(), env.pid());
    let routes = inner.hetzner.route_history(inner.network).len();
    inner.control_plane.kill(Part::ApiServer).unwrap();
    let failed = || async { Ok(!program.output().matching(|line| line.contains("watch failed")).is_empty()) };
    inner.wait("a watch that failed", failed).await.unwrap();
    let ready = program.get("/readyz").await.unwrap().0;
    assert!(ready.is_success(), "a cache that has synced once stays ready: {ready}");
    inner.control_plane.restart(Part::ApiServer).await.unwrap();
    assert!(program.get("/readyz").await.unwrap().0.is_success());
    assert_eq!(inner.hetzner.route_history(inner.network).len(), routes, "nothing has changed");
    env.gateways[0].node.cordon(true).await.unwrap();
    env.wait_for_primary(1).await;
    env.close_clean(pid).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "full: a control plane of its own; the test of the permissions has one without streaming lists"]
async fn api_server_without_streaming_lists_leads_to_the_same_end() {
    let run = Run { scenario: Scenario::FirstGateway, case: Case::Undisturbed };
    let expected = run.play(None).await.unwrap();
    let control_plane =
        ControlPlane::builder().api_server_flag("--feature-gates=WatchList=false").start().await.unwrap();
    let env = run.scenario.prepare(TestEnv::on(control_plane).await.unwrap()).await.unwrap();
    run.play_in(&env, Some(&expected)).await.unwrap();
    let fallback = env.programs()[0].output().matching(|line| line.contains("does not stream lists"));
    assert_eq!(fallback.len(), 2, "reported once for each cache: {fallback:?}");
    env.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_cloud_delays_the_move_of_the_route_and_nothing_is_written() {
    let env = settled(TestEnv::start().await.unwrap()).await;
    let (inner, pid) = (&env.env, env.pid());
    inner.cloud_proxy.refuse_all(true);
    let (_, before) = env.reconciles().await;
    let writes = inner.writes.count();
    env.gateways[0].node.cordon(true).await.unwrap();
    env.wait_for_reconciles(|_, reconciles| reconciles >= before + 2.0).await.unwrap();
    inner.wait_for_event("Namespace", &inner.namespace, "ObserveFailed").await.unwrap();
    assert_eq!(inner.writes.count(), writes, "nothing is written without the state of the cloud");
    assert_eq!(inner.role_holders().await.unwrap(), [env.gateways[0].name.clone()]);
    inner.cloud_proxy.refuse_all(false);
    env.wait_for_primary(1).await;
    env.close_clean(pid).await;
}

/// As with an admission webhook without endpoints: each request waits for its deadline, and is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slowly_refused_jobs_do_not_delay_the_failover_and_each_node_is_tried() {
    const NODES: u8 = 12;
    let env = settled(TestEnv::start().await.unwrap()).await;
    let (proxy, pid) = (&env.env.api_proxy, env.pid());
    let jobs = || Matcher::any().verb("create").resource("jobs");
    proxy.rule(jobs(), Fault::DelayRequest(Duration::from_secs(2)));
    let refused = proxy.rule(jobs(), Fault::Reject(Reply::internal()));
    let nodes = env.labelled(NODES).await;
    proxy.wait_applied(refused, 1, TIMEOUT).await.unwrap();
    let cordoned = SystemTime::now();
    env.gateways[0].node.cordon(true).await.unwrap();
    env.wait_for_primary(1).await;
    // The Jobs until the request for the route: more follow before it is seen here.
    let routes = env.env.cloud_proxy.requests();
    let route = routes.iter().find(|call| call.at > cordoned && call.path.ends_with("/add_route")).unwrap();
    let between = |call: &&Recorded| cordoned < call.at && call.at < route.at;
    let posted = |call: &&Recorded| call.method == "POST" && call.path.ends_with("/jobs");
    let meanwhile = proxy.requests().iter().filter(between).filter(posted).count();
    assert!(meanwhile < 2 * usize::from(NODES) / 3, "the route waited for {meanwhile} Jobs");
    for node in &nodes {
        env.job_event(node).await;
    }
    proxy.clear();
    env.close_clean(pid).await;
}

/// As with an admission webhook without endpoints that may be ignored: each write of a Node takes its deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_writes_of_nodes_do_not_prevent_their_jobs() {
    let env = settled(TestEnv::start().await.unwrap()).await;
    let patches = Matcher::any().verb("patch").resource("nodes");
    env.env.api_proxy.rule(patches, Fault::DelayRequest(Duration::from_secs(6)));
    for node in &env.labelled(3).await {
        env.job_event(node).await;
    }
    env.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn label_that_flaps_while_events_are_held_is_never_recorded_wrongly() {
    let mut env = settled(TestEnv::start().await.unwrap()).await;
    let (pid, proxy) = (env.pid(), env.env.api_proxy.clone());
    // From the pending annotation on, natgw sees nothing more of Nodes. Then the label is changed, removed, added and removed.
    let pending = |event: &serde_json::Value| {
        event["object"]["metadata"]["annotations"][names::PENDING_ANNOTATION].is_string()
    };
    let nodes = Matcher::watches().resource("nodes");
    let held = proxy.rule(nodes, Fault::Event(Fate::Hold, EventFilter::when(pending)));
    let third = env.gateway("198.51.100.3").await.unwrap();
    proxy.wait_applied(held, 1, TIMEOUT).await.unwrap();
    let other = Some("198.51.100.4");
    for label in [other, None, other, None] {
        third.node.label(FLOATING_IP_LABEL, label).await.unwrap();
    }
    // The API server refuses what natgw decides from its stale cache: each patch carries a resource version.
    let flapped = SystemTime::now();
    let refused = |call: &Recorded| {
        call.at > flapped
            && call.upstream_status == Some(409)
            && call.kube().is_some_and(|request| request.resource == "nodes")
    };
    proxy.wait_for(|calls| calls.iter().any(refused), TIMEOUT).await.unwrap();
    assert_eq!(env.env.annotation(&third.name, names::SETUP_ANNOTATION).await.unwrap(), None);
    proxy.remove(held);
    // The Job that was created is undone.
    let undone = |observed: &super::observed::ObservedState| {
        let kernel =
            env.checker.machines().all.get(&third.name).and_then(|machine| machine.translates_to.clone());
        let node = &observed.nodes[&third.name];
        kernel.is_none() && node.setup().is_none() && !node.pending()
    };
    env.wait_until("the teardown", undone).await.unwrap();
    env.wait_for_primary(0).await;
    env.close_clean(pid).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_event_is_seen_after_the_next_list() {
    let env = settled(TestEnv::start().await.unwrap()).await;
    let (pid, proxy, nodes) = (env.pid(), &env.env.api_proxy, || Matcher::watches().resource("nodes"));
    let cordoned =
        |event: &serde_json::Value| event["object"]["spec"]["unschedulable"].as_bool() == Some(true);
    let dropped = proxy.rule(nodes(), Fault::drop_events(cordoned));
    env.gateways[0].node.cordon(true).await.unwrap();
    proxy.wait_applied(dropped, 1, TIMEOUT).await.unwrap();
    let (_, before) = env.reconciles().await;
    env.gateways[1].node.annotate("env/poke", Some("1")).await.unwrap();
    // The first one to end may have begun before.
    env.wait_for_reconciles(|_, reconciles| reconciles >= before + 2.0).await.unwrap();
    assert_eq!(env.env.route(), Some(env.gateways[0].private_ip.to_string()), "natgw has not seen the event");
    proxy.remove(dropped);
    assert!(proxy.expire_watches(&nodes()) > 0);
    env.wait_for_primary(1).await;
    env.close_clean(pid).await;
}
