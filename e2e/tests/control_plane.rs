//! Tests of the test environment: the control plane is real (version, RBAC, Jobs, garbage collection, node lifecycle, client-go's leader
//! election), hollow nodes behave like kubelets, and nothing outlives a test.

use std::path::Path;
use std::time::Duration;

use e2e::control_plane::{ControlPlane, Part};
use e2e::hollow_node::{HollowNode, Outcome};
use e2e::program::Program;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::conditions::is_deleted;
use kube::runtime::wait::{Condition, await_condition};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn wait<K>(api: &Api<K>, name: &str, condition: impl Condition<K>) -> Option<K>
where
    K: kube::Resource + Clone + std::fmt::Debug + Send + serde::de::DeserializeOwned + 'static,
{
    tokio::time::timeout(e2e::wait::TIMEOUT, await_condition(api.clone(), name, condition))
        .await
        .expect("in time")
        .unwrap()
}

async fn create_job(jobs: &Api<Job>, name: &str, node: &str) -> Job {
    let job = json!({
        "metadata": { "name": name },
        "spec": { "backoffLimit": 0, "template": { "spec": {
            "nodeName": node, "restartPolicy": "Never", "hostNetwork": true,
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": "main", "image": "none" }],
        }}},
    });
    jobs.create(&PostParams::default(), &serde_json::from_value(job).unwrap()).await.unwrap()
}

fn job_has(kind: &'static str) -> impl Condition<Job> {
    move |job: Option<&Job>| {
        let conditions = job.and_then(|job| job.status.as_ref()?.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|one| one.type_ == kind && one.status == "True"))
    }
}

fn ready_is(status: &'static str) -> impl Condition<Node> {
    move |node: Option<&Node>| {
        let conditions = node.and_then(|node| node.status.as_ref()?.conditions.as_ref());
        conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == status))
    }
}

fn running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

#[tokio::test]
async fn the_api_server_has_the_requested_version() {
    let control_plane = ControlPlane::shared("common").await.unwrap();
    let version = control_plane.client().apiserver_version().await.unwrap();
    if std::env::var("E2E_EXISTING_CLUSTER").as_deref() != Ok("1")
        && std::env::var_os("KUBEBUILDER_ASSETS").is_none()
    {
        let asked = std::env::var("KUBERNETES").unwrap_or_else(|_| "1.36".to_owned());
        assert_eq!(format!("{}.{}", version.major, version.minor), asked);
    }
    assert!(
        version.git_version.starts_with(&format!("v{}.{}.", version.major, version.minor)),
        "{version:?}"
    );
    assert!(control_plane.ca_pem().unwrap().starts_with("-----BEGIN CERTIFICATE"));
    assert!(control_plane.admin_identity_pem().unwrap().1.contains("PRIVATE KEY"));
}

#[tokio::test]
async fn rbac_refuses_an_account_without_permissions() {
    let control_plane = ControlPlane::shared("common").await.unwrap();
    let namespace = control_plane.namespace("rbac").await.unwrap();
    let may = async |kubeconfig: &Path| {
        let client = ControlPlane::client_of(kubeconfig).await.unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
        maps.list(&ListParams::default()).await.map(drop).map_err(|error| error.to_string())
    };
    let of_token = |token: &str| control_plane.token_kubeconfig(&control_plane.url(), token).unwrap();

    let account = control_plane.service_account_token(&namespace, "unbound").await.unwrap();
    let refused = may(&of_token(&account)).await.unwrap_err();
    assert!(refused.contains(&format!("system:serviceaccount:{namespace}:unbound")), "{refused}");
    let refused = may(&control_plane.user_kubeconfig("eve", None).unwrap()).await.unwrap_err();
    assert!(refused.contains("\"eve\" cannot list"), "{refused}");
    let refused = may(&of_token("wrong")).await.unwrap_err();
    assert!(refused.contains("Unauthorized"), "{refused}");

    may(&of_token(control_plane.user("admin").unwrap())).await.unwrap();
    may(&control_plane.user_kubeconfig("root", Some("system:masters")).unwrap()).await.unwrap();
    may(control_plane.kubeconfig()).await.unwrap();
}

/// A proxy is called over plain HTTP and forwards the token.
#[tokio::test]
async fn a_token_is_sent_over_plain_http() {
    let control_plane = ControlPlane::shared("common").await.unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let kubeconfig = control_plane.token_kubeconfig(&url, "a-token").unwrap();
    let client = ControlPlane::client_of(&kubeconfig).await.unwrap();
    let call = tokio::spawn(async move { client.apiserver_version().await });
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.unwrap());
    }
    stream.write_all(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await.unwrap();
    assert!(call.await.unwrap().is_err());
    let request = String::from_utf8(request).unwrap().to_lowercase();
    assert!(request.contains("authorization: bearer a-token\r\n"), "{request}");
}

