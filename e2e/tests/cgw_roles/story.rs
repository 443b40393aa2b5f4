//! One life of the roles: registration, bindings, a keepalived that is killed, annotations that no binding admits, a keeper that is lost.

use std::collections::BTreeMap;

use e2e::fault_proxy::Recorded;
use e2e::natgw::run;
use e2e::program::{Launch, Program, metrics};
use e2e::wait::until;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::env::{ADMIN, OPERATOR, OWN, TENANT, TestEnv, VIP};
use super::rights;

/// Requests and metrics of the story.
pub struct Recording {
    /// Requests to the API server, by account.
    pub requests: BTreeMap<&'static str, Vec<Recorded>>,
    /// The objects of the manifests.
    pub manifests: Vec<Value>,
    /// `/metrics` of each role.
    pub metrics: BTreeMap<&'static str, String>,
}

pub async fn recording() -> &'static Recording {
    static RECORDING: OnceCell<Recording> = OnceCell::const_new();
    RECORDING.get_or_init(record).await
}

fn requests(env: &TestEnv) -> BTreeMap<&'static str, Vec<Recorded>> {
    env.proxies.iter().map(|(account, proxy)| (*account, proxy.requests())).collect()
}

/// Waits for the sum of a metric of a role.
async fn wait_metric(
    env: &TestEnv,
    role: &str,
    (metric, labels): (&str, &[(&str, &str)]),
    is: impl Fn(f64) -> bool,
) {
    until(&format!("{metric}{labels:?} of {role}"), async || {
        // Its admin server may not listen yet.
        let Ok(samples) = metrics(env.admin[role]).await else { return Ok(None) };
        Ok(samples.sum(metric, labels).is_some_and(&is).then_some(()))
    })
    .await
    .unwrap();
}

/// Runs a command until it succeeds.
async fn succeeds(launch: &Launch, args: &[&str]) -> String {
    until(&format!("ctl {args:?} to succeed"), async || {
        let (code, text) = run(&launch.clone().args(args.iter().copied())).await?;
        Ok((code == 0).then_some(text))
    })
    .await
    .unwrap()
}

async fn record() -> Recording {
    let env = TestEnv::start().await;
    let (controller, agent) = (env.start_controller().await, env.start_agent().await);
    let keeper = env.start_keeper().await;
    let admin = env.ctl("cgw-admin").await;
    wait_metric(&env, "keeper", ("cgw_keeper_registered", &[]), |is| is == 1.0).await;

    bindings(&env, &admin).await;
    // The same Events once more within minutes make series of them.
    let file = env.file("run").join("keepalived.pid");
    let pid: i32 = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    let promotions = ("cgw_keeper_transitions_total", &[("state", "MASTER")][..]);
    wait_metric(&env, "keeper", promotions, |count| count >= 2.0).await;
    let notifications = ("cgw_keeper_notification_seconds_count", &[][..]);
    wait_metric(&env, "keeper", notifications, |count| count >= 2.0).await;
    for _ in 0..2 {
        stale_annotations(&env, &controller).await;
    }
    operator(&env).await;
    lost_keeper(&env).await;
    // Events are written after what they report.
    let all_used = async || Ok(rights::unused(&env.manifests, &requests(&env)).is_empty().then_some(()));
    // The test of the permissions says which ones are not.
    let _all_used = until("the use of each permission", all_used).await;

    let mut texts = BTreeMap::new();
    for (role, _) in ADMIN {
        texts.insert(role, text(&env, role).await);
    }
    for (role, program) in [("keeper", keeper), ("agent", agent), ("controller", controller)] {
        program.signal(Signal::SIGTERM).unwrap();
        assert_eq!(program.wait_exit().await.unwrap().code(), Some(0), "{role}");
    }
    assert!(env.annotations(OWN, "cgw-hosts").await.keys().all(|key| !key.contains("/host.")));
    Recording { requests: requests(&env), manifests: env.manifests.clone(), metrics: texts }
}

async fn text(env: &TestEnv, role: &str) -> String {
    let client = hyper_util::client::legacy::Client::builder(hyper_util::rt::TokioExecutor::new())
        .build_http::<http_body_util::Empty<bytes::Bytes>>();
    let uri = format!("http://{}/metrics", env.admin[role]).parse().unwrap();
    let body = client.get(uri).await.unwrap().into_body();
    let bytes = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Each call of the HTTP API, and what the agent makes of it.
async fn bindings(env: &TestEnv, admin: &Launch) {
    for binding in
        [&["bind", VIP, TENANT, "web"][..], &["unbind", VIP, TENANT, "web"], &["bind", VIP, TENANT]]
    {
        succeeds(admin, binding).await;
    }
    succeeds(admin, &["bind", VIP, TENANT, "web"]).await;
    wait_metric(env, "agent", ("cgw_agent_vips", &[("gateway", "local")]), |vips| vips == 1.0).await;
    succeeds(admin, &["notify", VIP]).await;
    assert!(succeeds(admin, &["get", VIP]).await.contains("10.9.0.1"));
    // The controller's own account may call, too: `kubectl exec`.
    assert!(succeeds(&env.ctl("cgw-controller").await, &["list"]).await.contains(VIP));
    assert!(env.get("cgw-admin", "/openapi.json").await.contains("/master_notify"));
}

/// Annotations that no binding admits: the agent reports them, and the controller removes them.
async fn stale_annotations(env: &TestEnv, controller: &Program) {
    const KEY: &str = "cgw-controller.perimeter.dev/vip";
    // Paused until the agent has reported the problem: the controller would remove the annotations after its delay.
    controller.pause().unwrap();
    env.annotate(TENANT, "orphan", json!({ KEY: "10.9.0.202" })).await;
    let problem = ("cgw_agent_problems", &[("reason", "NotAdmitted")][..]);
    wait_metric(env, "agent", problem, |count| count == 1.0).await;
    controller.resume().unwrap();
    until("the removal of annotations that no binding admits", async || {
        Ok((!env.annotations(TENANT, "orphan").await.contains_key(KEY)).then_some(()))
    })
    .await
    .unwrap();
    wait_metric(env, "agent", problem, |count| count == 0.0).await;
}

/// The entry of a keeper without a Node and a Pod.
async fn lost_keeper(env: &TestEnv) {
    const KEY: &str = "cgw-controller.perimeter.dev/host.10.9.0.9-63051";
    let entry = json!({ "v": 1, "ip": "10.9.0.9", "port": 63051, "node": "g9", "vrid": 51, "vips": [VIP], "boot": "b" });
    env.annotate(OWN, "cgw-hosts", json!({ KEY: entry.to_string() })).await;
    until("the removal of the entry of a lost keeper", async || {
        Ok((!env.annotations(OWN, "cgw-hosts").await.contains_key(KEY)).then_some(()))
    })
    .await
    .unwrap();
}

/// The Service has no endpoints, so the API server's proxy reaches no controller. The permissions are checked before.
async fn operator(env: &TestEnv) {
    let ctl = env.operator().await;
    for args in [&["list"][..], &["bind", VIP, TENANT, "web"], &["unbind", VIP, TENANT, "web"]] {
        let (code, text) = run(&ctl.clone().args(args.iter().copied())).await.unwrap();
        assert!(code != 0 && text.contains("at the controller failed"), "{args:?}: {code}: {text}");
    }
    let explained = succeeds(&ctl, &["trace", "web-1", "-n", TENANT]).await;
    assert!(explained.contains(VIP), "{explained}");
    assert!(env.proxies[OPERATOR].requests().iter().all(|request| request.status != Some(403)));
}
