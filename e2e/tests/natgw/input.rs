//! Bad input has a defined outcome: a message, an Event, a metric, and nothing else touched.

use std::path::Path;

use e2e::natgw::{FLOATING_IP_LABEL, TestEnv, run};
use e2e::program::{Launch, Program};

use super::{FIRST, SECOND};

const TOKEN: &str = "a-token-that-must-never-be-printed-anywhere-0123456789";

/// natgw with a settings file of this text, a token, and a cluster that does not exist: what is refused here is refused
/// before anything is asked.
fn with_settings(folder: &Path, text: &str) -> Launch {
    let settings = folder.join("natgw.yaml");
    std::fs::write(&settings, text).unwrap();
    let launch = Program::binary("natgw").unwrap().env("HCLOUD_TOKEN", TOKEN).arg("--config").arg(settings);
    launch.args(["--log-filter", "off"])
}

/// Exit code 2, and one line with these words and without the token.
async fn refused(launch: &Launch, words: &[&str]) {
    let (code, text) = run(launch).await.unwrap();
    assert_eq!(code, 2, "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    for word in words {
        assert!(text.contains(word), "{text:?} does not say {word:?}");
    }
    assert!(!text.contains(TOKEN), "{text}");
}

#[tokio::test]
async fn invalid_settings_are_refused_with_file_and_field() {
    let folder = tempfile::tempdir().unwrap();
    for (settings, words) in [
        ("network: lan\nfloatingIPLabel: a.org/x\nroleLabel: a.org/x", &["roleLabel", "floatingIPLabel"][..]),
        ("network: lan\nnodeSelector: {matchLabels: {'a b': c}}", &["nodeSelector", "a b"]),
        ("network: lan\nnodeSelector:\n  matchLabel: {a: b}", &["matchLabel", "natgw.yaml:3"]),
        ("network: lan\nonNoCandidate: drop", &["keep", "remove"]),
        ("network: lan\nhetzner: {pollInterval: 1s}", &["hetzner.pollInterval", "3s"]),
        ("network: lan\nhetzner: {pollInterval: 15m}", &["hetzner.pollInterval", "5m"]),
        ("network: lan\nhetzner: {endpoint: 'not a url'}", &["hetzner.endpoint"]),
        ("netwrok: lan", &["netwrok", "natgw.yaml:1", "expected", "network"]),
        ("network: [", &["natgw.yaml:1"]),
    ] {
        let launch = with_settings(folder.path(), settings);
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, NOWHERE).unwrap();
        let words = [words, if settings.contains("not a url") { &[] } else { &["natgw.yaml"] }].concat();
        refused(&launch.env("KUBECONFIG", kubeconfig), &words).await;
    }
}

/// A cluster without an API server.
const NOWHERE: &str = "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\n\
    users: [{name: a, user: {}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\n";

#[tokio::test]
async fn defect_09_a_ttl_under_a_minute_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for ttl in ["0s", "59s"] {
        let settings = format!("network: lan\njobs: {{ttlAfterFinished: {ttl}}}");
        refused(&with_settings(folder.path(), &settings), &["natgw.yaml", "jobs.ttlAfterFinished", "60"])
            .await;
    }
}

#[tokio::test]
async fn missing_or_wrong_flags_files_and_tokens_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, NOWHERE).unwrap();
    let good = with_settings(folder.path(), "network: lan").env("KUBECONFIG", &kubeconfig);
    refused(&good.clone().args(["--context", "b"]), &["b"]).await;
    refused(
        &good.clone().args(["--admin-address", "127.0.0.1:0", "--leader-elect-lease-duration", "5s"]),
        &["--leader-elect", "lease duration", "renew deadline"],
    )
    .await;
    refused(&good.clone().arg("--hcloud-token-file").arg(folder.path().join("none")), &["none"]).await;
    refused(&good.clone().env("HCLOUD_TOKEN", ""), &["HCLOUD_TOKEN", "empty"]).await;
    refused(&good.clone().env("HCLOUD_TOKEN", format!("{TOKEN}\n{TOKEN}")), &["HCLOUD_TOKEN"]).await;
    let no_token = Program::binary("natgw").unwrap().arg("--config").arg(folder.path().join("natgw.yaml"));
    refused(&no_token, &["HCLOUD_TOKEN", "--hcloud-token-file"]).await;
    let missing = Program::binary("natgw").unwrap().arg("--config").arg(folder.path().join("missing.yaml"));
    refused(&missing, &["missing.yaml"]).await;
    for flags in
        [&["--nonsense"][..], &["--once", "--dry-run"], &["cleanup", "--timeout", "soon"], &["deploy"]]
    {
        let (code, text) = run(&good.clone().args(flags)).await.unwrap();
        assert_eq!(code, 2, "{text}");
        assert!(text.contains(flags[flags.len() - 1]) && !text.contains(TOKEN), "{text}");
    }
}

