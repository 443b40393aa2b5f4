//! Cluster API's runtime hook, called as Cluster API calls it: POST over TLS with the whole Cluster in the body.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use common::api::deorbit::Phase;
use common::api::identity::IdentityKind;
use e2e::program::Program;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client as Wire;
use hyper_util::rt::TokioExecutor;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use super::env::{TestEnv, wait_for};

const HOOKS: &str = "hooks.runtime.cluster.x-k8s.io/v1alpha1";
const PATH: &str = "/hooks.runtime.cluster.x-k8s.io/v1alpha1/beforeclusterdelete/deorbit";

/// Writes a certificate for the hook into a folder like a mounted Secret, and returns it in PEM.
fn certificate(folder: &Path) -> String {
    let made = rcgen::generate_simple_self_signed(vec!["deorbiter-hook.deorbiter.svc".to_owned()]).unwrap();
    std::fs::write(folder.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    std::fs::write(folder.join("tls.crt"), made.cert.pem()).unwrap();
    made.cert.pem()
}

/// Cluster API's side: trusts the ExtensionConfig's caBundle, and calls the Service by its name.
struct Caller {
    address: SocketAddr,
    bundle: String,
    wire: Wire<hyper_rustls::HttpsConnector<hyper_util::client::legacy::connect::HttpConnector>, Full<Bytes>>,
}

impl Caller {
    fn new(address: SocketAddr, bundle: &str) -> Caller {
        use rustls::pki_types::pem::PemObject as _;
        let mut roots = rustls::RootCertStore::empty();
        for certificate in rustls::pki_types::CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let config =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_only()
            .with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(
                "deorbiter-hook.deorbiter.svc".try_into().unwrap(),
            ))
            .enable_http1()
            .build();
        let wire = Wire::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Caller { address, bundle: bundle.to_owned(), wire }
    }

    async fn try_post(&self, path: &str, body: String) -> anyhow::Result<(u16, String)> {
        // Cluster API adds its timeout to the query.
        let request = http::Request::post(format!("https://{}{path}?timeout=10s", self.address))
            .header("content-type", "application/json")
            .body(Full::from(body))?;
        let response = self.wire.request(request).await?;
        let status = response.status().as_u16();
        Ok((status, String::from_utf8(response.into_body().collect().await?.to_bytes().to_vec())?))
    }

    async fn post(&self, path: &str, body: &Value) -> Value {
        let (status, text) = self.try_post(path, body.to_string()).await.unwrap();
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn before_cluster_delete(&self, cluster: &Value) -> Value {
        let request = json!({ "apiVersion": HOOKS, "kind": "BeforeClusterDeleteRequest", "settings": {}, "cluster": cluster });
        let response = self.post(PATH, &request).await;
        assert_eq!(
            (&response["apiVersion"], &response["kind"]),
            (&json!(HOOKS), &json!("BeforeClusterDeleteResponse"))
        );
        response
    }
}

/// A Cluster with a topology on OpenStack, and its OpenStackCluster.
async fn cluster(env: &TestEnv, name: &str, identity: Value) -> Value {
    env.create(
        "infrastructure.cluster.x-k8s.io/v1beta1",
        "OpenStackCluster",
        name,
        json!({ "spec": { "identityRef": identity } }),
    )
    .await;
    let rest = json!({
        "metadata": { "finalizers": ["cluster.cluster.x-k8s.io"] },
        "spec": { "topology": { "class": "openstack", "version": "v1.33.0" }, "infrastructureRef": {
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "OpenStackCluster", "name": name } },
    });
    let made = env.create("cluster.x-k8s.io/v1beta1", "Cluster", name, rest).await;
    serde_json::to_value(made).unwrap()
}

/// Without OpenStack, so that the Deorbit can be complete here.
const TEMPLATE: &str = "spec:
  kubeconfig: {secretRef: {name: '{.metadata.name}-kubeconfig'}}
  timeouts: {loadBalancerGrace: 0s}
";

async fn start(env: &TestEnv, template: Option<&str>) -> (Program, Caller) {
    let folder = env.folder.path();
    let bundle = certificate(folder);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, e2e::program::free_port().unwrap()));
    let mut launch = env.deorbiter().arg("--hook-address").arg(address.to_string());
    launch = launch.arg("--hook-cert-dir").arg(folder);
    if let Some(text) = template {
        let file = folder.join("template.yaml");
        std::fs::write(&file, text).unwrap();
        launch = launch.arg("--hook-template").arg(file);
    }
    let deorbiter = launch.start().unwrap();
    let caller = Caller::new(address, &bundle);
    let discovery = json!({ "apiVersion": HOOKS, "kind": "DiscoveryRequest" }).to_string();
    wait_for("the hook listens", || async {
        caller.try_post(&format!("/{HOOKS}/discovery"), discovery.clone()).await.ok()
    })
    .await;
    (deorbiter, caller)
}

