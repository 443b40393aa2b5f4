//! The metadata service expires tokens, is busy, is disabled, is unreachable.

use std::time::{Duration, Instant};

use egress_router_cni::cni::Code;

use super::node::{Snapshot, TestEnv};

#[test]
fn one_token_serves_a_call() {
    let (env, _) = TestEnv::new();
    env.a.add().unwrap();
    let behaviour = env.a.metadata.behaviour.lock().unwrap();
    assert_eq!(
        behaviour.asked.iter().filter(|asked| asked.starts_with("PUT")).count(),
        1,
        "{:?}",
        behaviour.asked
    );
}

#[test]
fn an_expired_token_is_renewed() {
    let (env, _) = TestEnv::new();
    env.a.metadata.behaviour.lock().unwrap().uses = Some(2);
    let acquired = env.a.add().unwrap();
    assert_eq!(env.snapshot(), Snapshot::only(&env.a, &acquired));
}

#[test]
fn requests_to_a_busy_service_are_retried() {
    for fault in [Some(503), Some(500), Some(429), None] {
        for skip in 0..4 {
            let (env, _) = TestEnv::new();
            // A refused token costs a request, so the faults affect the token, the first response and later ones.
            env.a.metadata.behaviour.lock().unwrap().faults = vec![fault; 1 + skip % 2];
            env.a.metadata.behaviour.lock().unwrap().uses = Some(1 + u32::try_from(skip).unwrap());
            env.a.add().unwrap();
        }
    }
}

#[test]
fn an_error_is_returned_if_every_token_is_refused() {
    let (env, _) = TestEnv::new();
    env.a.metadata.behaviour.lock().unwrap().uses = Some(0);
    env.a.retry.set(Duration::from_secs(2));
    let error = env.a.add().unwrap_err();
    assert_eq!(error.code, Code::TryAgain);
    assert!(error.details.contains("tokens"), "{error}");
}

#[test]
fn a_disabled_service_is_reported() {
    let (env, _) = TestEnv::new();
    env.a.metadata.behaviour.lock().unwrap().disabled = true;
    env.a.retry.set(Duration::from_secs(600));
    let start = Instant::now();
    let error = env.a.add().unwrap_err();
    assert_eq!(error.code, Code::Aws);
    assert!(error.message.contains("HttpEndpoint"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(300), "a permanent failure is not retried");
}

#[test]
fn an_unreachable_service_has_code_11() {
    let (mut env, _) = TestEnv::new();
    env.a.settings.metadata_endpoint = Some("http://127.0.0.1:9".into());
    env.a.retry.set(Duration::from_millis(300));
    let error = env.a.add().unwrap_err();
    assert_eq!(error.code, Code::TryAgain);
    assert!(error.message.contains("127.0.0.1:9"), "{error}");
}

#[test]
fn an_instance_without_a_role_is_reported() {
    let (env, _) = TestEnv::new();
    env.a.metadata.behaviour.lock().unwrap().no_role = true;
    let error = env.a.add().unwrap_err();
    assert_eq!(error.code, Code::Aws);
    assert!(error.message.contains("instance profile"), "{error}");
}

#[test]
fn a_del_without_the_service_keeps_the_record() {
    let (env, _) = TestEnv::new();
    env.a.add().unwrap();
    env.a.metadata.behaviour.lock().unwrap().disabled = true;
    env.a.del().unwrap_err();
    assert!(env.a.state().is_some());
    env.a.metadata.behaviour.lock().unwrap().disabled = false;
    env.a.del().unwrap();
    assert_eq!(env.snapshot(), Snapshot::clean());
}
