//! The processor time of a reconciliation: from the caches to the Snapshot, and from the Snapshot to the plan.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use common::cloud::hcloud::{Hcloud, Token};
use common::k8s::{Job, Node};
use common::metrics::Metrics;
use e2e::hetzner::{Hetzner, NewFloatingIp, NewNetwork, NewServer};
use jiff::Timestamp;
use natgw::config::Config;
use natgw::observe::health::Health;
use natgw::observe::network::Cloud;
use natgw::observe::observe;
use natgw::plan::plan;
use serde_json::{Value, json};

use crate::report::{Bench, microseconds};

/// Enough batches for a median that other processes do not influence.
const BATCHES: usize = 20;
/// The kernel counts processor time in ticks of 1 to 10 ms, so the error of a batch is a few percent.
const BATCH: Duration = Duration::from_millis(150);
/// Gateways among the Nodes.
const GATEWAYS: usize = 10;

pub(crate) async fn measure(bench: &mut Bench) -> Result<()> {
    for nodes in [100, 1000] {
        let hetzner = project(nodes).await?;
        // natgw's own kind of runtime, on a thread that does nothing else.
        let costs = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(costs(nodes, &hetzner))
        });
        bench.row(format!("Observe and plan, {nodes} Nodes"), "", microseconds(costs.await??)).means(format!(
            "Processor time of a reconciliation without actions and without the requests to the cloud: {GATEWAYS} gateways, \
             the rest plain Nodes; each run is the mean of a batch of {} ms",
            BATCH.as_millis()
        ));
    }
    Ok(())
}

/// Microseconds of a reconciliation, for each batch.
async fn costs(nodes: usize, hetzner: &Hetzner) -> Result<Vec<f64>> {
    // The longest interval: the response of the first request is used for all batches.
    let settings = format!("network: lan\nhetzner: {{endpoint: '{}', pollInterval: 5m}}\n", hetzner.url());
    let mut config = Config::new(serde_yaml::from_str(&settings)?)?;
    config.namespace = "natgw".to_owned();
    let metrics = Metrics::new("bench")?;
    let token = Token::new(&hetzner.token())?;
    let hcloud = Hcloud::new(&config.hetzner.endpoint, token, "bench", metrics.registry())?;
    let mut cloud = Cloud::new(&config, Arc::new(hcloud));
    let cluster = cluster(nodes, &config)?;
    let jobs: [Job; 0] = [];

    let snapshot = observe(&config, &cluster, &jobs, &mut cloud, Health::default()).await?;
    let settled = plan(&config, &snapshot, Timestamp::now());
    ensure!(settled.is_empty(), "the simulated cluster needs actions: {settled}");
    let requests = hetzner.requests().len();

    let mut costs = Vec::new();
    for _ in 0..BATCHES {
        let (end, before, mut count) = (Instant::now() + BATCH, thread_time()?, 0_u32);
        while Instant::now() < end {
            let snapshot = observe(&config, &cluster, &jobs, &mut cloud, Health::default()).await?;
            std::hint::black_box(plan(&config, &snapshot, Timestamp::now()));
            count += 1;
        }
        costs.push((thread_time()? - before).as_secs_f64() * 1e6 / f64::from(count));
    }
    ensure!(hetzner.requests().len() == requests, "natgw sent requests to the cloud during the batches");
    Ok(costs)
}

/// A project with that many servers in the network `lan`, the gateways' floating IPs, and the default route at the first.
async fn project(nodes: usize) -> Result<Hetzner> {
    let hetzner = Hetzner::start().await?;
    let lan = hetzner.add_network(NewNetwork::new("lan", "10.0.0.0/16"))?;
    for index in 0..nodes {
        let server = NewServer::new(&name(index)).id(10_000 + u64::try_from(index)?);
        hetzner.add_server(server.attached("lan", private_ip(index)?))?;
        if index < GATEWAYS {
            let floating_ip = NewFloatingIp::new(&format!("egress-{index}"), &floating_ip(index));
            hetzner.add_floating_ip(floating_ip.id(50_000 + u64::try_from(index)?).server(&name(index)))?;
        }
    }
    hetzner.set_route(lan, "0.0.0.0/0".parse()?, Some(private_ip(0)?))?;
    Ok(hetzner)
}

/// Nodes as the cache has them: gateways first, the first of them the primary.
fn cluster(nodes: usize, config: &Config) -> Result<Vec<Arc<Node>>> {
    (0..nodes).map(|index| Ok(Arc::new(serde_json::from_value(node(index, config)?)?))).collect()
}

fn node(index: usize, config: &Config) -> Result<Value> {
    let boot_id = format!("00000000-0000-4000-8000-{index:012}");
    let mut labels = BTreeMap::from([
        ("kubernetes.io/hostname", name(index)),
        ("kubernetes.io/os", "linux".to_owned()),
        ("kubernetes.io/arch", "amd64".to_owned()),
        ("topology.kubernetes.io/region", "fsn1".to_owned()),
        ("node.kubernetes.io/instance-type", "cpx31".to_owned()),
    ]);
    let mut annotations = BTreeMap::from([("node.alpha.kubernetes.io/ttl", "0".to_owned())]);
    if index < GATEWAYS {
        let ip = floating_ip(index);
        labels.insert(&config.floating_ip_label, ip.clone());
        annotations.insert(&config.setup_annotation, ip);
        annotations.insert(natgw::names::BOOT_ID_ANNOTATION, boot_id.clone());
    }
    if index == 0 {
        labels.insert(&config.role_label, String::new());
    }
    Ok(json!({
        "metadata": {
            "name": name(index), "uid": format!("uid-{index}"), "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels, "annotations": annotations,
        },
        "spec": { "providerID": format!("hcloud://{}", 10_000 + index) },
        "status": {
            "conditions": [
                { "type": "MemoryPressure", "status": "False" }, { "type": "DiskPressure", "status": "False" },
                { "type": "PIDPressure", "status": "False" }, { "type": "Ready", "status": "True" },
            ],
            "nodeInfo": { "bootID": boot_id },
            "addresses": [{ "type": "InternalIP", "address": private_ip(index)? }],
        },
    }))
}

fn name(index: usize) -> String {
    format!("node-{index:04}")
}

fn floating_ip(index: usize) -> String {
    format!("198.51.100.{}", index + 1)
}

fn private_ip(index: usize) -> Result<Ipv4Addr> {
    Ok(Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 10).to_bits() + u32::try_from(index)?))
}

/// The processor time of this thread so far.
fn thread_time() -> Result<Duration> {
    let path = "/proc/thread-self/schedstat";
    let text = std::fs::read_to_string(path).context(path)?;
    Ok(Duration::from_nanos(text.split_whitespace().next().context(path)?.parse()?))
}
