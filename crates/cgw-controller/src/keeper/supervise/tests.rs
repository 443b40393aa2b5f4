use std::convert::Infallible;
use std::path::Path;

use common::admin::Status;
use common::events::Events;
use common::netlink::isolated::isolated;
use common::readiness::Readiness;
use kube::client::Body;

use super::super::config::File;
use super::super::metrics::KeeperMetrics;
use super::*;

fn router(vip: &str) -> Arc<Router> {
    let text = format!("vrid: 51\ninterface: eth0\nvips: [{vip}]\npeers: []\n");
    let file: File = common::config::parse(Path::new("f"), &text).unwrap();
    Arc::new(file.router("g1", "192.168.50.21".parse().unwrap()).unwrap())
}

async fn the_record_is_that_of_the_configuration_in_use() {
    let folder = tempfile::tempdir().unwrap();
    let api = tower::service_fn(|_: http::Request<Body>| async {
        Ok::<_, Infallible>(http::Response::new(Body::empty()))
    });
    let client = kube::Client::new(api, "default");
    let metrics = common::metrics::Metrics::new("cgw-controller").unwrap();
    let readiness = Readiness::default();
    let (sender, receiver) = watch::channel(router("192.168.50.201"));
    let mut supervisor = Supervisor {
        keepalived: "true".into(),
        program: "/usr/bin/cgw".into(),
        run_dir: RunDir::new(folder.path().to_owned()),
        router: receiver,
        vrrp: watch::channel(Vrrp { state: VrrpState::Init, since: 0 }).0,
        node: Node::open().unwrap(),
        record: Record {
            v: Record::VERSION,
            keeper: Process::current().unwrap(),
            keepalived: None,
            vips: Vec::new(),
            anchor: "169.254.51.1".parse().unwrap(),
            interface: "eth0".to_owned(),
            tunnel_interface: "cgw0".to_owned(),
        },
        accepted: Vec::new(),
        reporter: Reporter {
            node: "g1".to_owned(),
            vrid: 51,
            events: Events::new(client, &metrics, "cgw-controller", "test".to_owned()),
            metrics: KeeperMetrics::new(metrics.registry()).unwrap(),
            status: Status::default(),
        },
        readiness: readiness.check("keepalived"),
        configuration: readiness.check("configuration"),
    };
    let is_shown =
        || readiness.report().iter().any(|(name, state)| name == "configuration" && state.problem.is_some());
    let vips = |vip: &str| vec![vip.parse::<VipRange>().unwrap()];
    supervisor.configure().await.unwrap();
    // Programs that refuse and accept each configuration, and end.
    supervisor.keepalived = "false".into();
    sender.send_replace(router("192.168.50.202"));
    let _ended = supervisor.start().await.unwrap();
    assert_eq!((&supervisor.record.vips, is_shown()), (&vips("192.168.50.201"), true));
    // Also if it was refused before, by a keepalived that ran.
    let _ended = supervisor.start().await.unwrap();
    assert_eq!(supervisor.run_dir.record().unwrap().unwrap().vips, vips("192.168.50.201"));
    supervisor.keepalived = "true".into();
    sender.send_replace(router("192.168.50.203"));
    let _ended = supervisor.start().await.unwrap();
    assert_eq!((&supervisor.record.vips, is_shown()), (&vips("192.168.50.203"), false));
}

#[test]
fn a_refused_configuration_does_not_remove_vips_from_the_record() {
    isolated(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(the_record_is_that_of_the_configuration_in_use());
    });
}
