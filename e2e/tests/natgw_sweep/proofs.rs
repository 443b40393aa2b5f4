//! The invariants sees what it is there to see: each forbidden state, made by hand, with no natgw about.

use anyhow::Result;
use bytes::Bytes;
use e2e::control_plane::ControlPlane;
use e2e::natgw::{FLOATING_IP_LABEL, TIMEOUT};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use natgw::names;
use serde_json::json;

use crate::natgw_sweep::invariants::Script;
use crate::natgw_sweep::sweep_env::{SweepEnv, default_route};

const FIRST: &str = "198.51.100.1";
const SECOND: &str = "198.51.100.2";

/// Two gateways at peace, the first of which is the primary; every script hangs.
async fn peace() -> SweepEnv {
    let mut sweep_env = SweepEnv::new(false, |_, _| Script::Hangs).await.unwrap();
    sweep_env.settled(FIRST, true).await.unwrap();
    sweep_env.settled(SECOND, false).await.unwrap();
    sweep_env.invariants.at_rest().await.unwrap();
    assert_eq!(sweep_env.invariants.violations(), [""; 0], "nothing is wrong with this");
    sweep_env
}

impl SweepEnv {
    /// Waits until the invariants objects in these words, and to nothing else.
    async fn objects(&self, words: &[&str]) {
        let objected = || {
            let violations = self.invariants.violations();
            words.iter().all(|word| violations.iter().any(|each| each.contains(word)))
        };
        e2e::natgw::wait_for("the invariants", || async { Ok(objected()) }).await.unwrap_or_else(|error| {
            panic!("{error}: {words:?}, not {:?}", self.invariants.violations());
        });
        for violations in self.invariants.violations() {
            assert!(words.iter().any(|word| violations.contains(word)), "{violations}");
        }
    }

