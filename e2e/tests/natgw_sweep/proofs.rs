//! The invariant checker reports each forbidden state. The states are made by hand; no natgw runs.

use anyhow::Result;
use bytes::Bytes;
use e2e::control_plane::ControlPlane;
use e2e::natgw::{FLOATING_IP_LABEL, TIMEOUT, TestEnv};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::Patch;
use natgw::names;
use serde_json::{Value, json};

use super::env::{SweepEnv, default_route};
use super::invariants::Script;
use super::scenario::{FIRST, SECOND};

/// Two gateways that are set up, of which the first is the primary; every script hangs.
async fn settled() -> SweepEnv {
    let mut env = SweepEnv::new(TestEnv::start().await.unwrap(), "", false, |_, _| Script::Hangs).unwrap();
    env.settled(FIRST, true).await.unwrap();
    env.settled(SECOND, false).await.unwrap();
    env.checker.at_rest().await.unwrap();
    env.assert_allowed("a settled environment");
    env
}

impl SweepEnv {
    fn assert_allowed(&self, what: &str) {
        let violations = self.checker.violations();
        assert!(violations.is_empty(), "{what} is allowed: {violations:?}");
    }

    /// Waits for a violation that contains each of the texts, and for no other; then ends.
    async fn reports(self, texts: &[&str]) {
        let checker = self.checker.clone();
        let all = || {
            let violations = checker.violations();
            texts.iter().all(|text| violations.iter().any(|each| each.contains(text)))
        };
        let reported = e2e::natgw::wait_for("the violation", || async { Ok(all()) }).await;
        let violations = checker.violations();
        reported.unwrap_or_else(|error| panic!("{error}: {texts:?}, not {violations:?}"));
        for violation in violations {
            assert!(texts.iter().any(|text| violation.contains(text)), "{violation}");
        }
        self.close().await.unwrap();
    }

