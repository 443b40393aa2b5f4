use std::convert::Infallible;
use std::path::Path;

use common::admin::Status;
use common::events::Events;
use common::netlink::isolated::isolated;
use common::readiness::Readiness;
use kube::client::Body;
use prometheus::{Registry, TextEncoder};

use super::super::metrics::KeeperMetrics;
use super::super::run::read_configuration;
use super::*;

fn router(vip: &str) -> Arc<Router> {
    Arc::new(Router::sample(vip))
}

/// A supervisor on the node of the calling thread's network namespace, with the first configuration.
fn supervisor(
    run_dir: &Path,
    readiness: &Readiness,
    registry: &Registry,
) -> (watch::Sender<Arc<Router>>, Supervisor) {
    let api = tower::service_fn(|_: http::Request<Body>| async {
        Ok::<_, Infallible>(http::Response::new(Body::empty()))
    });
    let client = kube::Client::new(api, "default");
    let metrics = common::metrics::Metrics::new("cgw-controller").unwrap();
    let (sender, receiver) = watch::channel(router("192.168.50.201"));
    let supervisor = Supervisor {
        keepalived: "true".into(),
        program: "/usr/bin/cgw".into(),
        run_dir: RunDir::new(run_dir.to_owned()),
        router: receiver,
        vrrp: watch::channel(Vrrp { state: VrrpState::Init, since: 0 }).0,
        node: Node::open().unwrap(),
        record: Record::new(Process::current().unwrap(), &router("192.168.50.201")),
        accepted: Vec::new(),
        refused: None,
        reporter: Reporter {
            node: "g1".to_owned(),
            vrid: 51,
            events: Events::new(client, &metrics, "cgw-controller", "test".to_owned()),
            metrics: KeeperMetrics::new(registry).unwrap(),
            status: Status::default(),
            configuration: readiness.check("configuration"),
            outdated: Arc::default(),
        },
        readiness: readiness.check("keepalived"),
    };
    (sender, supervisor)
}

/// Whether `/readyz` and the metric show that the changed configuration is not used.
fn is_shown(readiness: &Readiness, registry: &Registry) -> bool {
    let report = readiness.report();
    let is_shown = report.iter().any(|(name, state)| name == "configuration" && state.problem.is_some());
    let metrics = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    let gauge = format!("\ncgw_keeper_configuration_outdated {}\n", u8::from(is_shown));
    assert!(metrics.contains(&gauge), "{metrics}");
    is_shown
}

fn vips(vip: &str) -> Vec<VipRange> {
    vec![vip.parse().unwrap()]
}

async fn the_record_is_that_of_the_configuration_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let (readiness, registry) = (Readiness::default(), Registry::new());
    let (sender, mut supervisor) = supervisor(folder.path(), &readiness, &registry);
    supervisor.configure().await.unwrap();
    // Programs that refuse and accept each configuration, and end.
    supervisor.keepalived = "false".into();
    sender.send_replace(router("192.168.50.202"));
    let _ended = supervisor.start().await.unwrap();
    assert_eq!((&supervisor.record.vips, is_shown(&readiness, &registry)), (&vips("192.168.50.201"), true));
    // Also if it was refused before, by a keepalived that ran.
    let _ended = supervisor.start().await.unwrap();
    assert_eq!(supervisor.run_dir.record().unwrap().unwrap().vips, vips("192.168.50.201"));
    supervisor.keepalived = "true".into();
    sender.send_replace(router("192.168.50.203"));
    let _ended = supervisor.start().await.unwrap();
    assert_eq!((&supervisor.record.vips, is_shown(&readiness, &registry)), (&vips("192.168.50.203"), false));
}

async fn the_configuration_is_checked_again() {
    let folder = tempfile::tempdir().unwrap();
    let (readiness, registry) = (Readiness::default(), Registry::new());
    let (sender, mut supervisor) = supervisor(folder.path(), &readiness, &registry);
    supervisor.configure().await.unwrap();
    let mut running = supervisor.start().await.unwrap();
    // A check that fails for a while.
    supervisor.keepalived = "false".into();
    sender.send_replace(router("192.168.50.202"));
    supervisor.reload(&mut running).await;
    let now = sys::monotonic();
    assert_eq!((&supervisor.accepted, is_shown(&readiness, &registry)), (&vips("192.168.50.201"), true));
    assert!(!supervisor.is_retry_due(now) && supervisor.is_retry_due(now + RETRY));
    supervisor.keepalived = "true".into();
    supervisor.reload(&mut running).await;
    assert_eq!((&supervisor.accepted, is_shown(&readiness, &registry)), (&vips("192.168.50.202"), false));
    assert!(!supervisor.is_retry_due(now + 2 * RETRY));
}

async fn the_problem_of_the_file_and_that_of_keepalived_are_shown_until_each_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (readiness, registry) = (Readiness::default(), Registry::new());
    let (sender, mut supervisor) = supervisor(folder.path(), &readiness, &registry);
    supervisor.configure().await.unwrap();
    let mut running = supervisor.start().await.unwrap();
    let reporter = supervisor.reporter.clone();
    let file = folder.path().join("router.yaml");
    let change = |text: &str| {
        std::fs::write(&file, text).unwrap();
        read_configuration(&file, &sender, &reporter);
        is_shown(&readiness, &registry)
    };
    let valid = "vrid: 51\ninterface: eth0\nvips: [192.168.50.202]\npeers: []\n";
    assert!(!change(valid), "keepalived has not checked it yet");
    supervisor.keepalived = "false".into();
    supervisor.reload(&mut running).await;
    assert!(is_shown(&readiness, &registry) && change("vrid: 0\n"));
    assert!(change(valid), "keepalived still refuses it");
    // The check of an earlier configuration succeeds while the file is broken.
    assert!(change("vrid: 0\n"));
    supervisor.keepalived = "true".into();
    supervisor.reload(&mut running).await;
    assert!(is_shown(&readiness, &registry), "the file is still broken");
    assert!(!change(valid));
}

async fn addresses_that_the_guard_removed_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (readiness, registry) = (Readiness::default(), Registry::new());
    let (_sender, mut supervisor) = supervisor(folder.path(), &readiness, &registry);
    supervisor.configure().await.unwrap();
    supervisor.run_dir.add_stripped(2).unwrap();
    supervisor.run_dir.add_stripped(1).unwrap();
    for _ in 0..2 {
        let _ended = supervisor.start().await.unwrap();
    }
    let metrics = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
    assert!(metrics.contains("\ncgw_keeper_stripped_vips_total 3\n"), "{metrics}");
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test);
}

#[test]
fn a_refused_configuration_does_not_remove_vips_from_the_record() {
    isolated(|| run(the_record_is_that_of_the_configuration_in_use()));
}

#[test]
fn removals_of_the_guard_are_counted_when_the_keeper_runs_again() {
    isolated(|| run(addresses_that_the_guard_removed_are_counted()));
}

#[test]
fn a_file_that_can_be_read_again_does_not_hide_that_keepalived_refuses_it() {
    isolated(|| run(the_problem_of_the_file_and_that_of_keepalived_are_shown_until_each_has_ended()));
}

#[test]
fn a_configuration_that_was_not_used_is_used_when_its_check_succeeds() {
    isolated(|| run(the_configuration_is_checked_again()));
}
