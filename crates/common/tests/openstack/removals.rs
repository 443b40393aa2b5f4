//! `common::routes`: the recheck detects a next hop that appeared between the decision and the removal.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::api::period::Period;
use common::api::routegc::Safety;
use common::cloud::openstack::Cloud;
use common::routes::plan::{History, Removal};
use common::routes::{self, Applied, Policy, RemovalError, Route, Snapshot, StillDesired};
use futures::FutureExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::site::{PROJECT, Reply, Site, ok, reply};

const AT: &str = "/networking/v2.0";
const FIELDS: &str = "fields=id&fields=name&fields=network_id&fields=project_id&fields=tenant_id&fields=device_id&fields=device_owner&fields=fixed_ips&fields=allowed_address_pairs&fields=port_security_enabled&limit=500";

fn route(n: u8) -> Route {
    Route::new(format!("10.244.{n}.0/24"), format!("10.7.0.{n}"))
}

fn router(routes: &[u8]) -> Reply {
    let routes: Vec<Value> = routes
        .iter()
        .map(|n| json!({"destination": route(*n).destination, "nexthop": route(*n).nexthop}))
        .collect();
    ok(&json!({"router": {"id": "r1", "project_id": PROJECT, "revision_number": 4, "routes": routes}}))
}

fn port(id: &str, address: &str, server: &str, pairs: &[&str]) -> Value {
    let pairs: Vec<Value> = pairs.iter().map(|pair| json!({"ip_address": pair})).collect();
    let owner = if server.is_empty() { "" } else { "compute:nova" };
    json!({
        "id": id, "network_id": "n1", "project_id": PROJECT, "device_id": server, "device_owner": owner,
        "fixed_ips": [{"subnet_id": "b1", "ip_address": address}], "allowed_address_pairs": pairs,
    })
}

fn ports(ports: &[Value]) -> Reply {
    ok(&json!({ "ports": ports }))
}

