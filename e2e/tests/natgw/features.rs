//! Optional features, the output of a running natgw, and its steady state.

use std::collections::BTreeSet;
use std::time::Duration;

use e2e::control_plane::ControlPlane;
use e2e::fault_proxy::{Fault, Matcher, Reply};
use e2e::natgw::{FLOATING_IP_LABEL, TestEnv};
use http::Method;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use natgw::names;

use super::{FIRST, SECOND, pair, stop};

#[tokio::test]
async fn clients_get_their_route_and_lose_it_before_they_become_gateways() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some(FIRST)).await.unwrap();
    let client = env.node(None).await.unwrap();
    let _natgw = env.natgw("clients: {enabled: true}").unwrap().start().unwrap();
    env.wait_for_primary(&gateway).await.unwrap();
    env.wait("the client's annotation", || async {
        Ok(env.annotations_of(&client).await?.get("client").is_some_and(|ip| ip == "10.0.0.1"))
    })
    .await
    .unwrap();
    let job = env.wait_for_job(&client, "client-setup:10.0.0.1").await.unwrap();
    let container = job.spec.unwrap().template.spec.unwrap().containers.remove(0);
    let variables = container.env.unwrap();
    let value_of =
        |name: &str| variables.iter().find(|one| one.name == name).and_then(|one| one.value.clone());
    assert_eq!(value_of("NETWORK_GATEWAY").as_deref(), Some("10.0.0.1"));
    assert_eq!(value_of("PRIVATE_IP"), Some(client.private_ip.to_string()));
    assert_eq!(value_of("FLOATING_IP"), None);

    client.node.label(FLOATING_IP_LABEL, Some(SECOND)).await.unwrap();
    env.wait_for_setup(&client, SECOND).await.unwrap();
    assert_eq!(client.tasks(), ["client-setup:10.0.0.1", "client-teardown:10.0.0.1", "setup:198.51.100.2"]);
}

#[tokio::test]
async fn floating_ip_labels_follow_the_clouds_assignments() {
    let env = TestEnv::start().await.unwrap();
    let first = env.node(Some(FIRST)).await.unwrap();
    first.node.label(FLOATING_IP_LABEL, None).await.unwrap();
    let second = env.node(None).await.unwrap();
    second.node.label(FLOATING_IP_LABEL, Some(SECOND)).await.unwrap();
    let _natgw = env.natgw("floatingIPs: {label: true}").unwrap().start().unwrap();
    let label = async |name: &str| {
        anyhow::Ok(env.get(name).await?.metadata.labels.and_then(|mut all| all.remove(FLOATING_IP_LABEL)))
    };
    env.wait_for_primary(&first).await.unwrap();
    assert_eq!(label(&first.name).await.unwrap().as_deref(), Some(FIRST));
    // The cloud knows of no such assignment. Where the cache lags behind, the removal is refused at first, and the route does not wait.
    env.wait("the label to be removed", || async { Ok(label(&second.name).await?.is_none()) }).await.unwrap();

    env.hetzner.assign_floating_ip(first.floating_ip(), Some(second.server)).unwrap();
    env.wait_for_primary(&second).await.unwrap();
    assert_eq!(label(&second.name).await.unwrap().as_deref(), Some(FIRST));
    env.wait_for_no_annotations(&first).await.unwrap();
    assert_eq!(label(&first.name).await.unwrap(), None);
    env.wait_for_event("Node", &second.name, "FloatingIPAssigned").await.unwrap();
    env.wait_for_event("Node", &first.name, "FloatingIPUnassigned").await.unwrap();
}

#[tokio::test]
async fn without_the_list_of_floating_ips_the_last_one_is_used_and_the_route_moves() {
    let env = TestEnv::start().await.unwrap();
    let (_natgw, first, second) = pair(&env, "floatingIPs: {label: true}").await;
    let lists = Matcher::any().method(Method::GET).path("*/floating_ips*");
    env.cloud_proxy.rule(lists, Fault::Reject(Reply::internal()));
    second.node.label(FLOATING_IP_LABEL, None).await.unwrap();
    first.node.cordon(true).await.unwrap();
    env.wait_for_primary(&second).await.unwrap();
    let labels = env.get(&second.name).await.unwrap().metadata.labels.unwrap();
    assert_eq!(labels.get(FLOATING_IP_LABEL).map(String::as_str), Some(SECOND), "it was put back");
    env.wait_for_event("Namespace", &env.namespace, "FloatingIPsUnknown").await.unwrap();
}

