//! Setup and teardown Jobs on the real Job controller: defects 2 to 6, 8, 11, 15, 17, 21, 22.

use e2e::natgw::{FLOATING_IP_LABEL, TestEnv, task_of};
use e2e::wait::until;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use natgw::names;
use serde_json::json;

use super::{FIRST, SECOND, hanging_setup, pair, stop};

#[tokio::test]
async fn defect_02_teardown_waits_until_the_setup_job_and_its_pod_are_gone() {
    let env = TestEnv::start().await.unwrap();
    let (natgw, gateway, pod, setup) = hanging_setup(&env).await;

    // The kubelet does not report: the pod is terminating, and it is unknown whether it has ended.
    gateway.node.silence().await;
    gateway.node.label(FLOATING_IP_LABEL, None).await.unwrap();
    env.wait("the setup Job to be deleted", || async {
        let jobs = env.jobs_of(&gateway).await?;
        Ok(jobs.iter().any(|job| job.metadata.deletion_timestamp.is_some()))
    })
    .await
    .unwrap();
    // The garbage collector takes its time.
    env.wait("the pod to be deleted", || async {
        Ok(env.pod_api().get(&pod).await?.metadata.deletion_timestamp.is_some())
    })
    .await
    .unwrap();
    env.reconciles(&natgw, 2).await.unwrap();
    let jobs = env.jobs_of(&gateway).await.unwrap();
    assert_eq!(jobs.iter().map(task_of).collect::<Vec<_>>(), ["setup:198.51.100.1"]);

    let deleted = env.api_proxy.writes().into_iter().find(|write| write.method == "DELETE").unwrap();
    let options = deleted.json().unwrap();
    assert_eq!(options["propagationPolicy"], "Foreground");
    assert_eq!(options["preconditions"]["uid"], json!(setup.uid().unwrap()));

    gateway.node.resume().await.unwrap();
    env.wait_for_no_annotations(&gateway).await.unwrap();
    assert_eq!(gateway.tasks(), ["setup:198.51.100.1", "teardown:198.51.100.1"]);
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn defect_03_success_of_a_terminating_job_is_ignored() {
    let env = TestEnv::start().await.unwrap();
    let (natgw, gateway, pod, job) = hanging_setup(&env).await;
    // While no natgw runs it succeeds and is deleted, and it stays for a while, as with a slow garbage collector.
    stop(&natgw).await;
    env.patch_job(&job.name_any(), json!({"metadata": {"finalizers": ["e2e.test/hold"]}})).await.unwrap();
    gateway.node.finish(&pod, 0).unwrap();
    env.wait("the success of the Job", || async {
        let conditions = env.job_api().get(&job.name_any()).await?.status.unwrap().conditions;
        Ok(conditions.unwrap_or_default().iter().any(|condition| condition.type_ == "Complete"))
    })
    .await
    .unwrap();
    env.job_api().delete(&job.name_any(), &DeleteParams::background()).await.unwrap();
    let natgw = env.natgw("").unwrap().start().unwrap();
    env.reconciles(&natgw, 2).await.unwrap();
    let marks = env.annotations_of(&gateway).await.unwrap();
    assert_eq!(marks.keys().collect::<Vec<_>>(), ["pending"]);
    assert_eq!(env.route(), None);

    gateway.hang("setup", false);
    env.patch_job(&job.name_any(), json!({"metadata": {"finalizers": null}})).await.unwrap();
    env.wait_for_setup(&gateway, FIRST).await.unwrap();
    assert_eq!(gateway.tasks(), ["setup:198.51.100.1", "setup:198.51.100.1"]);
}

#[tokio::test]
#[ignore = "full: the plan's and the Job's tests have the rule"]
async fn defect_04_and_11_jobs_of_another_ip_are_deleted_and_each_job_has_one_ip() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some(FIRST)).await.unwrap();
    let _natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_primary(&gateway).await.unwrap();

    gateway.node.label(FLOATING_IP_LABEL, Some(SECOND)).await.unwrap();
    gateway.hang("setup", true);
    let pod = gateway.wait_for_pod("setup:198.51.100.2").await.unwrap();
    let jobs = env.jobs_of(&gateway).await.unwrap();
    assert_eq!(jobs.iter().map(task_of).collect::<Vec<_>>(), ["setup:198.51.100.2"]);
    let pod = env.pod_api().get(&pod).await.unwrap();
    let env = pod.spec.unwrap().containers.remove(0).env.unwrap();
    let ips: Vec<_> = env.iter().filter(|variable| variable.name == "FLOATING_IP").collect();
    assert!(ips.len() == 1 && ips[0].value.as_deref() == Some(SECOND), "{env:?}");
    assert_eq!(
        gateway.tasks(),
        ["setup:198.51.100.1", "teardown:198.51.100.1", "setup:198.51.100.2"],
        "what the first setup made is removed before the second begins"
    );
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn defect_05_a_label_that_changes_while_its_setup_runs_leaves_nothing_behind() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some(FIRST)).await.unwrap();
    gateway.hang("setup", true);
    let _natgw = env.natgw("").unwrap().start().unwrap();
    gateway.wait_for_pod("setup:198.51.100.1").await.unwrap();
    gateway.hang("setup", false);
    gateway.node.label(FLOATING_IP_LABEL, Some(SECOND)).await.unwrap();
    env.wait_for_setup(&gateway, SECOND).await.unwrap();
    assert_eq!(
        gateway.tasks(),
        ["setup:198.51.100.1", "teardown:198.51.100.1", "setup:198.51.100.2"],
        "the first setup had no annotation yet, and was torn down all the same"
    );
    env.wait_for_event("Node", &gateway.name, "SetupInterrupted").await.unwrap();
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule, the sweep's undisturbed run has the API server"]
async fn defect_06_a_label_that_returns_during_its_teardown_is_set_up_again() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some(FIRST)).await.unwrap();
    let natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_primary(&gateway).await.unwrap();
    gateway.hang("teardown", true);
    gateway.hang("setup", true);
    gateway.node.label(FLOATING_IP_LABEL, None).await.unwrap();
    gateway.wait_for_pod("teardown:198.51.100.1").await.unwrap();
    gateway.node.label(FLOATING_IP_LABEL, Some(FIRST)).await.unwrap();
    // Label and annotation agree the whole time, and still the Node is no gateway.
    let setup = gateway.wait_for_pod("setup:198.51.100.1").await.unwrap();
    assert_eq!(env.annotations_of(&gateway).await.unwrap()["nat-gateway"], FIRST);
    env.wait_for_metric(&natgw, "natgw_nodes", &[("state", "eligible")], 0.0).await.unwrap();
    assert!(env.role_holders().await.unwrap().is_empty());
    gateway.node.finish(&setup, 0).unwrap();
    env.wait_for_setup(&gateway, FIRST).await.unwrap();
    env.wait_for_event("Node", &gateway.name, "LabelRestored").await.unwrap();
    env.wait_for_primary(&gateway).await.unwrap();
    assert_eq!(gateway.tasks(), ["setup:198.51.100.1", "teardown:198.51.100.1", "setup:198.51.100.1"]);
}