    /// Adds a default route through the proxy, as natgw does.
    async fn add_route(&self, gateway: &str) -> Result<()> {
        // Hetzner refuses a route while the action of the one before runs.
        self.env.hetzner.finish_actions();
        self.env.hetzner.set_route(self.env.network, default_route(), None)?;
        let path = format!("/networks/{}/actions/add_route", self.env.network);
        let body = json!({ "destination": "0.0.0.0/0", "gateway": gateway }).to_string();
        let request = http::Request::post(format!("{}{path}", self.env.cloud_proxy.url()))
            .header("authorization", format!("Bearer {}", self.env.hetzner.token()))
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))?;
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let status = client.request(request).await?.status();
        assert!(status.is_success(), "{status}");
        Ok(())
    }

    /// Creates a Job on the first Node through the proxy, as natgw does.
    async fn job(&self, name: &str, kind: &str, suspend: bool) {
        let client = ControlPlane::client_of(&self.env.kubeconfig).await.unwrap();
        let node = &self.gateways[0].name;
        let labels = json!({ names::TYPE_LABEL: kind, names::IP_LABEL: FIRST });
        let annotations = json!({ names::NODE_NAME_ANNOTATION: node, names::ATTEMPT_ANNOTATION: "1" });
        let containers = json!([{ "name": "script", "image": "busybox" }]);
        let job = json!({
            "metadata": { "name": name, "labels": labels, "annotations": annotations },
            "spec": { "suspend": suspend, "template": {
                "metadata": { "labels": labels, "annotations": annotations },
                "spec": { "nodeName": node, "restartPolicy": "Never", "containers": containers },
            } },
        });
        let jobs = Api::<Job>::namespaced(client, &self.env.namespace);
        jobs.create(&Default::default(), &serde_json::from_value(job).unwrap()).await.unwrap();
    }

    async fn finalizers(&self, job: &str, finalizers: Value) {
        let body = json!({ "metadata": { "finalizers": finalizers } });
        self.env.job_api().patch(job, &Default::default(), &Patch::Merge(body)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_role_labels_at_rest_are_reported() {
    let env = settled().await;
    env.gateways[1].node.label(&env.env.role_label(), Some("")).await.unwrap();
    env.checker.now().await.unwrap();
    env.assert_allowed("two role labels while natgw moves the role");
    env.checker.at_rest().await.unwrap();
    env.reports(&["two role labels at rest"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_two_role_labels_are_reported() {
    let mut env = settled().await;
    let third = env.settled("198.51.100.3", false).await.unwrap();
    for gateway in [&env.gateways[1], &third] {
        gateway.node.label(&env.env.role_label(), Some("")).await.unwrap();
    }
    env.checker.now().await.unwrap();
    env.reports(&["more than two role labels"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn route_at_rest_to_no_candidate_is_reported() {
    for change in ["cordon", "label", "route"] {
        let env = settled().await;
        match change {
            "cordon" => env.gateways[0].node.cordon(true).await.unwrap(),
            "label" => env.gateways[0].node.label(FLOATING_IP_LABEL, None).await.unwrap(),
            _ => env.env.hetzner.set_route(env.env.network, default_route(), None).unwrap(),
        }
        env.checker.at_rest().await.unwrap();
        env.reports(&["at rest the route points to"]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn route_that_is_written_to_no_candidate_is_reported() {
    let env = settled().await;
    env.add_route(&env.gateways[1].private_ip.to_string()).await.unwrap();
    env.assert_allowed("a route to a candidate");
    env.gateways[0].node.set_ready(false).await.unwrap();
    env.add_route(&env.gateways[0].private_ip.to_string()).await.unwrap();
    env.reports(&["no candidate; candidates are"]).await;

    let env = settled().await;
    env.add_route("10.0.7.7").await.unwrap();
    env.reports(&["which is no Node"]).await;

    let env = settled().await;
    let name = env.gateways[1].name.clone();
    env.checker.machines().change(&name, |machine| machine.translates_to = None);
    env.add_route(&env.gateways[1].private_ip.to_string()).await.unwrap();
    env.reports(&["whose kernel translates nothing", "its kernel has None"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn setup_job_next_to_a_terminating_teardown_job_is_reported() {
    let env = settled().await;
    env.job("old", "teardown", true).await;
    // The Job stays terminating, as one whose pod does not end.
    env.finalizers("old", json!(["perimeter.dev/held"])).await;
    env.env.job_api().delete("old", &Default::default()).await.unwrap();
    env.checker.at_rest().await.unwrap();
    env.assert_allowed("a terminating Job alone");
    env.job("new", "setup", true).await;
    env.checker.now().await.unwrap();
    env.finalizers("old", json!(null)).await;
    env.reports(&["a Job next to a terminating one"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_annotation_is_reported() {
    // Another IP than that of the last successful Job of this boot.
    let env = settled().await;
    env.gateways[1].node.annotate(names::SETUP_ANNOTATION, Some("198.51.100.9")).await.unwrap();
    env.checker.now().await.unwrap();
    env.reports(&["reports 198.51.100.9, its kernel has Some(\"198.51.100.2\")"]).await;

    // A teardown has started that no annotation announces, and the route still points there.
    let env = settled().await;
    env.job("teardown", "teardown", false).await;
    env.gateways[0].node.wait_for_pod(|_| true, TIMEOUT).await.unwrap();
    env.reports(&["reports 198.51.100.1, its kernel has None", "is torn down while the route points to it"])
        .await;

    // After a reboot the annotation names another boot, which is right. To renew the boot ID without a setup is wrong.
    let env = settled().await;
    let second = env.gateways[1].clone();
    env.checker.reboot(&second).await.unwrap();
    env.checker.now().await.unwrap();
    env.assert_allowed("the annotation of an earlier boot");
    second.node.annotate(names::BOOT_ID_ANNOTATION, Some(&second.node.boot_id())).await.unwrap();
    env.checker.now().await.unwrap();
    env.reports(&["reports 198.51.100.2, its kernel has None"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_scripts_on_one_machine_are_reported() {
    let env = settled().await;
    let pending =
        json!({ "metadata": { "annotations": { names::PENDING_ANNOTATION: "setup:198.51.100.1" } } });
    env.patch(&env.gateways[0], pending).await.unwrap();
    env.job("one", "setup", false).await;
    env.job("two", "setup", false).await;
    env.reports(&["runs on"]).await;
}