#[tokio::test]
async fn a_cluster_waits_until_its_deorbit_is_complete() {
    let env = TestEnv::start().await;
    let cluster =
        cluster(&env, "prod", json!({ "name": "prod-cloud-config", "cloudName": "openstack" })).await;
    let (deorbiter, caller) = start(&env, Some(TEMPLATE)).await;

    let discovery = caller
        .post(&format!("/{HOOKS}/discovery"), &json!({ "apiVersion": HOOKS, "kind": "DiscoveryRequest" }))
        .await;
    assert_eq!(discovery["status"], "Success");
    let handler = &discovery["handlers"][0];
    assert_eq!(handler["requestHook"], json!({ "apiVersion": HOOKS, "hook": "BeforeClusterDelete" }));
    assert_eq!(PATH, format!("/{HOOKS}/beforeclusterdelete/{}", handler["name"].as_str().unwrap()));
    assert_eq!(handler["failurePolicy"], "Fail");

    // A request for a Cluster that is not being deleted does nothing.
    let response = caller.before_cluster_delete(&cluster).await;
    assert_eq!(response["status"], "Failure");
    assert!(response["message"].as_str().unwrap().contains("is not being deleted"), "{response}");
    assert!(env.deorbits().await.is_empty());

    let clusters = env.api("cluster.x-k8s.io/v1beta1", "Cluster");
    let annotate = async |value: Value| {
        let patch = json!({ "metadata": { "annotations": { "deorbiter.perimeter.dev/protect": value } } });
        clusters.patch("prod", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    clusters.delete("prod", &DeleteParams::default()).await.unwrap();
    annotate(json!("true")).await;
    let response = caller.before_cluster_delete(&cluster).await;
    assert!(
        response["status"] == "Failure" && response["message"].as_str().unwrap().contains("protect"),
        "{response}"
    );
    annotate(Value::Null).await;

    // Two replicas may get requests at the same time; and Cluster API 1.11 omits the type.
    let mut converted = cluster.clone();
    converted.as_object_mut().unwrap().retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind"));
    let (one, other) =
        tokio::join!(caller.before_cluster_delete(&cluster), caller.before_cluster_delete(&converted));
    for response in [one, other] {
        assert!(
            response["status"] == "Success" && response["retryAfterSeconds"].as_u64().unwrap() > 0,
            "{response}"
        );
    }
    let deorbits = env.deorbits().await;
    assert_eq!(deorbits.len(), 1);
    assert_eq!(deorbits[0].labels()["deorbiter.perimeter.dev/trigger"], "cluster-api");
    assert_eq!(deorbits[0].spec.kubeconfig.as_ref().unwrap().secret_ref.name, "prod-kubeconfig");
    let repeated = caller.before_cluster_delete(&cluster).await;
    assert_eq!(
        repeated,
        caller.before_cluster_delete(&cluster).await,
        "a condition must not change with each call"
    );

    env.kubeconfig_secret("prod-kubeconfig").await;
    env.wait_for_phase(Phase::Succeeded).await;
    let response = caller.before_cluster_delete(&cluster).await;
    assert!(response["status"] == "Success" && response["retryAfterSeconds"] == 0, "{response}");
    let metrics = deorbiter.metrics().await.unwrap();
    assert_eq!(metrics.sum("deorbiter_hook_responses_total", &[("response", "refused")]), Some(2.0));
    assert_eq!(metrics.sum("deorbiter_hook_responses_total", &[("response", "go_on")]), Some(1.0));
}

#[tokio::test]
#[ignore = "full: the hook's tests have the rule"]
async fn the_login_of_the_openstackcluster_is_used_with_its_region() {
    let env = TestEnv::start().await;
    let identity = json!({ "name": "prod-cloud-config", "cloudName": "north", "region": "r1" });
    let prod = cluster(&env, "prod", identity).await;
    let shared =
        cluster(&env, "dev", json!({ "type": "ClusterIdentity", "name": "shared", "cloudName": "north" }))
            .await;
    let (_deorbiter, caller) = start(&env, None).await;
    let clusters = env.api("cluster.x-k8s.io/v1beta1", "Cluster");
    for name in ["prod", "dev"] {
        clusters.delete(name, &DeleteParams::default()).await.unwrap();
    }
    assert_eq!(caller.before_cluster_delete(&prod).await["status"], "Success");
    let deorbit = env.deorbits().await.pop().unwrap();
    let login = &deorbit.spec.openstack.as_ref().unwrap().identity_ref;
    assert_eq!((login.name.as_str(), login.cloud_name.as_str()), ("prod-cloud-config", "north"));
    assert_eq!(login.region.as_deref(), Some("r1"));
    assert_eq!(login.kind, IdentityKind::Secret);
    assert_eq!(caller.before_cluster_delete(&shared).await["status"], "Success");
    let deorbits = env.deorbits().await;
    let deorbit = deorbits.iter().find(|one| one.name_any().starts_with("dev-")).unwrap();
    let login = &deorbit.spec.openstack.as_ref().unwrap().identity_ref;
    assert_eq!((login.kind, login.name.as_str()), (IdentityKind::ClusterIdentity, "shared"));
}

#[tokio::test]
async fn invalid_requests_get_a_response_and_a_new_certificate_is_used() {
    let env = TestEnv::start().await;
    let (deorbiter, caller) = start(&env, Some(TEMPLATE)).await;
    let refused = async |body: Value| caller.post(PATH, &body).await["status"].clone();
    assert_eq!(refused(json!({})).await, "Failure");
    assert_eq!(refused(json!([])).await, "Failure");
    let named = |name: &str| {
        json!({ "apiVersion": HOOKS, "kind": "BeforeClusterDeleteRequest", "cluster": {
        "apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster",
        "metadata": { "namespace": "default", "name": name, "uid": "x" } } })
    };
    assert_eq!(refused(named("../../secrets/x")).await, "Failure", "a name is no path");
    for (key, other) in [("kind", "Machine"), ("apiVersion", "infrastructure.cluster.x-k8s.io/v1beta1")] {
        let mut request = named("gone");
        request["cluster"][key] = json!(other);
        assert_eq!(refused(request).await, "Failure", "{key}");
    }
    let response = caller.post(PATH, &named("gone")).await;
    assert!(response["status"] == "Success" && response["retryAfterSeconds"] == 0, "{response}");
    assert_eq!(caller.try_post("/elsewhere", String::new()).await.unwrap().0, 404);
    let large = "x".repeat(4 << 20);
    assert!(caller.try_post(PATH, large).await.map_or(true, |(status, _)| status == 413));

    // Replaces the certificate, as a kubelet does when the Secret is renewed.
    let bundle = certificate(env.folder.path());
    let renewed = Caller::new(caller.address, &bundle);
    wait_for("the new certificate", || async { renewed.try_post("/elsewhere", String::new()).await.ok() })
        .await;
    // A new caller: a resumed session does not verify the certificate.
    let old = Caller::new(caller.address, &caller.bundle);
    assert!(old.try_post("/elsewhere", String::new()).await.is_err(), "the old one is not served any more");
    drop(deorbiter);
}
