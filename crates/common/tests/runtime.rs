//! Start and end of a whole program: exit codes, the order of drain and release, standbys, signals. The program is
//! `examples/smallest.rs`; the API server is a stand-in that knows one Lease, since only this end of it is looked at here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![cfg(feature = "runtime")]

use tokio::{net::TcpListener, process::Command};

#[path = "runtime/leases.rs"]
mod leases;
#[path = "runtime/program.rs"]
mod program;
#[path = "runtime/traces.rs"]
mod traces;

use leases::Leases;
use program::{ALONE, NOWHERE, executable, start};

/// A lost lease ends the process after the renew deadline.
const QUICK: [&str; 3] = [
    "--leader-elect-lease-duration=9s",
    "--leader-elect-renew-deadline=6s",
    "--leader-elect-retry-period=300ms",
];
/// For a leader that must not lose its lease because the machine is busy.
const PERSISTENT: [&str; 3] = [
    "--leader-elect-lease-duration=10m",
    "--leader-elect-renew-deadline=9m",
    "--leader-elect-retry-period=300ms",
];
/// Longer than a test waits for the end of a program.
const LONG_SHUTDOWN: &str = "--graceful-shutdown-timeout=1h";

#[tokio::test]
async fn exit_codes_tell_an_end_from_a_failure_from_bad_configuration() {
    for (then, code, text) in [
        ("return", 0, "nothing to do"),
        ("fail", 1, "this controller always fails"),
        ("misconfigured", 2, "smallest: smallest.yaml:1: unknown field \"x\""),
    ] {
        for how in ["--command", "--log-filter=info"] {
            let mut program = start(NOWHERE, &[ALONE, how, "--then", then], &[]);
            assert_eq!(program.code().await, code, "{then} {how}: {:#?}", program.seen);
            assert!(program.logged(text), "{then} {how}: {:#?}", program.seen);
        }
    }
}

#[tokio::test]
async fn what_is_wrong_at_the_start_ends_with_two_before_anything_is_asked() {
    let leases = Leases::default();
    let server = leases.serve().await;
    for (arguments, text) in [
        (vec!["--leader-elect-renew-deadline=20s"], "smallest: "),
        (vec!["--leader-elect-lease-duration=soon"], "15s, 1m30s or 500ms"),
        (vec!["--context=missing"], "missing"),
        (vec!["--log-filter=smallest=loud"], "smallest=loud"),
        (vec!["--admin-address=here"], "--admin-address"),
        (vec!["--no-such-flag"], "--no-such-flag"),
    ] {
        let mut program = start(&server, &arguments, &[]);
        assert_eq!(program.code().await, 2, "{arguments:?}: {:#?}", program.seen);
        assert!(program.logged(text), "{arguments:?}: {:#?}", program.seen);
    }
    assert!(leases.written.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_admin_address_that_is_taken_is_a_failure_that_names_it() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("--admin-address={}", taken.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(
        &kubeconfig,
        "current-context: a\nclusters: [{name: a, cluster: {server: 'http://a'}}]\nusers: []\n\
        contexts: [{name: a, context: {cluster: a}}]\n",
    )
    .unwrap();
    let mut child = Command::new(executable());
    child.env_clear().env("KUBECONFIG", &kubeconfig).args([ALONE, &address]);
    let output = child.output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains(&taken.local_addr().unwrap().to_string()) && text.contains("admin server on"),
        "{text}"
    );
}

#[tokio::test]
async fn an_error_of_the_default_kubeconfig_contains_no_secret() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join(".kube");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("config"), "users:\n- name: u\n  user:\n    token: [hidden]\n").unwrap();
    let output =
        Command::new(executable()).env_clear().env("HOME", home.path()).arg(ALONE).output().await.unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("~/.kube/config cannot be used") && !text.contains("hidden"), "{text}");
}

#[tokio::test]
async fn a_signal_lets_the_reconciliation_finish_and_then_releases_the_lease() {
    let leases = Leases::default();
    let server = leases.serve().await;
    for signal in ["TERM", "INT"] {
        let mut program = start(
            &server,
            &[PERSISTENT.as_slice(), &["--reconcile-time=500ms"]].concat(),
            &[("POD_NAME", "pod-1")],
        );
        program.line("leading").await;
        program.until("/statusz", "Leading: true").await;
        program.until("/statusz", "last reconciliation: nothing to do").await;
        program.until("/metrics", "leader_election_master_status{name=\"smallest\"} 1").await;
        let held = leases.written.lock().unwrap().clone();
        assert!(held.iter().all(|holder| holder.is_empty() || holder.starts_with("pod-1")), "{held:?}");
        assert!(!held.last().unwrap().is_empty());
        program.signal(signal).await;
        assert_eq!(program.code().await, 0, "{:#?}", program.seen);
        let position = |text: &str| program.seen.iter().rposition(|line| line.contains(text));
        assert!(position("nothing to do") > position("draining"), "{:#?}", program.seen);
        let last: serde_json::Value =
            serde_json::from_str(&program.seen[position("nothing to do").unwrap()]).unwrap();
        let finished: jiff::Timestamp = last["ts"].as_str().unwrap().parse().unwrap();
        assert_eq!(leases.written.lock().unwrap().last().unwrap(), "", "released, and last of all");
        assert!(*leases.last_write.lock().unwrap() > finished, "not before the reconciliation was finished");
    }
}