#[tokio::test]
async fn the_test_decides_how_jobs_on_a_hollow_node_end() {
    let control_plane = ControlPlane::shared("common").await.unwrap();
    let namespace = control_plane.namespace("jobs").await.unwrap();
    let jobs: Api<Job> = Api::namespaced(control_plane.client(), &namespace);
    let fails = |pod: &Pod| pod.labels().get("job-name").is_some_and(|job| job == "bad");
    let node = HollowNode::builder("jobs-1")
        .internal_ip([10, 0, 0, 2])
        .provider_id("hcloud://1")
        .labels([("role", "gateway")])
        .on_pod(move |pod| {
            if fails(pod) {
                Outcome::Fail(Duration::ZERO, 3)
            } else {
                Outcome::Succeed(Duration::from_millis(100))
            }
        })
        .start(control_plane.client())
        .await
        .unwrap();
    create_job(&jobs, "good", &node.name()).await;
    create_job(&jobs, "bad", &node.name()).await;
    wait(&jobs, "good", job_has("Complete")).await;
    wait(&jobs, "bad", job_has("Failed")).await;

    let pods: Api<Pod> = Api::namespaced(control_plane.client(), &namespace);
    let bad = pods.list(&ListParams::default().labels("job-name=bad")).await.unwrap().items.remove(0);
    let status = bad.status.unwrap();
    let ended = status.container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap();
    assert_eq!((ended.exit_code, status.pod_ip.as_deref()), (3, Some("10.0.0.2")));

    // By default a pod runs until the test ends it.
    node.on_pod(|_| Outcome::Hang);
    create_job(&jobs, "named", &node.name()).await;
    let named = |pod: &Pod| running(pod) && pod.labels()["job-name"] == "named";
    let pod = node.wait_for_pod(named, e2e::wait::TIMEOUT).await.unwrap();
    node.finish(&pod.name_any(), 0).unwrap();
    wait(&jobs, "named", job_has("Complete")).await;

    let registered = node.get().await.unwrap();
    assert_eq!(registered.labels()["role"], "gateway");
    assert_eq!(registered.spec.unwrap().provider_id.as_deref(), Some("hcloud://1"));
    node.remove().await.unwrap();
    let nodes: Api<Node> = Api::all(control_plane.client());
    assert!(nodes.get_opt("jobs-1").await.unwrap().is_none());
}

#[tokio::test]
async fn a_silent_node_becomes_not_ready_and_blocks_foreground_deletion() {
    let control_plane = ControlPlane::shared("common").await.unwrap();
    let namespace = control_plane.namespace("silence").await.unwrap();
    let jobs: Api<Job> = Api::namespaced(control_plane.client(), &namespace);
    let nodes: Api<Node> = Api::all(control_plane.client());
    let node = HollowNode::builder("silence-1").start(control_plane.client()).await.unwrap();
    let job = create_job(&jobs, "held", &node.name()).await;
    node.wait_for_pod(running, e2e::wait::TIMEOUT).await.unwrap();

    node.silence().await;
    jobs.delete("held", &DeleteParams::foreground()).await.unwrap();
    wait(&nodes, "silence-1", ready_is("Unknown")).await;
    // The pod has a deletionTimestamp; only its node's confirmation is missing.
    assert!(
        node.wait_for_pod(|pod| pod.metadata.deletion_timestamp.is_some(), e2e::wait::TIMEOUT).await.is_ok()
    );
    assert!(jobs.get("held").await.unwrap().metadata.deletion_timestamp.is_some());

    node.resume().await.unwrap();
    wait(&jobs, "held", is_deleted(&job.uid().unwrap())).await;
    wait(&nodes, "silence-1", ready_is("True")).await;

    node.set_ready(false).await.unwrap();
    wait(&nodes, "silence-1", ready_is("False")).await;
    node.set_ready(true).await.unwrap();
    wait(&nodes, "silence-1", ready_is("True")).await;
    node.remove().await.unwrap();
}

#[tokio::test]
async fn a_reboot_changes_the_boot_id_and_ends_the_pods() {
    let control_plane = ControlPlane::shared("common").await.unwrap();
    let namespace = control_plane.namespace("reboot").await.unwrap();
    let jobs: Api<Job> = Api::namespaced(control_plane.client(), &namespace);
    let node = HollowNode::builder("reboot-1").start(control_plane.client()).await.unwrap();
    let boot_id = async || node.get().await.unwrap().status.unwrap().node_info.unwrap().boot_id;
    let before = boot_id().await;
    assert_eq!(before, node.boot_id());
    create_job(&jobs, "lost", &node.name()).await;
    node.wait_for_pod(running, e2e::wait::TIMEOUT).await.unwrap();

    node.silence().await;
    node.reboot().await.unwrap();
    assert_eq!(boot_id().await, before, "nothing is reported while the cable is cut");
    node.resume().await.unwrap();
    assert_eq!(boot_id().await, node.boot_id());
    assert_ne!(node.boot_id(), before);
    wait(&jobs, "lost", job_has("Failed")).await;

    node.label("role", Some("x")).await.unwrap();
    node.cordon(true).await.unwrap();
    let now = node.get().await.unwrap();
    assert_eq!(now.labels()["role"], "x");
    assert_eq!(now.spec.unwrap().unschedulable, Some(true));
    node.label("role", None).await.unwrap();
    assert!(!node.get().await.unwrap().labels().contains_key("role"));
    node.remove().await.unwrap();
}

