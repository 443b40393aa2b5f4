//! Least privilege of natgw: no request is refused, and every verb, resource and name in `manifests/natgw/rbac.yaml` is used. Prints the number
//! of uses.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use e2e::control_plane::ControlPlane;
use e2e::fault_proxy::{KubeRequest, Recorded};
use e2e::natgw::{FLOATING_IP_LABEL, Gateway, Responder, TIMEOUT, TestEnv, run};
use e2e::program::Program;
use e2e::rights::{Grant, Rights};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRole;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use natgw::names;
use nix::sys::signal::Signal;
use serde_json::json;

const FIRST: &str = "198.51.100.1";
const SECOND: &str = "198.51.100.2";
/// Everything that is opt-in. Health checks go to this port of the gateways.
fn all(port: u16) -> String {
    format!(
        "clients: {{enabled: true}}\nfloatingIPs: {{label: true}}\n\
         healthCheck: {{enabled: true, interval: 500ms, failures: 10, port: {port}}}"
    )
}

async fn stop(natgw: &Program) {
    natgw.signal(Signal::SIGTERM).unwrap();
    assert_eq!(natgw.wait_exit().await.unwrap().code(), Some(0));
}

/// The requests of a environment, with the namespace that natgw has in its manifests.
fn requests(env: &TestEnv) -> Vec<(Recorded, KubeRequest)> {
    let read = |request: Recorded| {
        let asked = request.kube().unwrap_or_else(|| panic!("{} is no resource", request.path));
        let namespace = asked.namespace.map(|it| if it == env.namespace { "natgw".to_owned() } else { it });
        (request, KubeRequest { namespace, ..asked })
    };
    env.api_proxy.requests().into_iter().map(read).collect()
}

/// Setup with a label from the cloud, a failed Job that is tried again, client Jobs.
async fn first_gateways(env: &TestEnv, settings: &str) -> (Program, Gateway, Gateway, Gateway) {
    let first = env.node(Some(FIRST)).await.unwrap();
    first.node.label(FLOATING_IP_LABEL, None).await.unwrap();
    first.hang("setup", true);
    let natgw = env.natgw(settings).unwrap().start().unwrap();
    let pod = first.wait_for_pod("setup:198.51.100.1").await.unwrap();
    let job = env.wait_for_job(&first, "setup:198.51.100.1").await.unwrap();
    // Three retries take the Job controller more than a minute; the fourth failure is no other than the first.
    env.patch_job(&job.name_any(), json!({"spec": {"backoffLimit": 0}})).await.unwrap();
    first.node.finish(&pod, 7).unwrap();
    env.wait_for_event("Node", &first.name, "JobFailed").await.unwrap();
    first.hang("setup", false);
    first.node.annotate(names::FORGET_ANNOTATION, Some("true")).await.unwrap();
    env.wait_for_primary(&first).await.unwrap();

    let second = env.node(Some(SECOND)).await.unwrap();
    env.wait_for_setup(&second, SECOND).await.unwrap();
    let client = env.node(None).await.unwrap();
    env.wait_for_client(&client).await.unwrap();
    (natgw, first, second, client)
}

/// The route moves back and forth until an Event repeats an earlier one, which is patched then.
async fn cordons(env: &TestEnv, first: &Gateway, second: &Gateway) {
    for (from, to) in [(first, second), (second, first), (first, second)] {
        from.node.cordon(true).await.unwrap();
        env.wait_for_primary(to).await.unwrap();
        from.node.cordon(false).await.unwrap();
    }
    let patched = |requests: &[Recorded]| {
        requests.iter().any(|request| request.method == "PATCH" && request.path.contains("/events/"))
    };
    env.api_proxy.wait_for(patched, TIMEOUT).await.unwrap();
}

/// On its own control planes, because a cleanup removes the setup of every Node of the cluster.
#[tokio::test]
async fn no_request_of_natgw_is_refused_and_no_permission_is_unused() {
    let env = TestEnv::on_loopback(ControlPlane::start().await.unwrap()).await.unwrap();
    // Of the second gateway. Nothing listens at the others, and a refused connection is a response.
    let mut responder = Responder::start([127, 77, 0, 3].into(), 0).unwrap();
    let all = all(responder.port().unwrap());
    let (natgw, first, second, _client) = first_gateways(&env, &all).await;
    cordons(&env, &first, &second).await;
    // One round without a response: the Lease of the Node is read.
    responder.silence().await.unwrap();
    let leases =
        |requests: &[Recorded]| requests.iter().any(|request| request.path.contains("kube-node-lease"));
    env.api_proxy.wait_for(leases, TIMEOUT).await.unwrap();
    responder.resume();

    // Another takes over, under the same Lease.
    let standby = env.natgw(&all).unwrap().name("standby").start().unwrap();
    env.wait_for_metric(&standby, "leader_election_master_status", &[], 0.0).await.unwrap();
    stop(&natgw).await;
    env.wait_for_metric(&standby, "leader_election_master_status", &[], 1.0).await.unwrap();
    // Its floating IP is unassigned: the label and the setup are removed, and the Node becomes a client.
    env.hetzner.assign_floating_ip(first.floating_ip(), None).unwrap();
    env.wait_for_client(&first).await.unwrap();
    stop(&standby).await;

    for arguments in [&["--dry-run"][..], &["status"], &["--once"], &["cleanup", "--timeout", "4m"]] {
        let (code, text) = run(&env.natgw(&all).unwrap().args(arguments.iter().copied())).await.unwrap();
        assert_eq!(code, 0, "{arguments:?}: {text}");
    }
    assert!(env.annotations_of(&second).await.unwrap().is_empty());

    // If the API server streams no lists, caches are filled in pages.
    let paged =
        ControlPlane::builder().api_server_flag("--feature-gates=WatchList=false").start().await.unwrap();
    let paged = TestEnv::on(paged).await.unwrap();
    let gateway = paged.node(Some(FIRST)).await.unwrap();
    let natgw = paged.natgw("").unwrap().start().unwrap();
    paged.wait_for_primary(&gateway).await.unwrap();
    stop(&natgw).await;

    judge(&[requests(&env), requests(&paged)].concat());
}

