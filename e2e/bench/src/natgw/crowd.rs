//! Memory in a cluster that is far larger than a network of Hetzner's can be: the cost of the watch.

use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::control_plane::ControlPlane;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::stage::Stage;
use crate::machine::{Memory, peak_rss};
use crate::process::{STEADY, stop, until_ready};
use crate::report::{Bench, mebibytes, milliseconds};

/// As many as Kubernetes supports.
const NODES: usize = 5000;
/// Each Node is changed twice.
const HEARTBEATS: usize = 2 * NODES;
/// Images in each Node's status. A kubelet reports up to 50, and they are most of a Node's size.
const IMAGES: usize = 30;
/// Requests at the same time: few enough for two cores.
const CONCURRENCY: usize = 16;
/// The Nodes have no kubelet, and must not become NotReady.
const GRACE: Duration = Duration::from_secs(3600);

/// Starts natgw among the Nodes and sends it 10,000 watch events.
pub(crate) async fn measure(bench: &mut Bench) -> Result<()> {
    let control_plane = ControlPlane::builder().grace(GRACE).start().await.context("second control plane")?;
    let nodes: Api<Node> = Api::all(control_plane.client());
    let create = async |index: usize| {
        let node = serde_json::from_value(node(index))?;
        nodes.create(&PostParams::default(), &node).await.context("create").map(drop)
    };
    stream::iter(0..NODES).map(create).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
    let size = serde_json::to_vec(&nodes.get("crowd-0").await?)?.len();
    let stage = Stage::on(control_plane.clone(), &bench.program).await?;
    let (natgw, took) = until_ready(&stage.natgw(false)?).await?;
    tokio::time::sleep(STEADY).await;
    let idle = Memory::of(natgw.pid())?;

    let heartbeat = async |number: usize| {
        let at = format!("2026-01-01T00:{:02}:00Z", 5 * (1 + number / NODES));
        let status = Patch::Strategic(json!({ "status": { "conditions": [ready(&at)] } }));
        let name = format!("crowd-{}", number % NODES);
        nodes.patch_status(&name, &PatchParams::default(), &status).await.map(drop)
    };
    stream::iter(0..HEARTBEATS).map(heartbeat).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
    tokio::time::sleep(STEADY / 5).await;
    let (busy, peak) = (Memory::of(natgw.pid())?, peak_rss(natgw.pid())?);
    stop(&natgw).await?;

    let size = format!("{NODES} Nodes of {:.1} KB each (as JSON)", size as f64 / 1e3);
    bench
        .row(format!("Start to ready, {NODES} Nodes"), "", milliseconds([took]))
        .means(format!("As above, with {size} to be read first"));
    bench
        .row(format!("Idle memory (RSS), {NODES} Nodes"), "≤ 25 MiB", mebibytes([idle.rss]))
        .means(format!("10 s after ready; {size} are watched and none is natgw's"));
    bench
        .row(format!("Idle memory (anonymous), {NODES} Nodes"), "", mebibytes([idle.anonymous]))
        .means("The part of it that is natgw's data, heap and stacks");
    bench
        .row(format!("Memory after {HEARTBEATS} heartbeats (RSS)"), "≤ 25 MiB", mebibytes([busy.rss]))
        .means("2 s after each of them was changed twice, as fast as the API server takes it");
    bench
        .row(format!("Peak memory (RSS), {NODES} Nodes"), "", mebibytes([peak]))
        .means("The most that this process ever had; the limit of a container must be above it");
    Ok(())
}

fn node(index: usize) -> Value {
    let image = |image: usize| {
        let name = format!("registry.example.org/team-{image}/service-{image}");
        let digest = index * IMAGES + image;
        json!({
            "names": [format!("{name}@sha256:{digest:064x}"), format!("{name}:v1.{image}")],
            "sizeBytes": 100_000_000 + image,
        })
    };
    json!({
        "metadata": {
            "name": format!("crowd-{index}"),
            "labels": {
                "kubernetes.io/hostname": format!("crowd-{index}"), "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64", "topology.kubernetes.io/region": "fsn1",
                "topology.kubernetes.io/zone": "fsn1-dc14", "node.kubernetes.io/instance-type": "cpx31",
            },
            "annotations": { "node.alpha.kubernetes.io/ttl": "0" },
        },
        "spec": { "providerID": format!("hcloud://{}", 500_000_000 + index) },
        "status": {
            "conditions": [ready("2026-01-01T00:00:00Z")],
            "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" }],
            "nodeInfo": {
                "bootID": format!("00000000-0000-4000-8000-{index:012}"), "machineID": "m", "systemUUID": "s",
                "architecture": "amd64", "operatingSystem": "linux", "osImage": "Debian GNU/Linux 13 (trixie)",
                "kernelVersion": "6.12.48+deb13-amd64", "containerRuntimeVersion": "containerd://2.1.4",
                "kubeletVersion": "v1.36.0", "kubeProxyVersion": "",
            },
            "images": (0..IMAGES).map(image).collect::<Vec<_>>(),
        },
    })
}

fn ready(heartbeat: &str) -> Value {
    json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
        "lastHeartbeatTime": heartbeat, "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}