#[tokio::test]
async fn defect_08_and_15_failed_job_is_reported_recorded_and_retried_and_its_pod_stays() {
    let env = TestEnv::start().await.unwrap();
    let (natgw, gateway, pod, job) = hanging_setup(&env).await;
    let spec = job.spec.clone().unwrap();
    assert_eq!((spec.backoff_limit, spec.active_deadline_seconds), (Some(3), Some(300)));
    assert_eq!(spec.pod_replacement_policy.as_deref(), Some("Failed"));
    // Three retries take the Job controller more than a minute; the fourth failure is no other than the first.
    env.patch_job(&job.name_any(), json!({"spec": {"backoffLimit": 0}})).await.unwrap();
    gateway.node.finish(&pod, 7).unwrap();

    let event = env.wait_for_event("Node", &gateway.name, "JobFailed").await.unwrap();
    assert!(event.note.unwrap().contains("BackoffLimitExceeded"));
    let marks = env.annotations_of(&gateway).await.unwrap();
    assert_eq!((marks["failures"].as_str(), marks["pending"].as_str()), ("1", "setup:198.51.100.1"));
    let conditions = env.job_api().get(&job.name_any()).await.unwrap().status.unwrap().conditions.unwrap();
    let failed = conditions.iter().find(|condition| condition.type_ == "Failed").unwrap();
    let failed = failed.last_transition_time.as_ref().unwrap().0;
    let wait = marks["retry-after"].parse::<Timestamp>().unwrap().duration_since(failed);
    assert!(wait > SignedDuration::from_secs(30) && wait <= SignedDuration::from_secs(60), "{wait:?}");
    // The minute may be over before the last check here.
    let later = Timestamp::now() + SignedDuration::from_hours(1);
    gateway.node.annotate(names::RETRY_AFTER_ANNOTATION, Some(&later.to_string())).await.unwrap();
    env.wait_for_metric(&natgw, "natgw_job_failures_total", &[("type", "setup")], 1.0).await.unwrap();
    let left = env.pod_api().get(&pod).await.unwrap();
    assert_eq!(left.status.unwrap().phase.as_deref(), Some("Failed"), "its log can be read");
    env.reconciles(&natgw, 2).await.unwrap();
    assert_eq!(gateway.tasks().len(), 1, "not tried again before its time");

    gateway.hang("setup", false);
    let now = Timestamp::now().to_string();
    gateway.node.annotate(names::RETRY_AFTER_ANNOTATION, Some(&now)).await.unwrap();
    env.wait_for_setup(&gateway, FIRST).await.unwrap();
    let jobs = env.jobs_of(&gateway).await.unwrap();
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0].annotations()[names::ATTEMPT_ANNOTATION], "2");
    env.wait_for_primary(&gateway).await.unwrap();
}

