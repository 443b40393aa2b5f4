//! The decision table over HTTP, and several replicas at once.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::env::{CLASS, Caller, Controller, FIRST, OTHER, PREFIX, Response, TestEnv, VIP, mac, wait};

fn bind(vip: &str, namespace: &str, service: Option<&str>) -> Value {
    match service {
        Some(service) => json!({ "vip": vip, "namespace": namespace, "service": service }),
        None => json!({ "vip": vip, "namespace": namespace }),
    }
}

struct Client<'a> {
    env: &'a TestEnv,
    caller: Caller,
    controller: Controller,
}

impl Client<'_> {
    async fn bind(&self, vip: &str, namespace: &str, service: Option<&str>) -> Response {
        let body = bind(vip, namespace, service);
        self.caller.send(self.controller.api, "POST", "/vip", Some(body)).await
    }

    async fn unbind(&self, vip: &str, owner: &str) -> Response {
        self.caller.send(self.controller.api, "DELETE", &format!("/vip/{vip}/{owner}"), None).await
    }

    /// Checks the code, and that a refusal has written nothing.
    async fn expect(&self, what: &str, code: u16, response: impl Future<Output = Response>) {
        let before = self.env.changes().len();
        let response = response.await;
        assert_eq!(response.code, code, "{what}: {response:?}");
        if matches!(code, 404 | 409 | 422) {
            let written = self.env.changes().split_off(before);
            let is_cache = |path: &str| path.ends_with("cgw-providers");
            assert!(written.iter().all(|write| is_cache(&write.path)), "{what}: {written:?}");
        }
    }
}