#[tokio::test]
async fn unknown_network_is_reported_and_natgw_continues_when_it_is_created() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some(FIRST)).await.unwrap();
    let natgw = env.natgw("network: late").unwrap().start().unwrap();
    let event = env.wait_for_event("Namespace", &env.namespace, "ObserveFailed").await.unwrap();
    assert!(event.note.unwrap().contains("late"));
    // It is counted after its Event.
    env.wait("a failed reconciliation", || async {
        Ok(natgw.metrics().await?.sum("controller_runtime_reconcile_errors_total", &[]) > Some(0.0))
    })
    .await
    .unwrap();
    assert_eq!(env.writes.count(), 0);
    let (code, _) = natgw.get("/readyz").await.unwrap();
    assert_eq!(code, 200, "its caches have synced; a restart would fix nothing");

    let late = env.hetzner.add_network(e2e::hetzner::NewNetwork::new("late", "10.1.0.0/16")).unwrap();
    let address = "10.1.0.2".parse().unwrap();
    env.hetzner.attach_server(gateway.server, late, address).unwrap();
    env.wait("a route in the network", || async { Ok(env.hetzner.default_gateway(late) == Some(address)) })
        .await
        .unwrap();
    assert_eq!(env.route(), None);
}

#[tokio::test]
async fn read_only_token_changes_no_route_and_no_role() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some(FIRST)).await.unwrap();
    let launch = env.natgw("").unwrap().env("HCLOUD_TOKEN", env.hetzner.readonly_token());
    let natgw = launch.start().unwrap();
    let event = env.wait_for_event("Node", &gateway.name, "NoDefaultRoute").await.unwrap();
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert!(event.note.clone().unwrap().contains("token_readonly"), "{event:?}");
    let failed = [("action", "MoveRoute"), ("result", "failed")];
    let metrics = natgw.metrics().await.unwrap();
    assert!(metrics.sum("perimeter_actions_total", &failed) >= Some(1.0));
    assert_eq!(metrics.sum("natgw_route_in_place", &[]), Some(0.0));
    assert_eq!(env.route(), None);
    assert!(env.role_holders().await.unwrap().is_empty());
    assert!(env.hetzner.writes().iter().all(|write| write.status == Some(403)));
    assert!(!natgw.output().lines().join("\n").contains(&env.hetzner.readonly_token()));
}

#[tokio::test]
async fn wrong_token_is_reported_without_its_value() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some(FIRST)).await.unwrap();
    let natgw = env.natgw("").unwrap().env("HCLOUD_TOKEN", TOKEN).start().unwrap();
    let event = env.wait_for_event("Namespace", &env.namespace, "ObserveFailed").await.unwrap();
    assert!(event.note.clone().unwrap().contains("unauthorized"), "{event:?}");
    assert_eq!(env.writes.count(), 0);
    assert!(env.annotations_of(&gateway).await.unwrap().is_empty());
    let (code, text) =
        run(&env.natgw("").unwrap().env("HCLOUD_TOKEN", TOKEN).args(["--once", "--leader-elect=false"]))
            .await
            .unwrap();
    assert_eq!(code, 1, "{text}");
    assert!(!(text + &natgw.output().lines().join("\n") + &event.note.unwrap()).contains(TOKEN));
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn invalid_annotation_stops_its_node_until_forget() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some(FIRST)).await.unwrap();
    gateway.node.annotate(natgw::names::SETUP_ANNOTATION, Some("yes")).await.unwrap();
    let natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_event("Node", &gateway.name, "InvalidAnnotation").await.unwrap();
    env.reconciles(&natgw, 2).await.unwrap();
    assert_eq!(env.accepted_writes().len(), 0);
    gateway.node.annotate(natgw::names::FORGET_ANNOTATION, Some("true")).await.unwrap();
    env.wait_for_primary(&gateway).await.unwrap();
    env.wait_for_event("Node", &gateway.name, "ForgetRequested").await.unwrap();
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn forget_ends_a_teardown_that_hangs() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some(FIRST)).await.unwrap();
    let natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_primary(&gateway).await.unwrap();
    gateway.hang("teardown", true);
    gateway.node.label(FLOATING_IP_LABEL, Some(SECOND)).await.unwrap();
    gateway.wait_for_pod("teardown:198.51.100.1").await.unwrap();
    gateway.node.annotate(natgw::names::FORGET_ANNOTATION, Some("true")).await.unwrap();
    env.wait_for_setup(&gateway, SECOND).await.unwrap();
    assert_eq!(gateway.tasks().last().unwrap(), "setup:198.51.100.2");
    env.reconciles(&natgw, 2).await.unwrap();
    assert_eq!(gateway.tasks().len(), 3, "no second teardown");
}