#[tokio::test]
async fn defect_17_one_controller_makes_each_write_once() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some(FIRST)).await.unwrap();
    let natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_primary(&gateway).await.unwrap();
    env.reconciles(&natgw, 2).await.unwrap();
    let node = format!("PATCH /api/v1/nodes/{}", gateway.name);
    let writes: Vec<String> =
        env.accepted_writes().iter().map(|write| format!("{} {}", write.method, write.path)).collect();
    assert_eq!(
        writes,
        [
            node.clone(),
            format!("POST /apis/batch/v1/namespaces/{}/jobs", env.namespace),
            node.clone(),
            format!("POST /networks/{}/actions/add_route", env.network),
            node,
        ],
        "the marker, the Job, the annotation, the route, the role"
    );
}

#[tokio::test]
async fn defect_21_jobs_belong_to_their_node_without_blocking_its_deletion() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some(FIRST)).await.unwrap();
    let _natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_primary(&gateway).await.unwrap();
    let owners = env.jobs_of(&gateway).await.unwrap()[0].owner_references().to_vec();
    assert_eq!(owners.len(), 1);
    assert_eq!((owners[0].kind.as_str(), owners[0].name.as_str()), ("Node", gateway.name.as_str()));
    assert_eq!(owners[0].block_owner_deletion, None);
    gateway.node.remove().await.unwrap();
    env.wait("the Job to go with its Node", || async { Ok(env.jobs().await?.is_empty()) }).await.unwrap();
}

#[tokio::test]
async fn defect_22_the_jobs_pod_needs_a_privileged_namespace_and_is_refused_elsewhere() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some(FIRST)).await.unwrap();
    gateway.hang("setup", true);
    let _natgw = env.natgw("").unwrap().start().unwrap();
    let template =
        env.wait_for_job(&gateway, "setup:198.51.100.1").await.unwrap().spec.unwrap().template.spec;
    let pod = Pod {
        metadata: kube::api::ObjectMeta { name: Some("probe".into()), ..Default::default() },
        spec: template,
        status: None,
    };
    let namespaces: Api<Namespace> = Api::all(env.client.clone());
    let security = env.control_plane.namespace("security").await.unwrap();
    let admitted = async |level: &str| {
        let label = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}});
        namespaces.patch(&security, &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        Api::<Pod>::namespaced(env.client.clone(), &security).create(&dry_run, &pod).await
    };
    admitted("privileged").await.unwrap();
    // The admission plugin learns of a namespace's label through its own cache, which a new namespace every time would never reach.
    let refusal = until("the refusal of a privileged pod", async || match admitted("restricted").await {
        Err(kube::Error::Api(status)) => Ok(Some(status.message)),
        other => {
            other?;
            Ok(None)
        }
    })
    .await
    .unwrap();
    assert!(refusal.contains("PodSecurity") && refusal.contains("privileged"), "{refusal}");
}

