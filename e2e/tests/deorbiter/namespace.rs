//! `--watch-namespace` with the rights of the component deorbiter-namespace: a run in this namespace needs nothing else, and Deorbits of
//! other namespaces and DeorbitBindings are not served.

use std::collections::BTreeSet;

use common::api::deorbit::{Deorbit, Phase};
use common::api::deorbit_binding::DeorbitBinding;
use common::conditions::Status;
use e2e::control_plane::ControlPlane;
use e2e::deorbiter::{TestEnv, as_another_cluster, kubeconfig, upstream};
use e2e::fault_proxy::FaultProxy;
use e2e::kustomize;
use e2e::program::Program;
use e2e::rights::{Grant, Rights};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use kube::api::{Api, PostParams};
use serde_json::json;

/// Rights that are not used here, resource and verb: lists are read in pages where the API server does not stream them; a repeated Event
/// is patched.
const ELSEWHERE: [(&str, &str); 3] = [("deorbits", "list"), ("deorbitbindings", "list"), ("events", "patch")];

#[tokio::test(flavor = "multi_thread")]
async fn a_run_in_the_watched_namespace_needs_no_right_in_any_other() {
    let env = TestEnv::start().await.unwrap();
    env.control_plane.serve::<DeorbitBinding>().await.unwrap();
    let overlay = kustomize::overlay("deorbiter", &["deorbiter-namespace"]).unwrap();
    let rights = Rights::rendered("deorbiter", overlay.path()).unwrap();
    let user = rights.give(&env.client, &env.namespace).await.unwrap();
    let restricted = upstream(&env.control_plane).unwrap().impersonate(&user.name, user.groups.clone());
    let proxy = FaultProxy::start(restricted).await.unwrap();
    as_another_cluster(&proxy);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kubeconfig");
    std::fs::write(&file, kubeconfig(&proxy.url(), None, &[]).unwrap()).unwrap();

    let other = env.control_plane.namespace("other").await.unwrap();
    let elsewhere = Api::<Deorbit>::namespaced(env.client.clone(), &other);
    let deorbit = json!({"apiVersion": "deorbiter.perimeter.dev/v1alpha1", "kind": "Deorbit", "metadata": {"name": "run"},
        "spec": {"kubeconfig": {"secretRef": {"name": "target"}}}});
    elsewhere.create(&PostParams::default(), &serde_json::from_value(deorbit).unwrap()).await.unwrap();
    let binding = json!({"apiVersion": "deorbiter.perimeter.dev/v1alpha1", "kind": "DeorbitBinding", "metadata": {"name": "maps"},
        "spec": {"targetRef": {"apiVersion": "v1", "kind": "ConfigMap"}, "template": {"spec": {"inCluster": true}}}});
    let binding: DeorbitBinding = env.create(binding).await.unwrap();

    let deorbiter = Program::binary("deorbiter")
        .unwrap()
        .env("KUBECONFIG", &file)
        .env("POD_NAMESPACE", &env.namespace)
        .env("PERIMETER_WATCH_NAMESPACE", &env.namespace)
        .args(["--admin-address", "127.0.0.1:0", "--log-format", "json"])
        .start()
        .unwrap();
    env.deorbit("run", json!({"clusterSurvives": true, "ttlSecondsAfterFinished": 1})).await.unwrap();
    env.wait("its expiry", async || Ok(env.deorbits().get_opt("run").await?.is_none())).await.unwrap();
    let bindings = Api::<DeorbitBinding>::all(env.client.clone());
    let ready = async || {
        let status = bindings.get(&binding.name_any()).await?.status.unwrap_or_default();
        anyhow::Ok(status.conditions.into_iter().find(|one| one.kind == "Ready"))
    };
    env.wait("the refusal of the binding", async || Ok(ready().await?.is_some())).await.unwrap();
    let ready = ready().await.unwrap().unwrap();
    assert_eq!((ready.status, ready.reason.as_str()), (Status::False, "NotWatched"));
    assert!(ready.message.contains(&format!("--watch-namespace {}", env.namespace)), "{ready:?}");
    assert_eq!(bindings.get("maps").await.unwrap().finalizers(), [""; 0]);
    let untouched = elsewhere.get("run").await.unwrap();
    assert_eq!(untouched.finalizers(), [""; 0]);
    assert_eq!(untouched.status.unwrap_or_default().phase, Phase::Pending);
    drop(deorbiter);

    let restricted = ControlPlane::client_of(&file).await.unwrap();
    let refused = Api::<Secret>::namespaced(restricted, &other).get_opt("target").await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused}");

    let grants = rights.grants().unwrap();
    let mut used: BTreeSet<&Grant> = BTreeSet::new();
    let mut wrong = Vec::new();
    for request in proxy.requests() {
        let Some(mut asked) = request.kube() else { continue };
        if asked.namespace.as_ref() == Some(&other) {
            // The one above.
            assert_eq!(request.upstream_status, Some(403), "{} {}", request.method, request.path);
            continue;
        }
        asked.namespace =
            asked.namespace.map(|it| if it == env.namespace { "deorbiter".to_owned() } else { it });
        used.extend(grants.iter().filter(|grant| grant.covers(&asked)));
        if request.upstream_status == Some(403) {
            wrong.push(format!("{} {}", request.method, request.path));
        }
    }
    assert!(wrong.is_empty(), "refused: {wrong:#?}");
    let is_elsewhere = |grant: &Grant| ELSEWHERE.contains(&(grant.resource.as_str(), grant.verb.as_str()));
    let unused: Vec<&Grant> =
        grants.iter().filter(|grant| !used.contains(grant) && !is_elsewhere(grant)).collect();
    assert!(unused.is_empty(), "granted and not used: {unused:#?}");
}