#[tokio::test]
#[ignore = "full: the environment itself, with programs of its own; the tests of faults rely on it"]
async fn kube_controller_managers_contend_for_a_lease() {
    let control_plane = ControlPlane::shared("common").await.unwrap();
    let namespace = control_plane.namespace("leader").await.unwrap();
    let leases: Api<Lease> = Api::namespaced(control_plane.client(), &namespace);
    let at = format!("--leader-elect-resource-namespace={namespace}");
    let flags = [
        "--leader-elect-resource-name=contended",
        at.as_str(),
        // A leader that gets no processor for some seconds, as on a busy machine, keeps the Lease.
        "--leader-elect-lease-duration=24s",
        "--leader-elect-renew-deadline=16s",
        "--leader-elect-retry-period=500ms",
    ];
    let holder = |lease: Option<&Lease>| lease.and_then(|lease| lease.spec.as_ref()?.holder_identity.clone());
    // The holder may not lead yet if it created the Lease but lost the response; it does after a renewal.
    let renewed = |lease: Option<&Lease>| {
        let spec = lease.and_then(|lease| lease.spec.as_ref());
        let times = spec.and_then(|spec| Some((spec.acquire_time.as_ref()?.0, spec.renew_time.as_ref()?.0)));
        times.is_some_and(|(acquired, renewed)| renewed.duration_since(acquired).as_secs() >= 2)
    };
    let first = control_plane.spawn_kube_controller_manager(&flags).unwrap();
    let lease = wait(&leases, "contended", renewed).await;
    let leader = holder(lease.as_ref());
    let second = control_plane.spawn_kube_controller_manager(&flags).unwrap();

    first.pause().unwrap();
    wait(&leases, "contended", |lease: Option<&Lease>| holder(lease) != leader).await;
    first.resume().unwrap();
    let status = first.wait_exit().await.unwrap();
    assert!(!status.success(), "client-go ends a leader that lost its lease");
    assert_eq!(second.exited().unwrap(), None);
}

#[tokio::test]
#[ignore = "full: the environment itself, with programs of its own; the tests of faults rely on it"]
async fn programs_can_be_paused_and_restarted_with_their_data() {
    let control_plane = ControlPlane::builder()
        .without_controllers()
        .user("reader", &["readers"])
        .api_server_flag("--feature-gates=WatchList=false")
        .start()
        .await
        .unwrap();
    assert_eq!(control_plane.user("reader").unwrap(), "token-of-reader");
    let maps: Api<ConfigMap> = Api::namespaced(control_plane.client(), "default");
    let map = serde_json::from_value(json!({ "metadata": { "name": "kept" } })).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();

    control_plane.pause(Part::ApiServer).unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(200), maps.get("kept")).await.is_err());
    control_plane.resume(Part::ApiServer).unwrap();
    maps.get("kept").await.unwrap();

    control_plane.kill(Part::ApiServer).unwrap();
    assert!(maps.get("kept").await.is_err());
    control_plane.restart(Part::ApiServer).await.unwrap();
    maps.get("kept").await.unwrap();
    assert!(
        control_plane
            .restart(Part::Controllers)
            .await
            .unwrap_err()
            .to_string()
            .contains("without Controllers")
    );
}

/// Starts this test again as a process that reports what it has started, and kills it.
#[tokio::test]
#[ignore = "full: the environment itself, with programs of its own; the tests of faults rely on it"]
async fn nothing_outlives_a_killed_test() {
    if std::env::var_os("E2E_VICTIM").is_some() {
        let control_plane = ControlPlane::start().await.unwrap();
        println!("victim {}", control_plane.kubeconfig().parent().unwrap().display());
        std::future::pending::<()>().await;
    }
    let mut launch = Program::at(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "control_plane::nothing_outlives_a_killed_test",
            "--include-ignored",
            "--nocapture",
        ])
        .env("E2E_VICTIM", "1");
    for name in ["KUBERNETES", "KUBEBUILDER_ASSETS", "PERIMETER_ASSETS", "XDG_CACHE_HOME"] {
        if let Some(value) = std::env::var_os(name) {
            launch = launch.env(name, value);
        }
    }
    let victim = launch.start().unwrap();
    let line = victim.wait_for_line(|line| line.contains("victim /")).await.unwrap();
    let folder = &line[line.find('/').unwrap()..];
    // Their command lines contain the folder's path.
    let processes = || {
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let command = std::fs::read_to_string(entry.ok()?.path().join("cmdline")).ok()?;
            command.contains(folder).then_some(command)
        });
        processes.collect::<Vec<_>>()
    };
    assert_eq!(processes().len(), 4, "etcd, two of Kubernetes and the janitor: {:?}", processes());
    victim.kill().unwrap();
    let is_gone = async || Ok((processes().is_empty() && !Path::new(folder).exists()).then_some(()));
    e2e::wait::until(&format!("the end of {folder}"), is_gone).await.unwrap();
}