#[tokio::test]
async fn every_row_of_the_decision_table() {
    let env = TestEnv::start().await;
    let (x, y) = (env.x.clone(), env.y.clone());
    for (namespace, name, port) in [(&x, "a", 80), (&x, "b", 81), (&x, "same", 80), (&y, "c", 80)] {
        env.service(namespace, name, port, json!({})).await;
    }
    let controller = env.controller().await;
    let client = Client { env: &env, caller: env.admin().await, controller };
    let (a, b) = (format!("{x}/a"), format!("{x}/b"));

    // Free.
    client.expect("S, unbind X", 404, client.unbind(VIP, &x)).await;
    client.expect("S, unbind X/s", 404, client.unbind(VIP, &a)).await;
    client.expect("no namespace", 404, client.bind(VIP, "missing", None)).await;
    client.expect("no Service", 404, client.bind(VIP, &x, Some("missing"))).await;
    client.expect("no host", 422, client.bind("192.168.60.1", &x, None)).await;
    let only = json!({ "vip": VIP, "notify_only": true });
    let notify = async || client.caller.send(client.controller.api, "POST", "/vip", Some(only.clone())).await;
    client.expect("S, notify_only", 404, notify()).await;
    assert_eq!(env.record(VIP).await, None);

    // A Service has it alone.
    client.expect("S, bind X/s", 201, client.bind(VIP, &x, Some("a"))).await;
    let record = json!({ "v": 1, "scope": "service", "namespace": x, "service": "a", "tunId": "0x00000001" });
    assert_eq!(env.record(VIP).await, Some(record));
    let annotation = async |word| env.annotation(&x, "a", word).await;
    assert_eq!(annotation("vip").await.as_deref(), Some(VIP));
    assert_eq!(annotation("node-ip").await.as_deref(), Some(FIRST));
    assert_eq!(annotation("tun-mac").await, Some(mac(FIRST)));
    assert_eq!(annotation("tun-id").await.as_deref(), Some("0x00000001"));
    assert_eq!(annotation("epoch").await.as_deref(), Some("100000"));
    client.expect("E, bind X/s", 200, client.bind(VIP, &x, Some("a"))).await;
    client.expect("E, bind X/t", 409, client.bind(VIP, &x, Some("b"))).await;
    client.expect("E, bind X", 409, client.bind(VIP, &x, None)).await;
    client.expect("E, bind Y", 409, client.bind(VIP, &y, None)).await;
    client.expect("E, bind Y/s", 409, client.bind(VIP, &y, Some("c"))).await;
    client.expect("E, another VIP for s", 409, client.bind(OTHER, &x, Some("a"))).await;
    client.expect("E, unbind X", 409, client.unbind(VIP, &x)).await;
    client.expect("E, unbind X/t", 404, client.unbind(VIP, &b)).await;
    client.expect("E, notify_only", 200, notify()).await;
    let view = client.caller.send(client.controller.api, "GET", &format!("/vip/{VIP}"), None).await;
    assert_eq!((&view.body["scope"], &view.body["services"]), (&json!("service"), &json!([a])), "{view:?}");
    client.expect("E, unbind X/s", 200, client.unbind(VIP, &a)).await;
    assert_eq!(env.record(VIP).await, None);
    assert_eq!((annotation("vip").await, annotation("tun-id").await), (None, None), "the keys are removed");
    assert_eq!(
        (annotation("node-ip").await, annotation("tun-mac").await),
        (Some(String::new()), Some(String::new()))
    );
    assert_eq!(annotation("epoch").await.as_deref(), Some("100000"), "the epoch stays");

    // A namespace.
    client.expect("S, bind X", 201, client.bind(VIP, &x, None)).await;
    client.expect("N, notify_only, none carries it", 200, notify()).await;
    client.expect("N, bind X", 200, client.bind(VIP, &x, None)).await;
    client.expect("N, bind X/s", 200, client.bind(VIP, &x, Some("a"))).await;
    client.expect("N, bind X/s once more", 200, client.bind(VIP, &x, Some("a"))).await;
    client.expect("N, bind X/t", 200, client.bind(VIP, &x, Some("b"))).await;
    client.expect("N, same port", 409, client.bind(VIP, &x, Some("same"))).await;
    client.expect("N, bind Y", 409, client.bind(VIP, &y, None)).await;
    client.expect("N, bind Y/s", 409, client.bind(VIP, &y, Some("c"))).await;
    client.expect("N, unbind X, carried", 409, client.unbind(VIP, &x)).await;
    let all = client.caller.send(client.controller.api, "GET", "/vips", None).await;
    assert_eq!(all.body[0]["services"], json!([a, b]), "{all:?}");
    client.expect("N, unbind X/s", 200, client.unbind(VIP, &a)).await;
    client.expect("N, unbind X/s once more", 404, client.unbind(VIP, &a)).await;
    client.expect("N, unbind X/t", 200, client.unbind(VIP, &b)).await;
    client.expect("N, unbind Y", 404, client.unbind(VIP, &y)).await;
    client.expect("N, unbind X", 200, client.unbind(VIP, &x)).await;
    assert_eq!(env.record(VIP).await, None);

    // No master: the last annotations stay.
    env.keepers[0].reports(Some(("BACKUP", 101.0)));
    client.expect("no master, first", 503, client.bind(VIP, &x, Some("a"))).await;
    assert_eq!(annotation("vip").await.as_deref(), Some(VIP));
    assert_eq!(annotation("node-ip").await.as_deref(), Some(""));
    client.expect("no master, notify_only", 503, notify()).await;
    env.keepers[0].reports(Some(("MASTER", 102.0)));
    client.expect("a master", 200, client.bind(VIP, &x, Some("a"))).await;
    env.keepers[0].reports(None);
    client.expect("no keeper responds", 503, client.bind(VIP, &x, Some("a"))).await;
    assert_eq!(annotation("node-ip").await.as_deref(), Some(FIRST));
    env.keepers[0].reports(Some(("MASTER", 102.0)));

    // The Service of a binding is gone.
    let services = kube::Api::<k8s_openapi::api::core::v1::Service>::namespaced(env.client.clone(), &x);
    services.delete("a", &Default::default()).await.unwrap();
    client.expect("gone, bind", 404, client.bind(VIP, &x, Some("a"))).await;
    client.expect("gone, unbind", 200, client.unbind(VIP, &a)).await;
    assert_eq!(env.record(VIP).await, None);
}