/// Nova's response for a server that does not exist.
fn gone() -> Reply {
    reply(404, r#"{"itemNotFound": {"code": 404, "message": "no"}}"#)
}

/// A router with two orphaned routes. The decision was made with the first list of ports in `seen`.
async fn decided(seen: [Reply; 2]) -> (Site, Cloud, Policy, Snapshot, Vec<Removal>) {
    let (site, cloud) = Site::start().await;
    let aliases = json!([{"alias": "extraroute-atomic"}, {"alias": "revision-if-match"}]);
    site.on(&format!("GET {AT}/extensions"), [ok(&json!({ "extensions": aliases }))]);
    site.on(&format!("GET {AT}/quotas/{PROJECT}"), [ok(&json!({"quota": {}}))]);
    site.on(&format!("GET {AT}/routers/r1"), [router(&[3, 4])]);
    let own = json!({"id": "p0", "network_id": "n1", "project_id": PROJECT, "device_id": "r1",
        "device_owner": "network:router_interface", "fixed_ips": [{"subnet_id": "b1", "ip_address": "10.7.0.1"}]});
    site.on(&format!("GET {AT}/ports?device_id=r1&{FIELDS}"), [ports(&[own])]);
    site.on(&format!("GET {AT}/ports?network_id=n1&{FIELDS}"), seen);
    let network = json!({"id": "n1", "name": "nodes", "project_id": PROJECT, "shared": false});
    site.on(&format!("GET {AT}/networks/n1"), [ok(&json!({ "network": network }))]);
    let subnet = json!({"id": "b1", "network_id": "n1", "cidr": "10.7.0.0/24"});
    site.on(&format!("GET {AT}/subnets"), [ok(&json!({ "subnets": [subnet] }))]);
    let server =
        json!({"id": "s5", "status": "ACTIVE", "addresses": {"nodes": [{"addr": "10.7.0.5", "version": 4}]}});
    site.on("GET /compute/v2.1/servers/detail", [ok(&json!({ "servers": [server] }))]);
    site.on("GET /compute/v2.1/servers/s9", [gone()]);
    site.on(&format!("PUT {AT}/routers/r1/remove_extraroutes"), [router(&[3])]);
    let safety = Safety {
        confirmations: 1,
        min_age: Period::seconds(0),
        all_next_hops_are_ports: true,
        ..Safety::default()
    };
    let policy = Policy::new(["10.244.0.0/16"], None, &safety).unwrap();
    let snapshot = routes::observe(&cloud, &policy, "r1", None).await.unwrap();
    let removals =
        routes::plan(&policy, &snapshot, &History::default(), None, Timestamp::UNIX_EPOCH).removals;
    assert_eq!(removals.iter().map(|one| one.route.clone()).collect::<Vec<_>>(), [route(3), route(4)]);
    (site, cloud, policy, snapshot, removals)
}

async fn applied(seen: [Reply; 2]) -> (Site, Result<Applied, RemovalError>) {
    let (site, cloud, policy, snapshot, removals) = decided(seen).await;
    let applied = routes::apply(&cloud, &policy, &snapshot, &removals, None, None).await;
    (site, applied)
}

/// The first route was skipped for this reason, and only the second was removed.
async fn one_is_skipped(site: &Site, applied: Result<Applied, RemovalError>, why: &str) {
    let applied = applied.unwrap();
    assert_eq!(applied.skipped, [(route(3), why.to_owned())]);
    assert_eq!((applied.removed, applied.recreated, applied.left), (vec![route(4)], vec![], 1));
    let pairs = json!([{"destination": "10.244.4.0/24", "nexthop": "10.7.0.4"}]);
    let seen = site.last();
    assert_eq!(seen.body, json!({"router": {"routes": pairs}}));
    assert_eq!(seen.headers["if-match"], "revision_number=4");
    assert_eq!(site.count(&format!("GET {AT}/ports?network_id")), 2, "one list for both routes");
    site.was_strict();
}

#[tokio::test]
async fn a_new_address_pair_keeps_its_route() {
    let before = ports(&[port("p5", "10.7.0.5", "s5", &[])]);
    for (pair, why) in [
        ("10.7.0.3", "server s5 has the next hop now"),
        ("10.7.0.2/31", "port p5 may use any address of 10.7.0.2/31"),
    ] {
        let after = ports(&[port("p5", "10.7.0.5", "s5", &[pair])]);
        let (site, applied) = applied([before.clone(), after]).await;
        one_is_skipped(&site, applied, why).await;
    }
}

/// A machine's port without port security may have any address. Neutron's own ports have no port security and only their own
/// addresses.
#[tokio::test]
async fn a_port_that_lost_its_port_security_keeps_all_routes() {
    let own = |owner: &str| {
        let mut own = port("p7", "10.7.0.7", "x", &[]);
        own["device_owner"] = json!(owner);
        own["port_security_enabled"] = json!(false);
        own
    };
    let neutron_s =
        [own("network:dhcp"), own("network:router_interface_distributed"), own("ovn-lb-hm:distributed")];
    let mut machine = port("p5", "10.7.0.5", "s5", &[]);
    machine["port_security_enabled"] = json!(true);
    let before = ports(&[&neutron_s[..], std::slice::from_ref(&machine)].concat());
    machine["port_security_enabled"] = json!(false);
    let (site, applied) = applied([before, ports(&[machine])]).await;
    let why = "port p5 has no port security and may use any address";
    assert_eq!(applied.unwrap().skipped, [3, 4].map(|n| (route(n), why.to_owned())));
    assert_eq!(site.count("PUT"), 0);
}

#[tokio::test]
async fn a_port_or_server_that_nova_did_not_list_keeps_its_route() {
    let machine = port("p5", "10.7.0.5", "s5", &[]);
    let before = ports(std::slice::from_ref(&machine));
    let after = ports(&[machine.clone(), port("p3", "10.7.0.3", "", &[])]);
    let (site, done) = applied([before.clone(), after]).await;
    one_is_skipped(&site, done, "port p3 has the next hop now").await;

    // Two ports have the address, of a server that is gone and of a new one.
    let twins = [port("p2", "10.7.0.3", "s2", &[]), port("p3", "10.7.0.3", "s3", &[])];
    let after = ports(&[std::slice::from_ref(&machine), &twins[..]].concat());
    let (site, cloud, policy, snapshot, removals) = decided([before.clone(), after]).await;
    site.on("GET /compute/v2.1/servers/s2", [gone()]);
    site.on("GET /compute/v2.1/servers/s3", [ok(&json!({"server": {"id": "s3", "status": "BUILD"}}))]);
    let done = routes::apply(&cloud, &policy, &snapshot, &removals, None, None).await;
    one_is_skipped(&site, done, "server s3 has the next hop now").await;

    // A new server's port may use the next hop among others.
    let after = ports(&[machine, port("p6", "10.7.0.6", "s6", &["10.7.0.2/31"])]);
    let (site, cloud, policy, snapshot, removals) = decided([before, after]).await;
    site.on("GET /compute/v2.1/servers/s6", [ok(&json!({"server": {"id": "s6", "status": "BUILD"}}))]);
    let done = routes::apply(&cloud, &policy, &snapshot, &removals, None, None).await;
    one_is_skipped(&site, done, "port p6 may use any address of 10.7.0.2/31").await;
}

#[tokio::test]
async fn an_address_pair_of_a_port_without_its_server_keeps_no_route() {
    let pairs = &["10.7.0.3", "10.7.0.4/31"];
    let seen = ports(&[port("p5", "10.7.0.5", "s5", &[]), port("p9", "10.7.0.9", "s9", pairs)]);
    let (site, cloud, policy, snapshot, removals) = decided([seen.clone(), seen]).await;
    site.on(&format!("PUT {AT}/routers/r1/remove_extraroutes"), [router(&[])]);
    let applied = routes::apply(&cloud, &policy, &snapshot, &removals, None, None).await.unwrap();
    assert_eq!(applied.removed, [route(3), route(4)]);
    site.was_strict();
}

/// Other clients write during the recheck: one adds a route, one removes the orphaned ones.
#[tokio::test]
async fn without_revisions_the_list_is_read_again_before_it_is_replaced() {
    let seen = ports(&[port("p5", "10.7.0.5", "s5", &[])]);
    for (meanwhile, removed, gone) in
        [(router(&[4, 5]), vec![route(4)], vec![route(3)]), (router(&[5]), vec![], vec![route(3), route(4)])]
    {
        let (site, cloud, mut policy, snapshot, removals) = decided([seen.clone(), seen.clone()]).await;
        policy.safety.allow_unsafe_update = true;
        let aliases = json!([{"alias": "extraroute"}]);
        site.on(&format!("GET {AT}/extensions"), [ok(&json!({ "extensions": aliases }))]);
        site.on(&format!("GET {AT}/routers/r1"), [router(&[3, 4]), meanwhile]);
        site.on(&format!("PUT {AT}/routers/r1"), [router(&[5])]);
        let applied = routes::apply(&cloud, &policy, &snapshot, &removals, None, None).await.unwrap();
        assert_eq!(site.count("PUT"), removed.len());
        if !removed.is_empty() {
            let seen = site.last();
            let kept = json!([{"destination": "10.244.5.0/24", "nexthop": "10.7.0.5"}]);
            assert_eq!(seen.body, json!({"router": {"routes": kept}}));
            assert!(!seen.headers.contains_key("if-match"));
        }
        assert_eq!((applied.removed, applied.gone, applied.left), (removed, gone, 1));
        site.was_strict();
    }
}

/// The check runs right before the write, for each kind of write.
#[tokio::test]
async fn nothing_is_written_if_the_removals_are_no_longer_desired() {
    let seen = ports(&[port("p5", "10.7.0.5", "s5", &[])]);
    let lost =
        reply(412, r#"{"NeutronError": {"type": "PreconditionFailed", "message": "no", "detail": ""}}"#);
    let (pairs, list) =
        ("PUT /networking/v2.0/routers/r1/remove_extraroutes", "PUT /networking/v2.0/routers/r1");
    // The extensions of Neutron, the write that follows, and how many checks find the removals still desired.
    for (aliases, line, yes) in [
        ("extraroute-atomic revision-if-match", pairs, 0),
        ("extraroute-atomic revision-if-match", pairs, 1),
        ("revision-if-match", list, 0),
        ("revision-if-match", list, 2),
        ("", list, 0),
    ] {
        let (site, cloud, mut policy, snapshot, removals) = decided([seen.clone(), seen.clone()]).await;
        policy.safety.allow_unsafe_update = true;
        let aliases: Vec<Value> = aliases.split_whitespace().map(|alias| json!({ "alias": alias })).collect();
        site.on(&format!("GET {AT}/extensions"), [ok(&json!({ "extensions": aliases }))]);
        site.on(line, [lost.clone()]);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let desired = StillDesired::new(move || {
            std::future::ready(Ok(count.fetch_add(1, Ordering::Relaxed) < yes)).boxed()
        });
        let done = routes::apply(&cloud, &policy, &snapshot, &removals, None, Some(&desired)).await;
        let error = done.unwrap_err();
        assert_eq!((error.code(), error.changed_nothing()), ("PolicyChanged", true), "{error}");
        assert_eq!((site.count("PUT"), asked.load(Ordering::Relaxed)), (yes, yes + 1));
        let unknown = StillDesired::new(|| std::future::ready(Err("no response".to_owned())).boxed());
        let done = routes::apply(&cloud, &policy, &snapshot, &removals, None, Some(&unknown)).await;
        assert_eq!(done.unwrap_err().code(), "KubernetesUnavailable");
        assert_eq!(site.count("PUT"), yes);
    }
}

#[tokio::test]
async fn nothing_is_removed_after_an_incomplete_recheck() {
    let before = ports(&[port("p5", "10.7.0.5", "s5", &[])]);
    let error = |status| {
        reply(status, r#"{"NeutronError": {"type": "PolicyNotAuthorized", "message": "no", "detail": ""}}"#)
    };
    for (after, code) in [
        (error(403), "Forbidden"),
        (error(401), "Forbidden"),
        (error(409), "PartialInventory"),
        (ports(&[]), "EmptyInventory"),
    ] {
        let (site, applied) = applied([before.clone(), after]).await;
        assert_eq!(applied.unwrap_err().code(), code);
        assert_eq!(site.count("PUT"), 0);
    }
}

#[tokio::test]
async fn a_router_that_must_not_be_read_again_is_a_missing_permission() {
    let seen = ports(&[port("p5", "10.7.0.5", "s5", &[])]);
    for (status, code) in [(401, "Forbidden"), (403, "Forbidden"), (409, "PartialInventory")] {
        let (site, cloud, policy, snapshot, removals) = decided([seen.clone(), seen.clone()]).await;
        site.on(&format!("GET {AT}/routers/r1"), [reply(status, "{}")]);
        let error = routes::apply(&cloud, &policy, &snapshot, &removals, None, None).await.unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert_eq!(site.count("PUT"), 0);
    }
}

/// Neutron does not name the route. The network of a gateway is not visible, and the next hop may be on it.
#[tokio::test]
async fn routes_for_which_neutron_refuses_every_change_are_named() {
    let refused = reply(400, r#"{"NeutronError": {"type": "InvalidRoutes", "message": "no", "detail": ""}}"#);
    for (gateway, named) in [
        (Value::Null, "networks: 192.168.1.0/24 via 172.16.0.1; remove"),
        (json!({"network_id": "n9"}), "networks: one of: 192.168.1.0/24 via 172.16.0.1; remove"),
    ] {
        let seen = ports(&[port("p5", "10.7.0.5", "s5", &[])]);
        let (site, cloud, policy, snapshot, removals) = decided([seen.clone(), seen]).await;
        let all = [route(3), route(4), route(5), Route::new("192.168.1.0/24", "172.16.0.1")];
        let all = all.map(|one| json!({"destination": one.destination, "nexthop": one.nexthop}));
        let now = json!({"id": "r1", "project_id": PROJECT, "revision_number": 4, "routes": all,
            "external_gateway_info": gateway});
        site.on(&format!("GET {AT}/routers/r1"), [ok(&json!({ "router": now }))]);
        site.on(&format!("PUT {AT}/routers/r1/remove_extraroutes"), [refused.clone()]);
        let error = routes::apply(&cloud, &policy, &snapshot, &removals, None, None).await.unwrap_err();
        assert_eq!(error.code(), "RouterHasInvalidRoutes");
        assert!(error.to_string().contains(named), "{error}");
    }
}
