//! `common::routes`: the snapshot of a router and its networks.

use common::api::routegc::Safety;
use common::cloud::openstack::Cloud;
use common::routes::snapshot::RouteLimit;
use common::routes::{self, Policy, Snapshot};
use serde_json::{Value, json};

use crate::site::{PROJECT, Reply, Site, ok, reply};

const AT: &str = "/networking/v2.0";
const FIELDS: &str = "fields=id&fields=name&fields=network_id&fields=project_id&fields=tenant_id&fields=device_id&fields=device_owner&fields=fixed_ips&fields=allowed_address_pairs&fields=port_security_enabled&limit=500";

/// A route to the pods of this number.
fn route(n: u8, nexthop: &str) -> Value {
    json!({"destination": format!("10.244.{n}.0/24"), "nexthop": nexthop})
}

fn router(routes: &[Value]) -> Reply {
    ok(&json!({"router": {"id": "r1", "project_id": PROJECT, "revision_number": 4, "routes": routes}}))
}

fn port(id: &str, network: &str, device: (&str, &str), subnet: &str, address: &str) -> Value {
    json!({
        "id": id, "network_id": network, "project_id": PROJECT, "device_owner": device.0, "device_id": device.1,
        "fixed_ips": [{"subnet_id": subnet, "ip_address": address}], "allowed_address_pairs": [],
    })
}

/// A leg of the router.
fn leg(id: &str, network: &str, subnet: &str, address: &str) -> Value {
    port(id, network, ("network:router_interface", "r1"), subnet, address)
}

/// A router with a leg in 10.7.0.0/24, where server s5 has 10.7.0.5.
async fn site(routes: &[Value]) -> (Site, Cloud) {
    let (site, cloud) = Site::start().await;
    site.on(&format!("GET {AT}/quotas/{PROJECT}"), [ok(&json!({"quota": {}}))]);
    site.on(&format!("GET {AT}/routers/r1"), [router(routes)]);
    network(&site, "n1", "nodes", PROJECT, &[("b1", "10.7.0.0/24")]);
    devices(&site, "r1", &[leg("p0", "n1", "b1", "10.7.0.1")]);
    let machine = port("p5", "n1", ("compute:nova", "s5"), "b1", "10.7.0.5");
    site.on(&format!("GET {AT}/ports?network_id=n1&{FIELDS}"), [ok(&json!({ "ports": [machine] }))]);
    servers(&site, &[("s5", "nodes", "10.7.0.5")]);
    (site, cloud)
}

/// The ports of a device.
fn devices(site: &Site, device: &str, ports: &[Value]) {
    site.on(&format!("GET {AT}/ports?device_id={device}&{FIELDS}"), [ok(&json!({ "ports": ports }))]);
}

/// A network without ports, and its subnets.
fn network(site: &Site, id: &str, name: &str, project: &str, subnets: &[(&str, &str)]) {
    let network = json!({"id": id, "name": name, "project_id": project, "shared": project != PROJECT});
    site.on(&format!("GET {AT}/networks/{id}"), [ok(&json!({ "network": network }))]);
    let subnets: Vec<Value> =
        subnets.iter().map(|(subnet, cidr)| json!({"id": subnet, "network_id": id, "cidr": cidr})).collect();
    let query = format!("network_id={id}&fields=id&fields=network_id&fields=cidr&limit=500");
    site.on(&format!("GET {AT}/subnets?{query}"), [ok(&json!({ "subnets": subnets }))]);
    site.on(&format!("GET {AT}/ports?network_id={id}&{FIELDS}"), [ok(&json!({ "ports": [] }))]);
}

/// All servers: ID, name of the network, address.
fn servers(site: &Site, servers: &[(&str, &str, &str)]) {
    let servers: Vec<Value> = servers
        .iter()
        .map(|(id, network, address)| {
            let addresses = json!({ (*network): [{"addr": address, "version": 4}] });
            json!({"id": id, "status": "ACTIVE", "addresses": addresses})
        })
        .collect();
    site.on("GET /compute/v2.1/servers/detail", [ok(&json!({ "servers": servers }))]);
}

fn policy() -> Policy {
    let safety = Safety { all_next_hops_are_ports: true, ..Safety::default() };
    Policy::new(["10.244.0.0/16"], None, &safety).unwrap()
}

async fn seen(cloud: &Cloud) -> Snapshot {
    routes::observe(cloud, &policy(), "r1", None).await.unwrap()
}

#[tokio::test]
async fn routes_are_in_one_order_whatever_order_neutron_has() {
    let routes = [route(10, "10.7.0.9"), route(2, "10.7.0.9"), route(2, "10.7.0.5")];
    let (site, cloud) = site(&routes).await;
    let first = seen(&cloud).await;
    let [ten, nine, five] = &routes;
    site.on(&format!("GET {AT}/routers/r1"), [router(&[five.clone(), ten.clone(), nine.clone()])]);
    assert_eq!(seen(&cloud).await, first);
    let texts: Vec<String> = first.routes.iter().map(ToString::to_string).collect();
    let expected =
        ["10.244.2.0/24 via 10.7.0.5", "10.244.2.0/24 via 10.7.0.9", "10.244.10.0/24 via 10.7.0.9"];
    assert_eq!(texts, expected);
    site.was_strict();
}

