//! The story that is disturbed: a first gateway, a second one, a cordon that moves the route, a label that goes.

use std::collections::{BTreeMap, BTreeSet};

use e2e::natgw::{FLOATING_IP_LABEL, Gateway, persistent_annotations};
use kube::ResourceExt as _;
use natgw::names;

use crate::natgw_faults::scene::Scene;

/// The floating IP of the first gateway.
pub const FIRST: &str = "198.51.100.1";
/// The floating IP of the second one.
pub const SECOND: &str = "198.51.100.2";

/// Everything that natgw has a hand in, without the names that differ between environments.
#[derive(Debug, PartialEq, Eq)]
pub struct End {
    route: Option<&'static str>,
    nodes: Vec<NodeEnd>,
}

#[derive(Debug, PartialEq, Eq)]
struct NodeEnd {
    role: bool,
    annotations: BTreeMap<String, String>,
    boot_id_is_current: Option<bool>,
    kernel: Option<String>,
    runs: BTreeMap<String, usize>,
    jobs: BTreeSet<String>,
}

/// Plays the story to its end, and says how the environment is then. Fails if anything forbidden was seen on the way.
pub async fn play(scene: &Scene, scenario: &str) -> End {
    let first = scene.gateway(FIRST).await;
    scene.env.wait_for_primary(&first).await.expect(scenario);
    let second = scene.gateway(SECOND).await;
    scene.wait_for_setup(&second, Some(SECOND)).await;
    first.node.cordon(true).await.unwrap();
    scene.env.wait_for_primary(&second).await.expect(scenario);
    first.node.label(FLOATING_IP_LABEL, None).await.unwrap();
    scene.wait_for_setup(&first, None).await;
    scene.rest(&second).await;
    let end = end(scene, [&first, &second]).await;
    scene.witness.assert_unbroken(&scene.env, scenario);
    // Dead nodes would keep the control plane busy for the tests that follow.
    scene.program().kill().unwrap();
    first.node.remove().await.unwrap();
    second.node.remove().await.unwrap();
    end
}

async fn end(scene: &Scene, gateways: [&Gateway; 2]) -> End {
    let route = scene.env.hetzner.default_gateway(scene.env.network);
    let jobs = scene.env.jobs().await.unwrap();
    let mut nodes = Vec::new();
    for gateway in gateways {
        let node = gateway.node.get().await.unwrap();
        let of_node = jobs.iter().filter(|job| {
            job.annotations().get(names::NODE_NAME_ANNOTATION) == Some(&gateway.name)
                && job.metadata.deletion_timestamp.is_none()
        });
        nodes.push(NodeEnd {
            role: node.labels().contains_key(&scene.env.role_label()),
            annotations: persistent_annotations(&node),
            boot_id_is_current: node
                .annotations()
                .get(names::BOOT_ID_ANNOTATION)
                .map(|id| *id == gateway.node.boot_id()),
            kernel: scene.witness.kernel(gateway),
            runs: scene.witness.runs(gateway),
            jobs: of_node.map(describe).collect(),
        });
    }
    let names = ["first", "second"];
    let at = |ip| gateways.iter().zip(names).find_map(|(each, name)| (each.private_ip == ip).then_some(name));
    End { route: route.map(|ip| at(ip).unwrap_or("a stranger")), nodes }
}

fn describe(job: &k8s_openapi::api::batch::v1::Job) -> String {
    let label = |key: &str| job.labels().get(key).cloned().unwrap_or_default();
    let attempt = job.annotations().get(names::ATTEMPT_ANNOTATION).cloned().unwrap_or_default();
    let succeeded = job.status.as_ref().and_then(|status| status.succeeded).unwrap_or(0);
    let (kind, ip) = (label(names::TYPE_LABEL), label(names::IP_LABEL));
    format!("{kind} {ip}, attempt {attempt}, {succeeded} succeeded")
}
