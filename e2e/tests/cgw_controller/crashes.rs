//! A controller that is killed at each of its writes: after it, and in `make test-full` also before it.

use e2e::fault_proxy::{Then, When};
use e2e::sweep::{Slice, Victim};
use e2e::wait::TIMEOUT;
use serde_json::{Value, json};

use super::env::{CLASS, Controller, TestEnv, VIP, wait};

/// Record, ingress, annotations: of both, what a client sees in the end.
async fn state(env: &TestEnv) -> (bool, bool, bool) {
    let service = env.read(&env.x, "a").await;
    let status = service.status.unwrap_or_default().load_balancer.unwrap_or_default();
    let carries = env.annotation(&env.x, "a", "vip").await.is_some();
    (env.record(VIP).await.is_some(), carries, !status.ingress.unwrap_or_default().is_empty())
}

/// Runs a request, kills the controller at its `number`th write, and starts it again. False: it has fewer writes.
async fn stopped(
    env: &TestEnv,
    number: u64,
    when: When,
    (method, path, body): (&str, &str, Option<&Value>),
) -> bool {
    let victim = Victim::default();
    victim.start(&env.launch()).unwrap();
    let controller = Controller::shared(victim.program().unwrap()).await;
    let admin = env.admin().await;
    let killed = victim.clone();
    let fired = env
        .proxy
        .on_write(number, when, move || async move {
            killed.kill().unwrap();
            Then::Cut
        })
        .unwrap();
    let text = body.map(Value::to_string).unwrap_or_default();
    let kind = body.map(|_| "application/json");
    let response = admin.try_raw(controller.api, method, path, kind, text).await;
    let is_stopped = response.is_err();
    if is_stopped {
        fired.wait(TIMEOUT).await.unwrap();
    } else {
        env.proxy.counter().forget_actions();
        victim.kill().unwrap();
    }
    println!("{method} {path} stopped at write {number} {when:?}: {is_stopped}");
    is_stopped
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_is_killed_at_any_write_leaves_nothing_that_a_retry_or_a_repair_does_not_finish() {
    let env = TestEnv::start().await;
    let spec = json!({ "type": "LoadBalancer", "loadBalancerClass": CLASS });
    env.service(&env.x, "a", 80, spec).await;
    let path = format!("/vip/{VIP}/{}/a", env.x);
    let bind = json!({ "vip": VIP, "namespace": env.x, "service": "a" });
    // Both leave the same state behind: a write that was done, and one that was not begun.
    for &when in Slice::chosen("kills of cgw-controller", 2).unwrap().stops() {
        for retries in [true, false] {
            let (mut binds, mut unbinds) = (0, 0);
            // Enough for Events between the writes.
            for number in 1..20 {
                let is_stopped = stopped(&env, number, when, ("POST", "/vip", Some(&bind))).await;
                binds += u64::from(is_stopped);
                let begun = state(&env).await;
                let controller = env.controller().await;
                let admin = env.admin().await;
                if retries || !begun.0 {
                    let code = admin.send(controller.api, "POST", "/vip", Some(bind.clone())).await.code;
                    assert!(matches!(code, 200 | 201), "{code}");
                }
                wait("the bind is complete", async || state(&env).await == (true, true, true)).await;
                drop(controller);
                let was_stopped = stopped(&env, number, when, ("DELETE", &path, None)).await;
                unbinds += u64::from(was_stopped);
                let controller = env.controller().await;
                let begun = env.record(VIP).await.is_none_or(|record| record["unbinding"] == json!(true));
                if retries || !begun {
                    let code = admin.send(controller.api, "DELETE", &path, None).await.code;
                    assert!(matches!(code, 200 | 404), "{code}");
                }
                wait("the unbind is complete", async || state(&env).await == (false, false, false)).await;
                if !is_stopped && !was_stopped {
                    break;
                }
            }
            // Record, annotations, ingress; unbinding, ingress, annotations, record.
            assert!(binds >= 3 && unbinds >= 4, "{binds} {unbinds}");
        }
    }
}