/// A quota that cannot be read is not one that does not exist.
#[tokio::test]
async fn the_limit_of_routes_is_known_reported_or_not_read() {
    for (response, expected) in [
        (ok(&json!({"quota": {"router_route": 30}})), RouteLimit::Routes(30)),
        (ok(&json!({"quota": {"router_route": -1}})), RouteLimit::NotReported),
        (ok(&json!({"quota": {"router": 10}})), RouteLimit::NotReported),
        (reply(403, "{}"), RouteLimit::Unknown),
    ] {
        let (site, cloud) = site(&[]).await;
        site.on(&format!("GET {AT}/quotas/{PROJECT}"), [response]);
        assert_eq!(seen(&cloud).await.limit, expected);
    }
}

/// An access rule that is missing does not return by itself, unlike a cell that is down.
#[tokio::test]
async fn a_list_that_must_not_be_read_is_a_missing_permission() {
    for line in [
        format!("GET {AT}/ports?network_id=n1&{FIELDS}"),
        format!("GET {AT}/subnets?network_id=n1&fields=id&fields=network_id&fields=cidr&limit=500"),
        "GET /compute/v2.1/servers/detail".to_owned(),
    ] {
        for (status, code) in [(401, "Forbidden"), (403, "Forbidden"), (409, "PartialInventory")] {
            let (site, cloud) = site(&[route(1, "10.7.0.9")]).await;
            site.on(&line, [reply(status, "{}")]);
            let error = routes::observe(&cloud, &policy(), "r1", None).await.unwrap_err();
            assert_eq!(error.code(), code, "{line}: {error}");
        }
    }
}

/// The explanation of the class of each route.
fn classes(snapshot: &Snapshot) -> Vec<String> {
    let classified = routes::plan::classify::classify(&policy(), snapshot);
    classified.iter().map(|one| one.class.why()).collect()
}

/// A network may have subnets that the router is not attached to: the router reaches no address there, and they may overlap with its
/// own.
#[tokio::test]
async fn subnets_are_the_router_s_where_it_has_a_leg() {
    let (site, cloud) = site(&[route(1, "10.7.0.9"), route(2, "10.8.0.7")]).await;
    network(&site, "n1", "nodes", PROJECT, &[("b1", "10.7.0.0/24"), ("b2", "10.8.0.0/24")]);
    let machine = port("p5", "n1", ("compute:nova", "s5"), "b1", "10.7.0.5");
    site.on(&format!("GET {AT}/ports?network_id=n1&{FIELDS}"), [ok(&json!({ "ports": [machine] }))]);
    network(&site, "n2", "theirs", "another", &[("b3", "10.9.0.0/24"), ("b4", "10.7.0.0/16")]);
    devices(&site, "r1", &[leg("p0", "n1", "b1", "10.7.0.1"), leg("p1", "n2", "b3", "10.9.0.1")]);
    let orphaned = "no port, server or Node has the next hop on network nodes";
    let snapshot = seen(&cloud).await;
    assert_eq!(classes(&snapshot), [orphaned, "the next hop is on no subnet that the router is attached to"]);
    let unconnected = routes::plan::classify::unconnected(&snapshot);
    assert_eq!(unconnected, snapshot.routes[1..]);

    // The gateway's network may have 10.8.0.0/24 as well.
    let leg_outside = port("p2", "n3", ("network:router_gateway", "r1"), "b5", "10.8.0.1");
    let leg_inside = leg("p0", "n1", "b1", "10.7.0.1");
    devices(&site, "r1", &[leg_inside.clone(), leg_outside]);
    assert_eq!(
        classes(&seen(&cloud).await),
        [orphaned, "the next hop is on no subnet that is visible to this project"]
    );

    // A subnet that is not listed may be any.
    devices(&site, "r1", &[leg_inside, leg("p3", "n1", "b6", "10.8.0.1")]);
    assert_eq!(
        classes(&seen(&cloud).await),
        [orphaned, "the next hop is on no subnet that is visible to this project"]
    );
    site.was_strict();
}

/// Clusters of one template have networks of one name and the same addresses, and Nova says no more than the name.
#[tokio::test]
async fn a_server_on_another_network_of_the_same_name_does_not_count() {
    let (site, cloud) =
        site(&[route(1, "10.7.0.5"), route(2, "10.7.0.13"), route(3, "10.7.0.14"), route(4, "10.7.0.15")])
            .await;
    let list = [
        ("s5", "nodes", "10.7.0.5"),
        ("s13", "nodes", "10.7.0.13"),
        ("s14", "nodes", "10.7.0.14"),
        ("s15", "nodes", "10.7.0.15"),
        ("s16", "other", "10.7.0.13"),
    ];
    servers(&site, &list);
    devices(&site, "s13", &[port("p13", "n8", ("compute:nova", "s13"), "b8", "10.7.0.13")]);
    // It came after the network's ports were listed.
    devices(&site, "s14", &[port("p14", "n1", ("compute:nova", "s14"), "b1", "10.7.0.14")]);
    devices(&site, "s15", &[]);
    let orphaned = "no port, server or Node has the next hop on network nodes";
    let (fourteen, fifteen) = ("server s14, according to Nova", "server s15, according to Nova");
    assert_eq!(classes(&seen(&cloud).await), ["server s5", orphaned, fourteen, fifteen]);
    assert_eq!(site.count(&format!("GET {AT}/ports?device_id=s")), 3, "whose port is seen is not asked for");

    servers(&site, &[&list[..], &[("s23", "nodes", "10.7.0.13")]].concat());
    devices(&site, "s23", &[]);
    let other = "server s23, according to Nova";
    assert_eq!(classes(&seen(&cloud).await), ["server s5", other, fourteen, fifteen]);
    site.was_strict();
}