#[tokio::test]
async fn defect_19_route_leaves_a_node_that_does_not_report_although_the_deletion_of_jobs_hangs() {
    let env = TestEnv::start().await.unwrap();
    let primary = env.node(Some(FIRST)).await.unwrap();
    let natgw = env.natgw("").unwrap().start().unwrap();
    env.wait_for_primary(&primary).await.unwrap();
    let second = env.node(Some(SECOND)).await.unwrap();
    let stuck = env.node(Some("198.51.100.3")).await.unwrap();
    stuck.hang("setup", true);
    env.wait_for_setup(&second, SECOND).await.unwrap();
    stuck.wait_for_pod("setup:198.51.100.3").await.unwrap();

    // Two machines lose their power: the primary, and one whose setup has to be taken back just then.
    primary.node.silence().await;
    stuck.node.silence().await;
    stuck.node.label(FLOATING_IP_LABEL, None).await.unwrap();
    env.wait("the primary to be NotReady", || async {
        let conditions = env.get(&primary.name).await?.status.unwrap().conditions.unwrap();
        Ok(conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status != "True"))
    })
    .await
    .unwrap();
    env.wait_for_primary(&second).await.unwrap();
    env.wait_for_event("Node", &second.name, "GatewayNotReady").await.unwrap();
    let hanging = env.jobs_of(&stuck).await.unwrap();
    assert_eq!(hanging.len(), 1);
    assert!(hanging[0].metadata.deletion_timestamp.is_some(), "its deletion still hangs");
    assert_eq!(env.pod_api().list(&ListParams::default()).await.unwrap().items.len(), 3);
    let errors = natgw.metrics().await.unwrap().sum("controller_runtime_reconcile_errors_total", &[]);
    assert_eq!(errors, Some(0.0));
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn defect_31_a_changed_environment_is_rolled_out_and_the_primary_comes_last() {
    let env = TestEnv::start().await.unwrap();
    let (natgw, first, second) = pair(&env, "").await;
    stop(&natgw).await;

    first.hang("setup", true);
    let _natgw = env.natgw("jobs: {env: {SNAT_SOURCES: 10.0.0.0/16}}").unwrap().start().unwrap();
    // The first one hangs, so that this is seen: the other one is set up again, has the traffic, and only then the first one follows.
    let pod = first.wait_for_pod("setup:198.51.100.1").await.unwrap();
    env.wait_for_primary(&second).await.unwrap();
    assert_eq!(second.tasks(), ["setup:198.51.100.2"; 2]);
    env.wait_for_event("Node", &second.name, "GatewayOutdated").await.unwrap();
    first.node.finish(&pod, 0).unwrap();
    env.wait_for_setup(&first, FIRST).await.unwrap();
    assert_eq!(first.tasks(), ["setup:198.51.100.1"; 2]);
    env.wait_for_event("Node", &first.name, "SetupChanged").await.unwrap();
    env.wait_for_primary(&second).await.unwrap();
}

#[tokio::test]
async fn a_verification_that_finds_a_difference_moves_the_route_and_sets_the_gateway_up_again() {
    let env = TestEnv::start().await.unwrap();
    let (natgw, first, second) = pair(&env, "").await;
    stop(&natgw).await;
    for gateway in [&first, &second] {
        gateway.hang("verify", true);
    }
    // A gateway is verified an interval after the end of its last Job, or at once if there is none.
    let (delete, all) = (DeleteParams::background(), ListParams::default());
    let _ = env.job_api().delete_collection(&delete, &all).await.unwrap();
    let _natgw = env.natgw("verification: {enabled: true, interval: 1m}").unwrap().start().unwrap();
    let pod = first.wait_for_pod("verify:198.51.100.1").await.unwrap();
    second.wait_for_pod("verify:198.51.100.2").await.unwrap();
    env.wait_for_primary(&first).await.unwrap();
    first.hang("setup", true);
    first.node.finish(&pod, 5).unwrap();
    let setup = first.wait_for_pod("setup:198.51.100.1").await.unwrap();
    env.wait_for_primary(&second).await.unwrap();
    env.wait_for_event("Node", &second.name, "GatewayDiffers").await.unwrap();
    env.wait_for_event("Node", &first.name, "SetupDiffers").await.unwrap();
    first.node.finish(&setup, 0).unwrap();
    env.wait_for_setup(&first, FIRST).await.unwrap();
    assert_eq!(first.tasks()[..3], ["setup:198.51.100.1", "verify:198.51.100.1", "setup:198.51.100.1"]);
    env.wait_for_primary(&second).await.unwrap();
}
