//! The processor time of one walk: what is cached becomes a Snapshot, the Snapshot becomes a plan.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use common::cloud::hcloud::{Hcloud, Token};
use common::k8s::{Job, Node};
use common::metrics::Metrics;
use e2e::hetzner::{Hetzner, NewNetwork, NewServer};
use jiff::Timestamp;
use natgw::config::Config;
use natgw::observe::network::Cloud;
use natgw::observe::observe;
use natgw::plan::plan;
use serde_json::json;

use crate::figures::{Figures, Unit};
use crate::report::Report;

/// Batches: enough for a median that the neighbours do not decide.
const BATCHES: usize = 20;
/// The kernel counts processor time in ticks of 1 to 10 ms: a batch of this length is right to a few percent.
const BATCH: Duration = Duration::from_millis(150);
/// Gateways among the Nodes.
const GATEWAYS: usize = 10;

/// Both sizes, with and without the reading.
///
/// # Errors
/// The made-up cluster does not look settled to natgw.
pub(crate) async fn measure(report: &mut Report) -> Result<()> {
    for nodes in [100, 1000] {
        let figures = {
            let hetzner = project(nodes).await?;
            // natgw's own kind of runtime, on a thread whose processor time is nobody else's.
            tokio::task::spawn_blocking(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(walks(nodes, &hetzner))
            })
            .await??
        };
        report.row(
            format!("Observe and plan, {nodes} Nodes"),
            "",
            figures,
            format!(
                "Processor time of one walk in which nothing is to be done, without the calls to the cloud: {GATEWAYS} \
                 gateways, the rest plain Nodes; each run is the mean of a batch of {} ms",
                BATCH.as_millis()
            ),
        );
    }
    Ok(())
}

async fn walks(nodes: usize, hetzner: &Hetzner) -> Result<Figures> {
    // Five minutes, the most there is: the cloud is asked once, and then believed for all batches.
    let settings = format!("network: lan\nhetzner: {{endpoint: '{}', pollInterval: 5m}}\n", hetzner.url());
    let mut config = Config::new(serde_yaml::from_str(&settings)?)?;
    config.namespace = "natgw".to_owned();
    let metrics = Metrics::new("bench")?;
    let token = Token::new(&hetzner.token())?;
    let hcloud = Hcloud::new(&config.hetzner.endpoint, token, "bench", metrics.registry())?;
    let mut cloud = Cloud::new(&config, Arc::new(hcloud));
    let cluster = cluster(nodes, &config)?;
    let jobs: [Job; 0] = [];

    let snapshot = observe(&config, &cluster, &jobs, &mut cloud).await?;
    let settled = plan(&config, &snapshot, Timestamp::now());
    ensure!(settled.is_empty(), "the made-up cluster is not settled: {settled}");
    let asked = hetzner.requests().len();

    let mut costs = Vec::new();
    for _ in 0..BATCHES {
        let (end, before) = (Instant::now() + BATCH, processor_time()?);
        let mut walks = 0_u32;
        while Instant::now() < end {
            let snapshot = observe(&config, &cluster, &jobs, &mut cloud).await?;
            std::hint::black_box(plan(&config, &snapshot, Timestamp::now()));
            walks += 1;
        }
        costs.push((processor_time()? - before).as_secs_f64() * 1e6 / f64::from(walks));
    }
    ensure!(hetzner.requests().len() == asked, "the cloud was asked again while the walks were timed");
    Figures::new(Unit::Microseconds, costs)
}

/// A project with that many servers in the network `lan`, and the default route at the first.
async fn project(nodes: usize) -> Result<Hetzner> {
    let hetzner = Hetzner::start().await?;
    let lan = hetzner.add_network(NewNetwork::new("lan", "10.0.0.0/16"))?;
    for index in 0..nodes {
        let server = NewServer::new(&name(index)).id(10_000 + u64::try_from(index)?);
        hetzner.add_server(server.attached("lan", private_ip(index)?))?;
    }
    hetzner.set_route(lan, "0.0.0.0/0".parse()?, Some(private_ip(0)?))?;
    Ok(hetzner)
}

/// Nodes as the cache has them: gateways first, the first of them the primary.
fn cluster(nodes: usize, config: &Config) -> Result<Vec<Arc<Node>>> {
    (0..nodes)
        .map(|index| {
            let mut labels = json!({
                "kubernetes.io/hostname": name(index), "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "topology.kubernetes.io/region": "fsn1", "node.kubernetes.io/instance-type": "cpx31",
            });
            let mut annotations = json!({ "node.alpha.kubernetes.io/ttl": "0" });
            let mut set = |key: &str, value: String, on_annotations: bool| {
                let map = if on_annotations { &mut annotations } else { &mut labels };
                map.as_object_mut().context("an object")?.insert(key.to_owned(), value.into());
                anyhow::Ok(())
            };
            if index < GATEWAYS {
                let ip = format!("198.51.100.{}", index + 1);
                set(&config.floating_ip_label, ip.clone(), false)?;
                set(&config.setup_annotation, ip, true)?;
                set(natgw::names::BOOT_ID_ANNOTATION, boot_id(index), true)?;
            }
            if index == 0 {
                set(&config.role_label, String::new(), false)?;
            }
            let node = json!({
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
                    "nodeInfo": { "bootID": boot_id(index) },
                    "addresses": [{ "type": "InternalIP", "address": private_ip(index)? }],
                },
            });
            Ok(Arc::new(serde_json::from_value(node)?))
        })
        .collect()
}

fn name(index: usize) -> String {
    format!("node-{index:04}")
}

fn boot_id(index: usize) -> String {
    format!("00000000-0000-4000-8000-{index:012}")
}

fn private_ip(index: usize) -> Result<std::net::Ipv4Addr> {
    let first = std::net::Ipv4Addr::new(10, 0, 0, 10);
    Ok(std::net::Ipv4Addr::from_bits(first.to_bits() + u32::try_from(index)?))
}

/// What this thread has used of a processor so far.
fn processor_time() -> Result<Duration> {
    let path = "/proc/thread-self/schedstat";
    let text = std::fs::read_to_string(path).context(path)?;
    let nanoseconds = text.split_whitespace().next().context(path)?.parse()?;
    Ok(Duration::from_nanos(nanoseconds))
}
