//! Hetzner's own Python client works with the stand-in.

use crate::hetzner::client::{ACTION, cluster};
use e2e::hetzner::{ActionFailure, Hetzner, NewFloatingIp, NewNetwork, NewServer};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

const REQUIREMENTS: &str = include_str!("../python/requirements.txt");

/// The path of the Python with Hetzner's client, which `scripts/python.sh hcloud` installs.
fn python() -> PathBuf {
    let version = REQUIREMENTS.lines().find_map(|line| line.strip_prefix("hcloud==")).unwrap();
    let cache = || {
        let default = || PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache");
        std::env::var_os("XDG_CACHE_HOME").map_or_else(default, PathBuf::from).join("perimeter")
    };
    let assets = std::env::var_os("PERIMETER_ASSETS").map_or_else(cache, PathBuf::from);
    let python = assets.join(format!("hcloud-python-{version}/python"));
    assert!(
        python.exists(),
        "Hetzner's Python client is missing ({}): run `make assets` first",
        python.display()
    );
    python
}

/// Runs one scenario, with its assertions in Python. The stand-in has a thread of its own, so this one may block.
fn scenario(hetzner: &Hetzner, name: &str) {
    let _slot = e2e::slots::PYTHON.take();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/hcloud_client.py");
    let output = Command::new(python())
        .arg(script)
        .arg(name)
        .env("HCLOUD_ENDPOINT", hetzner.url())
        .env("HCLOUD_TOKEN", hetzner.token())
        .env("HCLOUD_READONLY_TOKEN", hetzner.readonly_token())
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name} failed\n{out}\n{err}");
    let agents = hetzner.requests();
    assert!(agents.iter().all(|r| r.user_agent.as_deref().is_some_and(|a| a.contains("hcloud-python"))));
    assert!(!agents.is_empty(), "no request");
}

async fn project() -> Hetzner {
    let (hetzner, _, _) = cluster().await;
    hetzner.add_network(NewNetwork::new("storage", "10.1.0.0/16").label("tier", "data")).unwrap();
    let gateway = NewServer::new("gateway").id(4711).public("203.0.113.9".parse().unwrap());
    let gateway = gateway.attached("cluster", "10.0.0.2".parse().unwrap());
    let gateway = gateway.attached("storage", "10.1.0.2".parse().unwrap()).label("role", "gateway");
    hetzner.add_server(gateway).unwrap();
    hetzner.add_server(NewServer::new("private").attached("cluster", "10.0.0.3".parse().unwrap())).unwrap();
    hetzner
        .add_floating_ip(
            NewFloatingIp::new("egress", "198.51.100.7").label("pool", "egress").server("gateway"),
        )
        .unwrap();
    hetzner.add_floating_ip(NewFloatingIp::new("six", "2001:db8:7::/64")).unwrap();
    hetzner
}

#[tokio::test]
async fn python_reads_networks_and_servers() {
    scenario(&project().await, "read");
}

#[tokio::test]
async fn python_moves_the_default_route() {
    let hetzner = project().await;
    scenario(&hetzner, "routes");
    let cluster = hetzner.project().network_named("cluster").unwrap().id;
    let gateways: Vec<_> = hetzner.route_history(cluster).iter().map(|change| change.gateway).collect();
    let [two, three] = ["10.0.0.2", "10.0.0.3"].map(|ip| Some(ip.parse().unwrap()));
    assert_eq!(gateways, [None, two, None, three, None]);
}

#[tokio::test]
async fn python_reads_the_error_codes() {
    scenario(&project().await, "errors");
}

#[tokio::test]
async fn python_reads_a_failed_action() {
    let hetzner = project().await;
    hetzner.fail_action(ActionFailure::of("add_route"));
    scenario(&hetzner, "failed_action");
    assert_eq!(hetzner.failures_left(), 0);
}

#[tokio::test]
async fn python_reads_every_page() {
    let hetzner = Hetzner::start_quick(ACTION).await.unwrap();
    for n in 0..120 {
        let zone = if n % 2 == 0 { "even" } else { "odd" };
        hetzner.add_server(NewServer::new(&format!("n{n:03}")).label("zone", zone)).unwrap();
    }
    scenario(&hetzner, "pages");
    let pages =
        hetzner.requests().iter().filter(|r| r.query.as_deref().is_some_and(|q| q.contains("page="))).count();
    assert_eq!(pages, 3 + 2, "120 servers and 60 of them, 50 at a time");
}

#[tokio::test]
async fn python_cannot_write_with_a_readonly_token() {
    let hetzner = project().await;
    scenario(&hetzner, "readonly");
    assert!(hetzner.project().actions.is_empty());
}