fn judge(requests: &[(Recorded, KubeRequest)]) {
    let grants = Rights::of("natgw").unwrap().grants().unwrap();
    let mut used: BTreeMap<&Grant, u32> = grants.iter().map(|grant| (grant, 0)).collect();
    let mut wrong = Vec::new();
    for (request, asked) in requests {
        let covering: Vec<&Grant> = grants.iter().filter(|grant| grant.covers(asked)).collect();
        for grant in &covering {
            *used.get_mut(grant).unwrap() += 1;
        }
        if covering.is_empty() || request.upstream_status == Some(403) {
            wrong.push(format!("{} {}: {:?}", request.method, request.path, request.upstream_status));
        }
    }
    let mut table = format!("{:<8} {:<44} {:<10} {:<8} used\n", "verb", "resource", "in", "name");
    for grant in &grants {
        let resource = [grant.resource.as_str(), grant.group.as_str()].join(".");
        let place = grant.namespace.as_deref().unwrap_or("cluster");
        let name = grant.name.as_deref().unwrap_or("any");
        let resource = resource.trim_end_matches('.');
        writeln!(table, "{:<8} {resource:<44} {place:<10} {name:<8} {}", grant.verb, used[grant]).unwrap();
    }
    println!("{} requests, {} rights:\n{table}", requests.len(), grants.len());
    assert!(wrong.is_empty(), "refused, or granted by no Role:\n{}", wrong.join("\n"));
    let unused: Vec<&Grant> = grants.iter().filter(|grant| used[grant] == 0).collect();
    assert!(unused.is_empty(), "granted but unused: {unused:#?}");
}

/// The API server refuses requests that natgw is not granted: the tests do not run natgw as an administrator.
#[tokio::test]
async fn requests_without_a_permission_are_refused() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(None).await.unwrap();
    let natgw = ControlPlane::client_of(&env.kubeconfig).await.unwrap();
    let everything = ListParams::default();
    let create = PostParams::default();
    let named = |name: &str| kube::api::ObjectMeta { name: Some(name.into()), ..Default::default() };
    let merge = PatchParams::default();
    let patch = Patch::Merge(json!({"metadata": {"labels": {"e2e": "x"}}}));
    let own = env.namespace.as_str();

    let secrets = Api::<Secret>::namespaced(natgw.clone(), own);
    let maps = Api::<ConfigMap>::namespaced(natgw.clone(), own);
    let pods = Api::<Pod>::namespaced(natgw.clone(), own);
    let roles = Api::<ClusterRole>::all(natgw.clone());
    let accounts = Api::<ServiceAccount>::namespaced(natgw.clone(), own);
    let nodes = Api::<Node>::all(natgw.clone());
    let leases = Api::<Lease>::namespaced(natgw.clone(), own);
    let elsewhere = Api::<Job>::namespaced(natgw.clone(), "default");
    let job = Job { metadata: named("e2e-rights"), ..Job::default() };
    let refused = [
        ("list Secrets", secrets.list(&everything).await.err()),
        ("list ConfigMaps", maps.list(&everything).await.err()),
        ("list Pods", pods.list(&everything).await.err()),
        ("list ClusterRoles", roles.list(&everything).await.err()),
        ("list ServiceAccounts", accounts.list(&everything).await.err()),
        ("list Jobs of others", elsewhere.list(&everything).await.err()),
        ("create a Job elsewhere", elsewhere.create(&create, &job).await.err()),
        ("delete a Node", nodes.delete(&gateway.name, &Default::default()).await.err()),
        ("patch a Node's status", nodes.patch_status(&gateway.name, &merge, &patch).await.err()),
        ("change another Lease", leases.patch("another", &merge, &patch).await.err()),
        ("list Leases", leases.list(&everything).await.err()),
    ];
    for (what, error) in refused {
        match error {
            Some(kube::Error::Api(status)) => {
                assert_eq!(status.code, 403, "{what}: {status:?}");
                assert!(status.message.contains(&format!("system:serviceaccount:{own}:natgw")), "{status:?}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
    // Nor with impersonation, which only the proxy may use.
    let kubeconfig = Kubeconfig::read_from(&env.kubeconfig).unwrap();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.auth_info.impersonate = Some("admin".into());
    config.auth_info.impersonate_groups = Some(vec!["system:masters".into()]);
    let admin = Api::<Secret>::namespaced(Client::try_from(config).unwrap(), own);
    let Err(kube::Error::Api(status)) = admin.list(&everything).await else { panic!("an administrator") };
    assert_eq!(status.code, 403, "{status:?}");
    // The control: a permitted request of the same user succeeds.
    nodes.list(&everything).await.unwrap();
    nodes.patch(&gateway.name, &merge, &patch).await.unwrap();
}