#[tokio::test]
async fn ingress_is_shown_where_the_type_says() {
    let env = TestEnv::start().await;
    let x = env.x.clone();
    let balanced = json!({ "type": "LoadBalancer", "loadBalancerClass": CLASS });
    env.service(&x, "balanced", 80, balanced).await;
    env.service(&x, "foreign", 81, json!({ "type": "LoadBalancer", "loadBalancerClass": "example.com/x" }))
        .await;
    env.service(&x, "plain", 82, json!({ "externalIPs": ["192.0.2.7"] })).await;
    let controller = Controller::of(env.launch().arg("--external-ips").start().unwrap()).await;
    let client = Client { env: &env, caller: env.admin().await, controller };
    client.expect("namespace", 201, client.bind(VIP, &x, None)).await;
    for name in ["balanced", "foreign", "plain"] {
        client.expect(name, 200, client.bind(VIP, &x, Some(name))).await;
    }
    let ingress = async |name: &str| {
        let service = env.read(&x, name).await;
        let status = service.status.unwrap_or_default().load_balancer.unwrap_or_default();
        let ingress = status.ingress.unwrap_or_default();
        let ingress: Vec<_> = ingress
            .into_iter()
            .map(|one| (one.ip.unwrap_or_default(), one.ip_mode.unwrap_or_default()))
            .collect();
        (ingress, service.spec.unwrap().external_ips.unwrap_or_default())
    };
    let listed = vec![(VIP.to_owned(), "VIP".to_owned())];
    assert_eq!(ingress("balanced").await, (listed.clone(), vec![]));
    assert_eq!(ingress("foreign").await, (vec![], vec![]), "the status belongs to another implementation");
    assert_eq!(ingress("plain").await, (vec![], vec!["192.0.2.7".to_owned(), VIP.to_owned()]));
    // Another client removes it.
    let empty = json!({ "status": { "loadBalancer": { "ingress": [] } } });
    kube::Api::<k8s_openapi::api::core::v1::Service>::namespaced(env.client.clone(), &x)
        .patch_status("balanced", &Default::default(), &kube::api::Patch::Merge(&empty))
        .await
        .unwrap();
    wait("the ingress is repaired", async || ingress("balanced").await.0 == listed).await;
    for name in ["balanced", "foreign", "plain"] {
        client.expect(name, 200, client.unbind(VIP, &format!("{x}/{name}"))).await;
    }
    assert_eq!(ingress("balanced").await, (vec![], vec![]));
    assert_eq!(ingress("plain").await, (vec![], vec!["192.0.2.7".to_owned()]));
}

#[tokio::test]
async fn two_replicas_race_for_a_vip_and_one_wins() {
    let env = TestEnv::start().await;
    let (x, y) = (env.x.clone(), env.y.clone());
    env.service(&x, "a", 80, json!({})).await;
    env.service(&y, "c", 80, json!({})).await;
    let (one, two) = (env.controller().await, env.controller().await);
    let caller = env.admin().await;
    let send = async |api, method: &str, path: String, body| caller.send(api, method, &path, body).await;
    for round in 0..8 {
        let (first, second) = tokio::join!(
            send(one.api, "POST", "/vip".to_owned(), Some(bind(VIP, &x, Some("a")))),
            send(two.api, "POST", "/vip".to_owned(), Some(bind(VIP, &y, Some("c")))),
        );
        assert_eq!(
            BTreeSet::from([first.code, second.code]),
            BTreeSet::from([201, 409]),
            "{round}: {first:?} {second:?}"
        );
        let (winner, loser) = if first.code == 201 { ((&x, "a"), (&y, "c")) } else { ((&y, "c"), (&x, "a")) };
        assert_eq!(env.annotation(winner.0, winner.1, "vip").await.as_deref(), Some(VIP));
        assert_eq!(env.annotation(loser.0, loser.1, "vip").await, None);
        let api = if round % 2 == 0 { one.api } else { two.api };
        let unbound = send(api, "DELETE", format!("/vip/{VIP}/{}/{}", winner.0, winner.1), None).await;
        assert_eq!(unbound.code, 200, "{unbound:?}");
    }
    // Different VIPs at the same time get different numbers.
    let binds = (201..221_u16).map(|last| {
        let api = if last % 2 == 0 { one.api } else { two.api };
        send(api, "POST", "/vip".to_owned(), Some(bind(&format!("192.168.50.{last}"), &x, None)))
    });
    for response in futures::future::join_all(binds).await {
        assert_eq!(response.code, 201, "{response:?}");
    }
    let store = env.read(&env.own, "cgw-binds").await;
    let records = store.metadata.annotations.unwrap();
    let numbers: BTreeSet<String> = records
        .iter()
        .filter(|(key, _)| key.starts_with(&format!("{PREFIX}/bind.")))
        .map(|(_, text)| serde_json::from_str::<Value>(text).unwrap()["tunId"].as_str().unwrap().to_owned())
        .collect();
    let expected: BTreeSet<String> = (1..21).map(|number| format!("{number:#010x}")).collect();
    assert_eq!(numbers, expected);
}
