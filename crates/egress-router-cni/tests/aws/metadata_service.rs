//! The metadata service expires tokens, is busy, is switched off, is not there.

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
fn a_token_that_expires_is_taken_anew() {
    let (env, _) = TestEnv::new();
    env.a.metadata.behaviour.lock().unwrap().uses = Some(2);
    let acquired = env.a.add().unwrap();
    assert_eq!(env.snapshot(), Snapshot::only(&env.a, &acquired));
}

#[test]
fn a_service_that_is_busy_is_waited_for() {
    for fault in [Some(503), Some(500), Some(429), None] {
        for skip in 0..4 {
            let (env, _) = TestEnv::new();
            // A token that is refused at once costs a request; so faults meet the token, the first answer and later ones.
            env.a.metadata.behaviour.lock().unwrap().faults = vec![fault; 1 + skip % 2];
            env.a.metadata.behaviour.lock().unwrap().uses = Some(1 + u32::try_from(skip).unwrap());
            env.a.add().unwrap();
        }
    }
}

#[test]
fn a_service_that_refuses_every_token_is_given_up() {
    let (env, _) = TestEnv::new();
    env.a.metadata.behaviour.lock().unwrap().uses = Some(0);
    env.a.retry.set(Duration::from_secs(2));
    let error = env.a.add().unwrap_err();
    assert_eq!(error.code, Code::TryAgain);
    assert!(error.details.contains("tokens"), "{error}");
}

#[test]
fn a_service_that_is_switched_off_is_said() {
    let (env, _) = TestEnv::new();
    env.a.metadata.behaviour.lock().unwrap().disabled = true;
    let start = Instant::now();
    let error = env.a.add().unwrap_err();
    assert_eq!(error.code, Code::Aws);
    assert!(error.message.contains("HttpEndpoint"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(10), "it was asked again, in vain");
}

#[test]
fn a_service_that_is_not_there_is_to_be_tried_again() {
    let (mut env, _) = TestEnv::new();
    env.a.settings.metadata_endpoint = Some("http://127.0.0.1:9".into());
    env.a.retry.set(Duration::from_millis(300));
    let error = env.a.add().unwrap_err();
    assert_eq!(error.code, Code::TryAgain);
    assert!(error.message.contains("127.0.0.1:9"), "{error}");
}

#[test]
fn an_instance_without_a_role_is_said() {
    let (env, _) = TestEnv::new();
    env.a.metadata.behaviour.lock().unwrap().no_role = true;
    let error = env.a.add().unwrap_err();
    assert_eq!(error.code, Code::Aws);
    assert!(error.message.contains("instance profile"), "{error}");
}

#[test]
fn a_del_without_the_service_keeps_what_is_written_down() {
    let (env, _) = TestEnv::new();
    env.a.add().unwrap();
    env.a.metadata.behaviour.lock().unwrap().disabled = true;
    env.a.del().unwrap_err();
    assert!(env.a.state().is_some());
    env.a.metadata.behaviour.lock().unwrap().disabled = false;
    env.a.del().unwrap();
    assert_eq!(env.snapshot(), Snapshot::clean());
}
