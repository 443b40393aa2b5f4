//! Memory in a cluster that is far larger than a network of Hetzner's can be: what watching it costs.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use e2e::control_plane::ControlPlane;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::stage::Stage;
use crate::figures::Figures;
use crate::machine::{Memory, peak_rss};
use crate::process::{STEADY, stop, until_ready};
use crate::report::Report;

/// As many as Kubernetes supports.
const NODES: usize = 5000;
/// Each of them is changed twice.
const HEARTBEATS: usize = 2 * NODES;
/// Images in each Node's status, as a kubelet reports up to 50 of them: they are most of a Node's size.
const IMAGES: usize = 30;
/// Requests at the same time: the API server has two cores at most.
const AT_ONCE: usize = 16;
/// Longer than any run.
pub(crate) const GRACE: Duration = Duration::from_secs(3600);

/// Fills the cluster with Nodes of no kubelet.
///
/// # Errors
/// The API server refuses.
pub(crate) async fn gather(control_plane: &ControlPlane) -> Result<()> {
    let nodes: Api<Node> = Api::all(control_plane.client());
    let create = |index: usize| {
        let nodes = nodes.clone();
        async move {
            nodes.create(&PostParams::default(), &serde_json::from_value(node(index))?).await?;
            anyhow::Ok(())
        }
    };
    stream::iter(0..NODES).map(create).buffer_unordered(AT_ONCE).try_collect().await
}

/// Starts natgw among them, and changes each of them twice under its eyes: 10,000 watch events.
///
/// # Errors
/// natgw fails.
pub(crate) async fn measure(control_plane: &ControlPlane, binary: &Path, report: &mut Report) -> Result<()> {
    let nodes: Api<Node> = Api::all(control_plane.client());
    let one = serde_json::to_vec(&nodes.get("crowd-0").await?)?.len();
    let stage = Stage::on(control_plane.clone(), binary).await?;
    let (natgw, took) = until_ready(&stage.natgw(false)?).await?;
    tokio::time::sleep(STEADY).await;
    let (idle, start_peak) = (Memory::of(natgw.pid())?, peak_rss(natgw.pid())?);

    let heartbeat = |beat: usize| {
        let (nodes, index) = (nodes.clone(), beat % NODES);
        async move {
            let at = format!("2026-01-01T00:{:02}:00Z", 5 * (1 + beat / NODES));
            let status = json!({ "status": { "conditions": [ready(&at)] } });
            let name = format!("crowd-{index}");
            nodes.patch_status(&name, &PatchParams::default(), &Patch::Strategic(status)).await?;
            anyhow::Ok(())
        }
    };
    stream::iter(0..HEARTBEATS).map(heartbeat).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    tokio::time::sleep(STEADY / 5).await;
    let (busy, peak) = (Memory::of(natgw.pid())?, peak_rss(natgw.pid())?);
    stop(&natgw).await?;

    let size = format!("{NODES} Nodes of {:.1} KB each (as JSON)", one as f64 / 1e3);
    report.row(
        format!("Start to ready, {NODES} Nodes"),
        "",
        Figures::milliseconds([took])?,
        format!("As above, with {size} to be read first"),
    );
    report.row(
        format!("Idle memory (RSS), {NODES} Nodes"),
        "≤ 25 MiB",
        Figures::bytes([idle.rss])?,
        format!("10 s after ready; {size} are watched and none is natgw's"),
    );
    report.row(
        format!("Idle memory (anonymous), {NODES} Nodes"),
        "",
        Figures::bytes([idle.anonymous])?,
        "The part of it that is natgw's data, heap and stacks",
    );
    report.row(
        format!("Memory after {HEARTBEATS} heartbeats (RSS)"),
        "≤ 25 MiB",
        Figures::bytes([busy.rss])?,
        "2 s after each of them was changed twice, as fast as the API server takes it",
    );
    report.row(
        format!("Peak memory (RSS), {NODES} Nodes"),
        "",
        Figures::bytes([start_peak.max(peak)])?,
        "The most that this process ever had; the limit of a container must be above it",
    );
    Ok(())
}

fn node(index: usize) -> Value {
    let images: Vec<Value> = (0..IMAGES)
        .map(|image| {
            json!({
                "names": [
                    format!("registry.example.org/team-{image}/service-{image}@sha256:{:064x}", index * IMAGES + image),
                    format!("registry.example.org/team-{image}/service-{image}:v1.{image}"),
                ],
                "sizeBytes": 100_000_000 + image,
            })
        })
        .collect();
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
            "images": images,
        },
    })
}

fn ready(heartbeat: &str) -> Value {
    json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
        "lastHeartbeatTime": heartbeat, "lastTransitionTime": "2026-01-01T00:00:00Z",
    })
}
