//! Flips of a gateway, status servers, repairs, and the steady state.

use serde_json::json;

use super::env::{Controller, FIRST, OTHER, PREFIX, SECOND, TestEnv, VIP, mac, wait};

fn notify(vips: &[&str], node: &str, since: Option<f64>) -> serde_json::Value {
    let mut notify = json!({ "vips": vips, "node_ip": node, "tun_mac": mac(node) });
    if let Some(since) = since {
        notify["since"] = json!(since);
    }
    notify
}

#[tokio::test]
async fn a_notification_moves_every_service_of_its_vips_and_an_older_one_none() {
    const SERVICES: u16 = 60;
    let env = TestEnv::start().await;
    let x = env.x.clone();
    env.service(&x, "alone", 80, json!({})).await;
    for number in 0..SERVICES {
        env.service(&x, &format!("s{number}"), 1000 + number, json!({})).await;
    }
    let controller = Controller::of(env.launch_with_resync("1h").start().unwrap()).await;
    let (api, admin) = (controller.api, env.admin().await);
    let body = json!({ "vip": VIP, "namespace": x });
    assert_eq!(admin.send(api, "POST", "/vip", Some(body)).await.code, 201);
    for number in 0..SERVICES {
        let body = json!({ "vip": VIP, "namespace": x, "service": format!("s{number}") });
        assert_eq!(admin.send(api, "POST", "/vip", Some(body)).await.code, 200);
    }
    let body = json!({ "vip": OTHER, "namespace": x, "service": "alone" });
    assert_eq!(admin.send(api, "POST", "/vip", Some(body)).await.code, 201);
    let (first, second) = (env.keeper(FIRST).await, env.keeper(SECOND).await);
    let post = async |caller: &super::env::Caller, body| {
        caller.send(api, "POST", "/master_notify", Some(body)).await
    };

    // A flip; an unbound VIP is ignored. No keeper responds: the poll that follows the bindings moves nothing before the notification.
    env.keepers[0].reports(None);
    env.keepers[1].reports(None);
    let moved = post(&second, notify(&[VIP, OTHER, "192.168.50.230"], SECOND, Some(200.5))).await;
    assert_eq!(moved.code, 200, "{moved:?}");
    assert_eq!(moved.body["updated"].as_array().unwrap().len(), usize::from(SERVICES) + 1, "{moved:?}");
    for name in ["alone", "s0", &format!("s{}", SERVICES - 1)] {
        assert_eq!(env.gateway(&x, name).await, (SECOND.to_owned(), "200500".to_owned()));
        assert_eq!(env.annotation(&x, name, "tun-mac").await, Some(mac(SECOND)));
    }
    env.keepers[1].reports(Some(("MASTER", 200.5)));
    // Once more: nothing to write. Late: ignored.
    let before = env.changes().len();
    assert_eq!(post(&second, notify(&[VIP, OTHER], SECOND, Some(200.5))).await.body["updated"], json!(null));
    let late = post(&first, notify(&[VIP], FIRST, Some(150.0))).await;
    assert_eq!((late.code, &late.body["updated"]), (200, &json!(null)), "{late:?}");
    assert_eq!(env.changes().len(), before, "{:?}", env.changes().split_off(before));
    // The clock of the first gateway is late, and the second one is not MASTER any more.
    env.keepers[0].reports(Some(("MASTER", 150.0)));
    env.keepers[1].reports(Some(("FAULT", 201.0)));
    assert_eq!(post(&first, notify(&[VIP, OTHER], FIRST, Some(150.0))).await.code, 200);
    assert_eq!(env.gateway(&x, "alone").await, (FIRST.to_owned(), "200501".to_owned()));
    // The seed's notification has no time: the status servers decide.
    env.keepers[0].reports(Some(("BACKUP", 300.0)));
    env.keepers[1].reports(Some(("MASTER", 300.0)));
    assert_eq!(post(&second, notify(&[VIP, OTHER], SECOND, None)).await.code, 200);
    assert_eq!(env.gateway(&x, "s0").await, (SECOND.to_owned(), "300000".to_owned()));

    // A patch that fails is a 5xx, and the repetition completes it.
    let matcher = e2e::fault_proxy::Matcher::writes().path("/api/v1/namespaces/*/services/s1");
    let reply = e2e::fault_proxy::Reply::status(http::StatusCode::FORBIDDEN);
    let rule = env.proxy.rule(matcher, e2e::fault_proxy::Fault::Reject(reply));
    env.keepers[1].reports(None);
    env.keepers[0].reports(Some(("MASTER", 400.0)));
    let partly = post(&first, notify(&[VIP, OTHER], FIRST, Some(400.0))).await;
    assert_eq!((partly.code, &partly.body["failed"]), (503, &json!([format!("{x}/s1")])), "{partly:?}");
    env.proxy.remove(rule);
    assert_eq!(post(&first, notify(&[VIP, OTHER], FIRST, Some(400.0))).await.code, 200);
    assert_eq!(env.gateway(&x, "s1").await, (FIRST.to_owned(), "400000".to_owned()));
    let metrics = controller.program.get("/metrics").await.unwrap().1;
    assert!(metrics.contains("cgw_controller_master_notify_seconds_count 7"), "{metrics}");

    // The end of a split brain: the newer one of two MASTERs becomes BACKUP, and nothing changes for the older one.
    env.keepers[1].reports(Some(("MASTER", 500.0)));
    assert_eq!(post(&second, notify(&[VIP, OTHER], SECOND, Some(500.0))).await.code, 200);
    assert_eq!(env.gateway(&x, "s0").await, (SECOND.to_owned(), "500000".to_owned()));
    env.keepers[1].reports(Some(("BACKUP", 600.0)));
    assert_eq!(post(&second, notify(&[VIP, OTHER], SECOND, None)).await.code, 200);
    for name in ["alone", "s0"] {
        assert_eq!(env.gateway(&x, name).await, (FIRST.to_owned(), "500001".to_owned()));
    }
}

