//! apinetlet with the permissions and arguments of its own manifests: no request is refused, and each permission is used.

use std::collections::BTreeSet;

use apinetlet::api::network_policy::SourceNetworkPolicy;
use apinetlet::api::{ApiKind, apinet, source};
use e2e::fault_proxy::{FaultProxy, KubeRequest};
use e2e::kustomize;
use e2e::program::{Launch, Program, free_port};
use e2e::rights::{Grant, Rights};
use e2e::wait::until;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt as _};
use nix::sys::signal::Signal;
use serde_json::json;

use super::environment::{TestEnv, delete, labels, patch, ready, wait, wait_gone};
use super::mapping::settled;
use super::permissions::{Permissions, apinet_rights, source_rights};

/// Apinet objects that exist only together with their source object.
const COUNTERPARTS: [&str; 4] = ["networks", "loadbalancers", "natgateways", "networkpolicies"];
/// The interfaces of [`TestEnv::populate`] in the apinet cluster.
const INTERFACES: [&str; 2] = ["machine-nic-1", "machine-nic-2"];

/// The arguments of the Deployment for two clusters, with addresses and a namespace of this test.
fn arguments(env: &TestEnv, port: u16) -> Vec<String> {
    let overlay = kustomize::overlay("apinetlet", &["apinetlet-kubeconfig"]).unwrap();
    let objects = kustomize::objects(&kustomize::render(overlay.path()).unwrap()).unwrap();
    let pod = &kustomize::only(&objects, "Deployment").unwrap()["spec"]["template"]["spec"];
    let arguments = pod["containers"][0]["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap());
    arguments
        .map(|argument| {
            argument
                .replace("=:8081", "=127.0.0.1:0")
                .replace("=:8443", &format!("=127.0.0.1:{port}"))
                .replace("$(POD_NAMESPACE)", &env.apinet)
        })
        .collect()
}

/// The kubeconfig of the apinet cluster is in a Secret.
async fn launch(env: &TestEnv, port: u16) -> Launch {
    let (source, apinet) = env.kubeconfigs();
    let kubeconfig = std::fs::read_to_string(apinet).unwrap();
    let secret =
        json!({ "metadata": { "name": "apinet-kubeconfig" }, "stringData": { "kubeconfig": kubeconfig } });
    let secrets = Api::<Secret>::namespaced(env.client.clone(), &env.source);
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
    Program::binary("apinetlet")
        .unwrap()
        .args([
            format!("--kubeconfig={source}"),
            format!("--namespace={}", env.source),
            format!("--own-namespace={}", env.source),
        ])
        .args(arguments(env, port))
}

/// Deletes a source object, if it exists; without its finalizers if `by_force`.
async fn remove<K: ApiKind>(api: &Api<K>, name: &str, by_force: bool) {
    if api.get_opt(name).await.unwrap().is_none() {
        return;
    }
    if by_force {
        patch(api, name, json!({ "metadata": { "finalizers": null } })).await;
    }
    match api.delete(name, &DeleteParams::default()).await {
        // The garbage collector was faster.
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        deleted => drop(deleted.unwrap()),
    }
    wait_gone(api, name).await;
}

/// Deletes the objects of [`TestEnv::populate`], users of an object before the object.
async fn remove_all(env: &TestEnv, by_force: bool) {
    remove(&env.source::<SourceNetworkPolicy>(), "policy", by_force).await;
    for name in ["web", "internal"] {
        remove(&env.source::<source::LoadBalancer>(), name, by_force).await;
    }
    remove(&env.source::<source::LoadBalancerRouting>(), "web", false).await;
    remove(&env.source::<source::NatGateway>(), "nat", by_force).await;
    for name in ["nic-1", "nic-2"] {
        remove(&env.source::<source::NetworkInterface>(), name, by_force).await;
    }
    remove(&env.source::<source::VirtualIp>(), "vip", by_force).await;
    for name in ["net", "empty"] {
        remove(&env.source::<source::Network>(), name, by_force).await;
    }
}

/// Waits until all objects without a source object are deleted or released.
async fn collected(env: &TestEnv, ip: &str) {
    until("the end of the counterparts", async || {
        for kind in COUNTERPARTS {
            if !env.list("core.apinet.ironcore.dev", &env.apinet, kind).await.is_empty() {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
    .await
    .unwrap();
    wait_gone(&env.apinet::<apinet::Ip>(), ip).await;
    let interfaces = env.apinet::<apinet::NetworkInterface>();
    for name in INTERFACES {
        let is_released = |one: &apinet::NetworkInterface| {
            !labels(one).contains_key("apinetlet.ironcore.dev/networkinterface-uid")
        };
        wait(&interfaces, name, "its release", is_released).await;
        // That of the next machine has the same name.
        delete(&interfaces, name).await;
        wait_gone(&interfaces, name).await;
    }
}

/// The permissions of one cluster that no request has used. A request that is refused, or that no permission allows, fails the test.
fn unused(rights: &Rights, proxy: &FaultProxy, namespace: &str) -> BTreeSet<Grant> {
    let grants: BTreeSet<Grant> = rights.grants().unwrap().into_iter().collect();
    // An API server without streaming lists is sent lists.
    let mut unused: BTreeSet<Grant> = grants.iter().filter(|grant| grant.verb != "list").cloned().collect();
    for request in proxy.requests() {
        let asked = request.kube().unwrap_or_else(|| panic!("{} is no resource", request.path));
        assert_ne!(request.status, Some(403), "{} {}", request.method, request.path);
        // An apply that creates the object needs the verb `create` too.
        let creates = asked.verb == "patch" && request.status == Some(201);
        let place =
            asked.namespace.clone().map(|it| if it == namespace { "apinetlet".to_owned() } else { it });
        for verb in [asked.verb.as_str()].into_iter().chain(creates.then_some("create")) {
            // The authorizer checks a creation without the name of the object.
            let name = asked.name.clone().filter(|_| verb != "create");
            let asked =
                KubeRequest { verb: verb.to_owned(), namespace: place.clone(), name, ..asked.clone() };
            let covering: Vec<&Grant> = grants.iter().filter(|grant| grant.covers(&asked)).collect();
            assert!(!covering.is_empty(), "not granted: {verb} {}", request.path);
            for grant in covering {
                unused.remove(grant);
            }
        }
    }
    unused
}

/// A problem that comes back makes a series of its Event.
async fn report_twice(env: &TestEnv, apinetlet: &Program) {
    let interfaces = env.source::<source::NetworkInterface>();
    env.interface("odd", "10.0.2.9", json!({ "providerID": "odd" })).await;
    env.wait_warning("odd", "odd").await;
    patch(&interfaces, "odd", json!({ "spec": { "providerID": "" } })).await;
    settled(apinetlet).await;
    patch(&interfaces, "odd", json!({ "spec": { "providerID": "odd" } })).await;
    until("a series", async || {
        let requests = env.source_proxy.requests();
        let mut asked = requests.iter().filter_map(|request| request.kube());
        Ok(asked.any(|asked| asked.verb == "patch" && asked.resource == "events").then_some(()))
    })
    .await
    .unwrap();
    remove(&interfaces, "odd", false).await;
}

#[tokio::test]
async fn no_request_is_refused_and_each_permission_is_used() {
    let env = TestEnv::with(Permissions::Own).await;
    let port = free_port().unwrap();
    let launch = launch(&env, port).await;
    let apinetlet = ready(&launch).await;
    env.populate().await;
    env.converged().await;
    report_twice(&env, &apinetlet).await;
    assert_eq!(env.https_metrics(port, Some("default"), "/metrics").await.0, 403);
    let ip = env.source::<source::VirtualIp>().get("vip").await.unwrap().uid().unwrap();

    // Source objects that end without their finalizers while apinetlet does not run leave garbage.
    apinetlet.signal(Signal::SIGTERM).unwrap();
    assert_eq!(apinetlet.wait_exit().await.unwrap().code(), Some(0));
    remove_all(&env, true).await;
    let apinetlet = ready(&launch).await;
    collected(&env, &ip).await;

    env.populate().await;
    env.converged().await;
    remove_all(&env, false).await;
    let left = || {
        let source = unused(&source_rights(), &env.source_proxy, &env.source);
        let apinet = unused(&apinet_rights(), &env.apinet_proxy, &env.apinet);
        source.into_iter().chain(apinet).collect::<Vec<_>>()
    };
    // The Events and the renewal of the Lease may come later.
    let used = until("every permission to be used", async || Ok(left().is_empty().then_some(()))).await;
    assert!(used.is_ok(), "granted but unused: {:#?}", left());
    drop(apinetlet);
}