#[tokio::test]
async fn events_metrics_and_pages_are_right_and_never_contain_the_token() {
    let env = TestEnv::start().await.unwrap();
    let token = env.hetzner.token();
    let first = env.node(Some(FIRST)).await.unwrap();
    env.node(None).await.unwrap();
    let natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_primary(&first).await.unwrap();
    let second = env.node(Some(SECOND)).await.unwrap();
    env.wait_for_setup(&second, SECOND).await.unwrap();

    for (metric, labels, value) in [
        ("natgw_primary", &[][..], 1.0),
        ("natgw_route_in_place", &[], 1.0),
        ("natgw_nodes", &[("state", "eligible")], 2.0),
        ("natgw_nodes", &[("state", "candidate")], 2.0),
        ("natgw_nodes", &[("state", "selected")], 3.0),
        ("natgw_problems", &[], 0.0),
        ("natgw_route_switches_total", &[], 1.0),
        ("natgw_route_switch_duration_seconds_count", &[], 1.0),
        ("natgw_job_failures_total", &[("type", "teardown")], 0.0),
        ("natgw_build_info", &[], 1.0),
        ("leader_election_master_status", &[("name", "natgw")], 1.0),
        ("perimeter_actions_total", &[("action", "CreateJob"), ("result", "done")], 2.0),
    ] {
        env.wait_for_metric(&natgw, metric, labels, value).await.unwrap();
    }
    let metrics = natgw.metrics().await.unwrap();
    assert!(metrics.names().iter().any(|name| name.contains("rate_limit")), "{:?}", metrics.names());

    let acts = async |name: &str| -> BTreeSet<String> {
        let events = env.events_about("Node", name).await.unwrap();
        let act = |event: Event| Some(format!("{} {}", event.action?, event.reason?));
        events.into_iter().filter_map(act).collect()
    };
    let expected = [
        "CreateJob SetupMissing",
        "RecordPending SetupMissing",
        "MoveRoute NoDefaultRoute",
        "RecordSetup JobSucceeded",
        "SetRole BecamePrimary",
    ];
    // Of equal Events within minutes only the first is seen apart; those of two actions are not equal.
    let all = || async {
        let seen = acts(&first.name).await;
        Ok(expected.iter().all(|act| seen.contains(*act)))
    };
    env.wait(&format!("Events {expected:?}"), all).await.unwrap();

    let mut output = natgw.output().lines().join("\n");
    for (path, words) in [
        ("/readyz?verbose", &["nodes", "jobs"][..]),
        ("/livez", &[]),
        ("/statusz", &["Leading: true", "via 10.0.0.2", "nothing to do"]),
        ("/flagz", &["config", "dry-run"]),
        ("/metrics", &[]),
    ] {
        let (code, page) = natgw.get(path).await.unwrap();
        assert_eq!(code, 200, "{path}: {page}");
        for word in words {
            assert!(page.contains(word), "{path} does not say {word:?}: {page}");
        }
        output += &page;
    }
    let events = Api::<Event>::all(env.client.clone()).list(&ListParams::default()).await.unwrap();
    output += &serde_json::to_string(&events.items).unwrap();
    output += &serde_json::to_string(&env.jobs().await.unwrap()).unwrap();
    assert!(!output.contains(&token));

    let writes = env.accepted_writes().len();
    stop(&natgw).await;
    assert_eq!(env.accepted_writes().len(), writes, "the route and the roles outlive the process");
    env.wait_for_primary(&first).await.unwrap();
    let lease = Api::<Lease>::namespaced(env.client.clone(), &env.namespace).get("natgw").await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity.unwrap_or_default(), "", "released for the next one");
}

#[tokio::test]
async fn drain_finishes_the_running_step() {
    let env = TestEnv::start().await.unwrap();
    // Long enough for a signal to come in between; the move is two of them.
    env.hetzner.set_action_duration(Duration::from_secs(2));
    let first = env.node(Some(FIRST)).await.unwrap();
    let natgw = env.natgw("").unwrap().start().unwrap();
    let adds = |requests: &[e2e::fault_proxy::Recorded]| {
        requests.iter().any(|request| request.path.ends_with("add_route") && request.status.is_some())
    };
    env.cloud_proxy.wait_for(adds, e2e::natgw::TIMEOUT).await.unwrap();
    stop(&natgw).await;
    env.wait_for_primary(&first).await.unwrap();
}

/// On a control plane of its own: events of other tests would trigger reconciliations.
#[tokio::test]
async fn steady_state_writes_nothing_and_lists_the_cloud_once_a_poll() {
    let env = TestEnv::on(ControlPlane::start().await.unwrap()).await.unwrap();
    let (natgw, first, second) = pair(&env, "").await;
    env.reconciles(&natgw, 2).await.unwrap();
    // Events are written in the background, in order: no earlier one is left after the last.
    env.wait_for_event("Node", &second.name, "JobSucceeded").await.unwrap();
    env.api_proxy.clear_requests();
    env.cloud_proxy.clear_requests();
    let polls = |requests: &[e2e::fault_proxy::Recorded]| requests.len() >= 8;
    let asked = env.cloud_proxy.wait_for(polls, e2e::natgw::TIMEOUT).await.unwrap();
    for list in ["networks", "floating_ips"] {
        let polls: Vec<_> = asked.iter().filter(|request| request.path.contains(list)).collect();
        assert!(polls.len() >= 3, "{list}: {polls:?}");
        for (one, next) in polls.iter().zip(polls.iter().skip(1)) {
            let gap = next.at.duration_since(one.at).unwrap();
            // Half of the interval, because the proxy may record a request late.
            assert!(gap >= Duration::from_millis(1500), "{gap:?} between two lists of {list}");
        }
    }
    assert!(asked.iter().all(|request| request.method == "GET"));
    for request in env.api_proxy.requests() {
        let lease = request.path.ends_with("/leases/natgw");
        assert!(lease, "{} {}?{}", request.method, request.path, request.query);
    }
    for gateway in [&first, &second] {
        assert_eq!(env.annotation(&gateway.name, names::PENDING_ANNOTATION).await.unwrap(), None);
    }
}
