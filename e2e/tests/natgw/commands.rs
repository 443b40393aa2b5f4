//! `--dry-run`, `--once`, `natgw status`, `natgw cleanup`.

use e2e::control_plane::ControlPlane;
use e2e::natgw::{TestEnv, acts, run};
use serde_json::Value;

use super::{FIRST, SECOND, pair, stop};

#[tokio::test]
async fn dry_run_prints_the_next_plan_and_writes_nothing() {
    let env = TestEnv::start().await.unwrap();
    let (natgw, first, second) = pair(&env, "").await;
    stop(&natgw).await;
    // Something of everything is due: a route, two roles, a Job.
    first.node.cordon(true).await.unwrap();
    second.node.annotate(natgw::names::FORGET_ANNOTATION, Some("false")).await.unwrap();
    let third = env.node(Some("198.51.100.3")).await.unwrap();
    // No other write to these Nodes comes between: a step that is refused would be missing in the run.
    for changed in [&first, &third] {
        env.wait_for_taints(changed).await.unwrap();
    }

    let writes = env.writes.count();
    env.api_proxy.clear_requests();
    let (code, text) = run(&env.command("").unwrap().arg("--dry-run")).await.unwrap();
    assert_eq!(code, 0, "{text}");
    let json = env.command("").unwrap().args(["--dry-run", "--output", "json", "--log-filter", "off"]);
    let (code, json) = run(&json).await.unwrap();
    assert_eq!(code, 0, "{json}");
    assert_eq!(env.writes.count(), writes);
    let written = env.api_proxy.requests().into_iter().filter(|request| request.method != "GET").count();
    assert_eq!(written, 0, "no Event and no Lease either");

    let json: Value = serde_json::from_str(&json).unwrap();
    let planned: Vec<&str> =
        json["steps"].as_array().unwrap().iter().map(|step| step["text"].as_str().unwrap()).collect();
    assert_eq!(planned.len(), 5, "{planned:?}");
    for (number, step) in planned.iter().enumerate() {
        assert!(text.contains(&format!("{}. {step} (", number + 1)), "{step}\n{text}");
    }

    for (arguments, word) in
        [(&["--output", "json", "status"][..], "--dry-run"), (&["--once", "status"], "--once")]
    {
        let refused = env.command("").unwrap().args(arguments.iter().copied()).start().unwrap();
        assert_eq!(refused.wait_exit().await.unwrap().code(), Some(2));
        let lines = refused.output().lines();
        assert!(lines.iter().any(|line| line.contains(word)), "{lines:?}");
    }
    let once = env.natgw("").unwrap().arg("--once").start().unwrap();
    assert_eq!(once.wait_exit().await.unwrap().code(), Some(0));
    assert_eq!(acts(&once), planned);
    env.wait_for_primary(&second).await.unwrap();
    env.wait_for_job(&third, "setup:198.51.100.3").await.unwrap();
    for step in json["steps"].as_array().unwrap() {
        let name = step["regarding"]["name"].as_str().unwrap();
        let event = env.wait_for_event("Node", name, step["reason"].as_str().unwrap()).await.unwrap();
        assert_eq!(event.reporting_controller.as_deref(), Some("natgw.perimeter.dev"));
    }
}

#[tokio::test]
async fn status_prints_network_route_nodes_and_the_next_steps() {
    let env = TestEnv::start().await.unwrap();
    let first = env.node(Some(FIRST)).await.unwrap();
    let plain = env.node(None).await.unwrap();
    let natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_primary(&first).await.unwrap();
    stop(&natgw).await;
    first.node.cordon(true).await.unwrap();
    let writes = env.writes.count();
    let (code, text) = run(&env.command("").unwrap().arg("status")).await.unwrap();
    assert_eq!((code, env.writes.count()), (0, writes), "{text}");
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_default();
    assert!(line("network").contains("lan") && line("network").contains("10.0.0.0/16"), "{text}");
    assert!(line("route").contains(&format!("via 10.0.0.2 ({})", first.name)), "{text}");
    assert_eq!(line("primary"), "primary  none");
    assert!(
        line(&first.name).contains(FIRST) && line(&first.name).contains("eligible, but cordoned"),
        "{text}"
    );
    assert!(line(&plain.name).ends_with("no gateway"), "{text}");
    assert!(text.contains(&format!("remove the role label from Node {}", first.name)), "{text}");
}

/// On a control plane of its own: a cleanup removes the setup of every Node, also of other tests. A setting that an existing cluster
/// cannot have keeps this test away from one.
#[tokio::test]
async fn cleanup_removes_everything_and_waits_for_the_lease_of_a_running_natgw() {
    let own = ControlPlane::builder().controller_flag("--controllers=*").start().await.unwrap();
    let env = TestEnv::on(own).await.unwrap();
    let (first, client) = (env.node(Some(FIRST)).await.unwrap(), env.node(None).await.unwrap());
    let natgw = env.natgw("clients: {enabled: true}").unwrap().start().unwrap();
    env.wait_for_primary(&first).await.unwrap();
    let second = env.node(Some(SECOND)).await.unwrap();
    env.wait_for_setup(&second, SECOND).await.unwrap();
    env.wait_for_client(&client).await.unwrap();

    let cleanup = |timeout: &str| {
        let launch = env.natgw("clients: {enabled: true}").unwrap();
        launch.args(["cleanup", "--timeout", timeout])
    };
    // The last write is seen in the cluster before the proxy has its response.
    env.reconciles(&natgw, 2).await.unwrap();
    let writes = env.accepted_writes().len();
    let (code, text) = run(&cleanup("3s")).await.unwrap();
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("holds the lease"), "{text}");
    assert_eq!(env.accepted_writes().len(), writes);
    assert!(env.route().is_some());

    stop(&natgw).await;
    // One that is interrupted is no cleanup; the next one goes on where it was.
    first.hang("teardown", true);
    let interrupted = cleanup("4m").start().unwrap();
    let pod = first.wait_for_pod("teardown:198.51.100.1").await.unwrap();
    interrupted.signal(nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(interrupted.wait_exit().await.unwrap().code(), Some(1));
    first.node.finish(&pod, 0).unwrap();
    let (code, text) = run(&cleanup("4m")).await.unwrap();
    assert_eq!(code, 0, "{text}");
    assert_eq!(env.route(), None);
    assert!(env.role_holders().await.unwrap().is_empty());
    for gateway in [&first, &second, &client] {
        assert!(env.annotations_of(gateway).await.unwrap().is_empty());
    }
    assert_eq!(first.tasks(), ["setup:198.51.100.1", "teardown:198.51.100.1"]);
    assert_eq!(client.tasks(), ["client-setup:10.0.0.1", "client-teardown:10.0.0.1"]);

    // Defect 28: a route to a Node that is no gateway any more is not natgw's to remove, and no success.
    env.hetzner.set_route(env.network, ipnet::Ipv4Net::default(), Some(first.private_ip)).unwrap();
    let (code, text) = run(&cleanup("4m")).await.unwrap();
    assert!(code == 1 && text.contains("still points to 10.0.0.2"), "{code}: {text}");
    assert_eq!(env.route(), Some(first.private_ip.to_string()));
}