    /// Adds a default route as natgw would: through the proxy.
    async fn add_route(&self, gateway: &str) -> Result<()> {
        self.env.hetzner.set_route(self.env.network, default_route(), None)?;
        let path = format!("/networks/{}/actions/add_route", self.env.network);
        let body = json!({ "destination": "0.0.0.0/0", "gateway": gateway }).to_string();
        let request = http::Request::post(format!("{}{path}", self.env.cloud_proxy.url()))
            .header("authorization", format!("Bearer {}", self.env.hetzner.token()))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))?;
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let answer = client.request(request).await?;
        assert!(answer.status().is_success(), "{}", answer.status());
        Ok(())
    }

    /// The Jobs' API as natgw has it: through the proxy.
    async fn jobs(&self) -> Api<Job> {
        let client = ControlPlane::client_of(&self.env.kubeconfig).await.unwrap();
        Api::namespaced(client, &self.env.namespace)
    }

    /// Creates a Job on the first Node.
    async fn job(&self, name: &str, kind: &str, spec: serde_json::Value) {
        let labels = json!({ names::TYPE_LABEL: kind, names::IP_LABEL: FIRST });
        let annotations =
            json!({ names::NODE_NAME_ANNOTATION: self.gateways[0].name, names::ATTEMPT_ANNOTATION: "1" });
        let mut job = json!({
            "metadata": { "name": name, "labels": labels, "annotations": annotations },
            "spec": { "template": {
                "metadata": { "labels": labels, "annotations": annotations },
                "spec": {
                    "nodeName": self.gateways[0].name, "restartPolicy": "Never",
                    "containers": [{ "name": "script", "image": "busybox" }],
                },
            } },
        });
        job["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.jobs().await.create(&Default::default(), &serde_json::from_value(job).unwrap()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_role_labels_at_rest_are_seen() {
    let sweep_env = peace().await;
    sweep_env.gateways[1].node.label(&sweep_env.env.role_label(), Some("")).await.unwrap();
    sweep_env.invariants.now().await.unwrap();
    assert_eq!(
        sweep_env.invariants.violations(),
        [""; 0],
        "on the way from one to the other there may be two"
    );
    sweep_env.invariants.at_rest().await.unwrap();
    sweep_env.objects(&["two role labels at rest"]).await;
    sweep_env.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_that_rests_at_a_node_which_is_no_candidate_is_seen() {
    let why = "at rest the route points to";
    let sweep_env = peace().await;
    sweep_env.gateways[0].node.cordon(true).await.unwrap();
    sweep_env.invariants.at_rest().await.unwrap();
    sweep_env.objects(&[why]).await;
    sweep_env.close().await.unwrap();

    let sweep_env = peace().await;
    sweep_env.gateways[0].node.label(FLOATING_IP_LABEL, None).await.unwrap();
    sweep_env.invariants.at_rest().await.unwrap();
    sweep_env.objects(&[why]).await;
    sweep_env.close().await.unwrap();

    let sweep_env = peace().await;
    sweep_env.env.hetzner.set_route(sweep_env.env.network, default_route(), None).unwrap();
    sweep_env.invariants.at_rest().await.unwrap();
    sweep_env.objects(&[why]).await;
    sweep_env.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_route_that_is_written_to_a_node_which_is_no_candidate_is_seen() {
    let sweep_env = peace().await;
    sweep_env.add_route(&sweep_env.gateways[1].private_ip.to_string()).await.unwrap();
    assert_eq!(sweep_env.invariants.violations(), [""; 0], "this one is a candidate");
    sweep_env.close().await.unwrap();

    let sweep_env = peace().await;
    sweep_env.gateways[0].node.set_ready(false).await.unwrap();
    sweep_env.add_route(&sweep_env.gateways[0].private_ip.to_string()).await.unwrap();
    sweep_env.objects(&["which is no candidate; candidates are"]).await;
    sweep_env.close().await.unwrap();

    let sweep_env = peace().await;
    sweep_env.add_route("10.0.7.7").await.unwrap();
    sweep_env.objects(&["which is no Node"]).await;
    sweep_env.close().await.unwrap();

    let sweep_env = peace().await;
    let name = sweep_env.gateways[1].name.clone();
    sweep_env.invariants.machines().change(&name, |machine| machine.translates_to = None);
    sweep_env.add_route(&sweep_env.gateways[1].private_ip.to_string()).await.unwrap();
    sweep_env.objects(&["whose kernel translates nothing", "its kernel None"]).await;
    sweep_env.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setup_job_beside_a_terminating_teardown_job_is_seen() {
    let sweep_env = peace().await;
    // What natgw has no right to do, and need not.
    let jobs = sweep_env.env.job_api();
    sweep_env.job("old", "teardown", json!({ "suspend": true })).await;
    // Held in its end, as by a pod that does not go.
    let held = json!({ "metadata": { "finalizers": ["perimeter.dev/held"] } });
    jobs.patch("old", &Default::default(), &kube::api::Patch::Merge(held)).await.unwrap();
    jobs.delete("old", &Default::default()).await.unwrap();
    sweep_env.invariants.at_rest().await.unwrap();
    assert_eq!(sweep_env.invariants.violations(), [""; 0], "one that goes is no harm");
    sweep_env.job("new", "setup", json!({ "suspend": true })).await;
    sweep_env.objects(&["a Job beside a terminating one"]).await;
    let free = json!({ "metadata": { "finalizers": null } });
    jobs.patch("old", &Default::default(), &kube::api::Patch::Merge(free)).await.unwrap();
    sweep_env.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_annotation_that_is_not_true_is_seen() {
    // Another IP than that of the last successful Job of this boot.
    let sweep_env = peace().await;
    sweep_env.gateways[1].node.annotate(names::SETUP_ANNOTATION, Some("198.51.100.9")).await.unwrap();
    sweep_env.invariants.now().await.unwrap();
    sweep_env.objects(&["says 198.51.100.9, its kernel Some(\"198.51.100.2\")"]).await;
    sweep_env.close().await.unwrap();

    // A teardown has begun that no marker tells of; and the route still points there.
    let sweep_env = peace().await;
    sweep_env.job("teardown", "teardown", json!({})).await;
    sweep_env.gateways[0].node.wait_for_pod(|_| true, TIMEOUT).await.unwrap();
    sweep_env
        .objects(&["says 198.51.100.1, its kernel None", "is torn down while the route points to it"])
        .await;
    sweep_env.close().await.unwrap();

    // After a reboot nobody claims anything: the annotation names another boot. Whoever renews it without a setup, lies.
    let sweep_env = peace().await;
    let second = &sweep_env.gateways[1];
    sweep_env.invariants.reboot(second).await.unwrap();
    sweep_env.invariants.now().await.unwrap();
    assert_eq!(sweep_env.invariants.violations(), [""; 0]);
    second.node.annotate(names::BOOT_ID_ANNOTATION, Some(&second.node.boot_id())).await.unwrap();
    sweep_env.invariants.now().await.unwrap();
    sweep_env.objects(&["says 198.51.100.2, its kernel None"]).await;
    sweep_env.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_scripts_at_work_on_one_machine_are_seen() {
    let sweep_env = peace().await;
    let body = json!({ "metadata": { "annotations": { names::PENDING_ANNOTATION: "setup:198.51.100.1" } } });
    let nodes = Api::<k8s_openapi::api::core::v1::Node>::all(sweep_env.env.client.clone());
    nodes
        .patch(&sweep_env.gateways[0].name, &Default::default(), &kube::api::Patch::Merge(body))
        .await
        .unwrap();
    sweep_env.job("one", "setup", json!({})).await;
    sweep_env.job("two", "setup", json!({})).await;
    sweep_env.objects(&["works on"]).await;
    sweep_env.close().await.unwrap();
}