/// As during the minute for which the issue of a client certificate may take: the kubelet kills the Pod after 30 s.
#[tokio::test]
async fn a_signal_while_the_cluster_is_not_connected_ends_the_process_at_once() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    for (how, code) in [(None, 0), (Some("--command"), 1)] {
        let mut flags = vec![ALONE, "--kubeconfig-secret-name=a"];
        flags.extend(how);
        let mut program = start(&server, &flags, &[]);
        let (_connection, _) = silent.accept().await.unwrap();
        program.signal("TERM").await;
        assert_eq!(program.code().await, code, "{:#?}", program.seen);
        assert!(
            !program.logged("cannot be read"),
            "not after the timeout of the request: {:#?}",
            program.seen
        );
    }
}

#[tokio::test]
async fn a_controller_that_does_not_drain_is_cut_off_and_keeps_the_lease_from_others() {
    let leases = Leases::default();
    let server = leases.serve().await;
    let flags = [PERSISTENT.as_slice(), &["--then=deaf", "--graceful-shutdown-timeout=500ms"]].concat();
    let mut program = start(&server, &flags, &[]);
    program.line("leading").await;
    program.signal("TERM").await;
    assert_eq!(program.code().await, 1);
    assert!(
        program.logged("did not end within the graceful shutdown timeout of 500ms"),
        "{:#?}",
        program.seen
    );
    assert!(!leases.written.lock().unwrap().last().unwrap().is_empty(), "a write may still be on its way");
}

#[tokio::test]
async fn the_second_signal_ends_at_once() {
    let mut program = start(NOWHERE, &[ALONE, "--then=deaf", "--graceful-shutdown-timeout=1h"], &[]);
    program.line("leading").await;
    program.signal("TERM").await;
    program.line("draining").await;
    program.signal("INT").await;
    assert_eq!(program.code().await, 1);
    assert!(program.logged("ending at once"), "{:#?}", program.seen);
}

#[tokio::test]
async fn a_signal_while_stepped_down_ends_the_process_at_once_with_the_lease_released() {
    let leases = Leases::default();
    let server = leases.serve().await;
    let mut program =
        start(&server, &[PERSISTENT.as_slice(), &["--then=step-down", LONG_SHUTDOWN]].concat(), &[]);
    program.line("stepped down").await;
    assert_eq!(leases.written.lock().unwrap().last().unwrap(), "", "released");
    assert!(program.get("/statusz").await.contains("Leading: false"));
    program.signal("TERM").await;
    assert_eq!(program.code().await, 0, "{:#?}", program.seen);
}

#[tokio::test]
async fn a_lost_lease_ends_the_process_though_its_controller_hears_nothing() {
    let leases = Leases::default();
    let server = leases.serve().await;
    let mut program = start(&server, &[QUICK.as_slice(), &["--then=deaf", LONG_SHUTDOWN]].concat(), &[]);
    program.line("leading").await;
    leases.give_to("another");
    assert_eq!(program.code().await, 1, "{:#?}", program.seen);
    assert!(program.logged("the lease was lost"), "{:#?}", program.seen);
    let (_, lease) = leases.state.lock().unwrap().clone();
    assert_eq!(lease.unwrap()["spec"]["holderIdentity"], "another", "never emptied for another");
}

#[tokio::test]
async fn a_standby_is_ready_does_nothing_and_leaves_without_a_trace() {
    let leases = Leases::default();
    leases.give_to("another");
    let server = leases.serve().await;
    let mut program = start(&server, &QUICK, &[]);
    program.until("/readyz", " 200 OK").await;
    program.until("/statusz", "Lease holder: another").await;
    assert!(program.get("/statusz").await.contains("Leading: false"));
    assert!(program.get("/metrics").await.contains("leader_election_master_status{name=\"smallest\"} 0"));
    assert!(program.get("/flagz").await.contains("\nleader-elect-lease-duration=9s\n"));
    program.signal("TERM").await;
    assert_eq!(program.code().await, 0);
    assert!(!program.logged("leading\"") && leases.written.lock().unwrap().is_empty(), "{:#?}", program.seen);
}

#[tokio::test]
async fn a_lease_whose_name_and_namespace_are_left_empty_has_the_default_ones() {
    let leases = Leases::default();
    let server = leases.serve().await;
    let empty =
        [("PERIMETER_LEADER_ELECT_RESOURCE_NAME", ""), ("PERIMETER_LEADER_ELECT_RESOURCE_NAMESPACE", "")];
    let mut program = start(&server, &QUICK, &empty);
    program.line("leading").await;
    program.until("/metrics", "leader_election_master_status{name=\"smallest\"} 1").await;
    program.signal("TERM").await;
    assert_eq!(program.code().await, 0, "{:#?}", program.seen);
}

#[tokio::test]
async fn every_flag_can_come_from_the_environment() {
    let environment =
        [("PERIMETER_LEADER_ELECT", "false"), ("PERIMETER_THEN", "return"), ("RUST_LOG", "warn")];
    let mut program = start(NOWHERE, &[], &environment);
    assert_eq!(program.code().await, 0, "{:#?}", program.seen);
    assert!(program.seen.is_empty(), "the filter says warn: {:#?}", program.seen);
}

#[tokio::test]
async fn the_version_names_commit_and_compiler() {
    let output = Command::new(executable()).arg("--version").output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("smallest 0.1.0 (commit ") && text.contains(", rustc 1."), "{text}");
}
