//! Requests that are refused, and the description of the API.

use serde_json::json;

use super::env::{FIRST, TestEnv, VIP};

#[tokio::test]
async fn callers_are_authenticated_and_authorized() {
    let env = TestEnv::start().await;
    let controller = env.controller().await;
    let api = controller.api;
    let audience = "cgw-controller.perimeter.dev";
    let bind = json!({ "vip": VIP, "namespace": env.x });

    let anonymous = env.caller(None, None);
    for path in ["/vips", "/openapi.json", "/other"] {
        assert_eq!(anonymous.send(api, "GET", path, None).await.code, 401, "{path}");
    }
    let wrong = env.caller(Some("guess".to_owned()), None);
    assert_eq!(wrong.send(api, "POST", "/vip", Some(bind.clone())).await.code, 401);
    // A token for the API server is not one for the controller.
    let audience_of_kubernetes = env.control_plane.service_account_token(&env.own, "admin").await.unwrap();
    let other = env.caller(Some(audience_of_kubernetes), None);
    assert_eq!(other.send(api, "GET", "/vips", None).await.code, 401);
    // Without a right.
    let tenant = env.caller(Some(env.token("tenant", audience).await), None);
    for (method, path, body) in [
        ("POST", "/vip", Some(bind.clone())),
        ("GET", "/vips", None),
        ("DELETE", "/vip/192.168.50.201/a", None),
    ] {
        assert_eq!(tenant.send(api, method, path, body).await.code, 403, "{path}");
    }
    let keeper = env.keeper(FIRST).await;
    assert_eq!(keeper.send(api, "POST", "/vip", Some(bind.clone())).await.code, 403);
    assert_eq!(env.record(VIP).await, None);

    // Notifications: the keepers' account, from the address of a registered keeper, for VIPs that it serves.
    let notify = |vip: &str, node: &str| json!({ "vips": [vip], "node_ip": node, "tun_mac": super::env::mac(FIRST), "since": 200.0 });
    assert_eq!(keeper.send(api, "POST", "/master_notify", Some(notify(VIP, FIRST))).await.code, 200);
    let elsewhere = env.keeper("127.0.0.99").await;
    assert_eq!(elsewhere.send(api, "POST", "/master_notify", Some(notify(VIP, FIRST))).await.code, 403);
    assert_eq!(
        keeper.send(api, "POST", "/master_notify", Some(notify(VIP, super::env::SECOND))).await.code,
        403
    );
    assert_eq!(
        keeper.send(api, "POST", "/master_notify", Some(notify("192.168.60.1", FIRST))).await.code,
        403
    );
    let admin = env.caller(Some(env.token("admin", audience).await), Some(FIRST));
    assert_eq!(admin.send(api, "POST", "/master_notify", Some(notify(VIP, FIRST))).await.code, 403);
}

#[tokio::test]
async fn invalid_requests_are_refused_and_the_api_is_described() {
    let env = TestEnv::start().await;
    let controller = env.controller().await;
    let (api, admin) = (controller.api, env.admin().await);
    let json = Some("application/json");
    for (body, code) in [
        ("", 400),
        ("{", 400),
        ("[]", 400),
        ("{}", 400),
        (r#"{"vip":"192.168.50.201"}"#, 400),
        (r#"{"vip":"127.0.0.1","namespace":"a"}"#, 400),
        (r#"{"vip":"192.168.50.201","namespace":"a/../b"}"#, 400),
        (r#"{"vip":"192.168.50.201","namespace":"A"}"#, 400),
        (r#"{"vip":"192.168.50.201","namespace":"a","service":""}"#, 400),
        (r#"{"vip":"192.168.50.201","namespace":"a","other":1}"#, 400),
        (r#"{"vip":"192.168.50.201","namespace":"a","notify_only":true}"#, 400),
        (r#"{"vip":"192.168.50.201","namespace":"missing"}"#, 404),
    ] {
        let response = admin.raw(api, "POST", "/vip", json, body.to_owned()).await;
        assert_eq!(response.code, code, "{body}: {response:?}");
        assert!(response.body["message"].is_string(), "{response:?}");
    }
    let valid = r#"{"vip":"192.168.50.201","namespace":"missing"}"#;
    for (kind, code) in
        [(None, 415), (Some("text/plain"), 415), (Some("application/json; charset=utf-8"), 404)]
    {
        assert_eq!(admin.raw(api, "POST", "/vip", kind, valid.to_owned()).await.code, code, "{kind:?}");
    }
    let large = format!("{{\"vip\":\"{}\"}}", "1".repeat(300 << 10));
    assert_eq!(admin.raw(api, "POST", "/vip", json, large).await.code, 413);
    let put = admin.raw(api, "PUT", "/vip", json, valid.to_owned()).await;
    assert_eq!((put.code, put.allow.as_deref()), (405, Some("POST")));
    let get = admin.send(api, "GET", "/vip/not-an-address", None).await;
    assert_eq!(get.code, 400, "{get:?}");
    assert_eq!(admin.send(api, "GET", "/vip/192.168.60.1", None).await.code, 404);
    assert_eq!(
        admin.send(api, "GET", "/vip/192.168.50.201", None).await.body,
        json!({ "vip": VIP, "services": [] })
    );
    let description = admin.send(api, "GET", "/openapi.json", None).await;
    assert_eq!(description.code, 200);
    assert!(description.body["paths"]["/master_notify"]["post"]["responses"]["403"].is_object());
    let metrics = controller.program.get("/metrics").await.unwrap().1;
    assert!(metrics.contains(r#"cgw_controller_requests_total{code="405",route="/vip"} 1"#), "{metrics}");
    assert_eq!(controller.program.get("/readyz").await.unwrap().0.as_u16(), 200);

    // SIGTERM ends it.
    controller.program.signal(nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(controller.program.wait_exit().await.unwrap().code(), Some(0));
}