#[tokio::test]
async fn status_servers_are_found_once_and_again_after_a_registration() {
    let env = TestEnv::start().await;
    let x = env.x.clone();
    env.service(&x, "a", 80, json!({})).await;
    let controller = env.controller().await;
    let admin = env.admin().await;
    let body = json!({ "vip": VIP, "namespace": x, "service": "a" });
    let bind = async || admin.send(controller.api, "POST", "/vip", Some(body.clone())).await.code;
    let reads = || {
        let requests = env.proxy.requests();
        requests
            .iter()
            .filter(|one| one.path.ends_with("/services/cgw-hosts") && one.method == http::Method::GET)
            .count()
    };
    let providers = || env.changes().iter().filter(|one| one.path.ends_with("/cgw-providers")).count();
    assert_eq!(bind().await, 201);
    assert_eq!((reads(), providers()), (1, 1), "a miss reads hosts and writes providers");
    let entry = env.annotation(&env.own, "cgw-providers", &format!("provider.{VIP}")).await.unwrap();
    let entry: serde_json::Value = serde_json::from_str(&entry).unwrap();
    let endpoints = [0, 1].map(|one: usize| format!("{}:{}", env.keepers[one].node, env.keepers[one].port));
    assert_eq!(entry["endpoints"], json!(endpoints));
    assert_eq!(bind().await, 200);
    assert_eq!((reads(), providers()), (1, 1), "a hit reads none");
    // Another version of hosts.
    env.register(1, &["192.168.50.210"]).await;
    wait("the entry is rebuilt", async || bind().await == 200 && providers() == 2).await;
    let entry = env.annotation(&env.own, "cgw-providers", &format!("provider.{VIP}")).await.unwrap();
    assert!(!entry.contains(SECOND), "{entry}");
}

