//! A Job's form.

use super::*;
use crate::config::Settings;
use crate::task::Task;

fn config() -> Config {
    let settings: Settings =
        serde_yaml::from_str("network: lan\njobs: {env: {SNAT_SOURCES: 10.244.0.0/16}}").unwrap();
    Config { namespace: "natgw".into(), ..Config::new(settings).unwrap() }
}

fn node(name: &str) -> NodeRef {
    NodeRef { name: name.into(), uid: "uid".into(), resource_version: "1".into() }
}

fn spec(kind: Kind) -> JobSpec {
    JobSpec {
        name: format!("natgw-{kind}-0123456789"),
        task: Task { kind, ip: std::net::Ipv4Addr::new(198, 51, 100, 7) },
        generation: "0123456789".into(),
        attempt: 1,
        private_ip: Some(std::net::Ipv4Addr::new(10, 0, 0, 2)),
        network_cidr: "10.0.0.0/16".parse().unwrap(),
        network_gateway: std::net::Ipv4Addr::new(10, 0, 0, 1),
    }
}

fn pod_of(job: &Job) -> &PodSpec {
    job.spec.as_ref().unwrap().template.spec.as_ref().unwrap()
}

fn env(job: &Job) -> Vec<String> {
    let env = pod_of(job).containers[0].env.as_ref().unwrap();
    env.iter().map(|variable| format!("{}={}", variable.name, variable.value.as_deref().unwrap())).collect()
}

#[test]
fn defect_10_names_and_labels_stay_in_their_limits_for_any_node() {
    let long = "n".repeat(253);
    for kind in Kind::ALL {
        let job = render(&config(), &node(&long), &spec(kind));
        assert!(job.metadata.name.as_ref().unwrap().len() <= 63);
        for (key, value) in job.metadata.labels.as_ref().unwrap() {
            assert!(value.len() <= 63, "{key}");
        }
        assert_eq!(job.metadata.annotations.as_ref().unwrap()[names::NODE_NAME_ANNOTATION], long);
    }
}

#[test]
fn defect_11_one_jobs_environment_does_not_leak_into_the_next() {
    let config = config();
    let first = render(&config, &node("a"), &spec(Kind::Setup));
    assert_eq!(
        env(&first),
        [
            "FLOATING_IP=198.51.100.7",
            "JOB_TYPE=setup",
            "NODE_NAME=a",
            "PRIVATE_IP=10.0.0.2",
            "NETWORK_CIDR=10.0.0.0/16",
            "NETWORK_GATEWAY=10.0.0.1",
            "SNAT_SOURCES=10.244.0.0/16",
        ]
    );
    assert_eq!(render(&config, &node("a"), &spec(Kind::Setup)), first);
    assert!(
        !env(&render(&config, &node("b"), &spec(Kind::ClientSetup)))
            .iter()
            .any(|one| one.starts_with("FLOATING_IP"))
    );
}

#[test]
fn defect_15_a_job_that_gave_up_keeps_its_logs_and_never_runs_twice_at_once() {
    let job = render(&config(), &node("a"), &spec(Kind::Setup));
    let spec = job.spec.as_ref().unwrap();
    assert_eq!(pod_of(&job).restart_policy.as_deref(), Some("Never"));
    assert_eq!((spec.backoff_limit, spec.active_deadline_seconds), (Some(3), Some(300)));
    assert_eq!(spec.pod_replacement_policy.as_deref(), Some("Failed"));
    assert_eq!(spec.ttl_seconds_after_finished, Some(3600));
}

#[test]
fn defect_21_the_owner_reference_needs_no_rights_on_finalizers() {
    let job = render(&config(), &node("a"), &spec(Kind::Setup));
    let owner = &job.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(
        (owner.kind.as_str(), owner.controller, owner.block_owner_deletion),
        ("Node", Some(true), None)
    );
}

#[test]
fn the_script_runs_as_root_of_the_node_wherever_the_scheduler_would_not() {
    let job = render(&config(), &node("a"), &spec(Kind::Teardown));
    let pod = pod_of(&job);
    assert_eq!(pod.node_name.as_deref(), Some("a"));
    assert_eq!(pod.tolerations.as_ref().unwrap()[0].operator.as_deref(), Some("Exists"));
    assert_eq!((pod.host_network, pod.automount_service_account_token), (Some(true), Some(false)));
    let security = pod.containers[0].security_context.as_ref().unwrap();
    assert_eq!(
        (security.privileged, security.run_as_user),
        (Some(true), Some(0)),
        "whatever the image's user is"
    );
    let command = pod.containers[0].command.as_ref().unwrap();
    assert_eq!(command[..4], ["/bin/chroot", "/host", "/bin/bash", "-c"]);
    assert_eq!(expanded(&command[4]), config().jobs.teardown_script);
    assert_eq!(pod.volumes.as_ref().unwrap()[0].host_path.as_ref().unwrap().path, "/");
}

/// The command after the kubelet's expansion: `$$` becomes a dollar sign. No single dollar sign may be left, because
/// `$(NAME)` would be a variable.
fn expanded(command: &str) -> String {
    let whole = command.replace("$$", "\0");
    assert!(!whole.contains('$'), "the kubelet would look for a variable");
    whole.replace('\0', "$")
}

#[test]
fn a_verification_ends_with_the_exit_code_of_a_difference_and_all_other_jobs_are_retried() {
    for kind in Kind::ALL {
        let job = render(&config(), &node("a"), &spec(kind));
        let policy = job.spec.as_ref().unwrap().pod_failure_policy.as_ref();
        assert_eq!(policy.is_some(), kind == Kind::Verify);
        let codes = |policy: &PodFailurePolicy| policy.rules[0].on_exit_codes.clone().unwrap().values;
        assert!(policy.is_none_or(|policy| codes(policy) == [5] && policy.rules[0].action == "FailJob"));
        // podFailurePolicy needs it.
        assert_eq!(pod_of(&job).restart_policy.as_deref(), Some("Never"));
        let is_for_gateways = !matches!(kind, Kind::ClientSetup | Kind::ClientTeardown);
        assert_eq!(env(&job).iter().any(|line| line.starts_with("FLOATING_IP=")), is_for_gateways);
        assert!(env(&job).contains(&format!("JOB_TYPE={kind}")));
    }
}