#[tokio::test]
async fn what_other_clients_and_crashes_leave_is_repaired_and_the_steady_state_writes_nothing() {
    let env = TestEnv::start().await;
    let (x, y) = (env.x.clone(), env.y.clone());
    env.service(&x, "a", 80, json!({})).await;
    env.service(&x, "b", 81, json!({})).await;
    env.service(&y, "orphan", 80, json!({})).await;
    let controllers = [env.controller().await, env.controller().await];
    let admin = env.admin().await;
    let body = json!({ "vip": VIP, "namespace": x, "service": "a" });
    assert_eq!(admin.send(controllers[0].api, "POST", "/vip", Some(body)).await.code, 201);

    // A Service that no binding admits.
    env.annotate(&y, "orphan", json!({
        format!("{PREFIX}/vip"): VIP, format!("{PREFIX}/tun-id"): "0x00000001", format!("{PREFIX}/node-ip"): FIRST,
        format!("{PREFIX}/tun-mac"): mac(FIRST), format!("{PREFIX}/epoch"): "5",
    })).await;
    wait("the orphan is unbound", async || env.annotation(&y, "orphan", "vip").await.is_none()).await;
    assert_eq!(env.annotation(&y, "orphan", "epoch").await.as_deref(), Some("5"));
    // A record whose Service lost its annotations.
    env.annotate(&x, "a", json!({ format!("{PREFIX}/vip"): null })).await;
    wait("it is bound again", async || env.annotation(&x, "a", "vip").await.as_deref() == Some(VIP)).await;
    // A tenant that writes another gateway, which is older.
    env.annotate(&x, "a", json!({ format!("{PREFIX}/node-ip"): "10.0.0.1", format!("{PREFIX}/epoch"): "7" }))
        .await;
    wait("the gateway is repaired", async || env.gateway(&x, "a").await.0 == FIRST).await;
    // A flip without a notification.
    env.keepers[0].reports(Some(("BACKUP", 300.0)));
    env.keepers[1].reports(Some(("MASTER", 300.0)));
    wait("the poll finds the master", async || {
        env.gateway(&x, "a").await == (SECOND.to_owned(), "300000".to_owned())
    })
    .await;
    // A record for a Service that does not exist yet.
    let record =
        json!({ "v": 1, "scope": "service", "namespace": x, "service": "later", "tunId": "0x00000009" })
            .to_string();
    env.annotate(&env.own, "cgw-binds", json!({ format!("{PREFIX}/bind.{OTHER}"): record })).await;
    let problem = r#"cgw_controller_problems{reason="ServiceMissing"} 1"#;
    wait("the problem is counted", async || {
        controllers[0].program.get("/metrics").await.unwrap().1.contains(problem)
    })
    .await;
    env.service(&x, "later", 90, json!({})).await;
    wait("the Service is bound", async || env.annotation(&x, "later", "vip").await.as_deref() == Some(OTHER))
        .await;
    assert_eq!(env.annotation(&x, "later", "tun-id").await.as_deref(), Some("0x00000009"));
    // An unbind that was stopped after its first write.
    let record = json!({ "v": 1, "scope": "service", "namespace": x, "service": "later", "tunId": "0x00000009", "unbinding": true });
    env.annotate(&env.own, "cgw-binds", json!({ format!("{PREFIX}/bind.{OTHER}"): record.to_string() }))
        .await;
    wait("the unbind is completed", async || {
        env.record(OTHER).await.is_none() && env.annotation(&x, "later", "vip").await.is_none()
    })
    .await;

    // Both controllers repair, and the write of the slower one is refused after the other one has finished. From then on, several polls
    // write nothing.
    wait("polls without a write", async || {
        let (before, polled) = (env.changes().len(), *env.keepers[1].polls.lock().unwrap());
        wait("polls", async || *env.keepers[1].polls.lock().unwrap() >= polled + 6).await;
        let written = env.changes().split_off(before);
        if !written.is_empty() {
            println!("{written:?}");
        }
        written.is_empty()
    })
    .await;
}
