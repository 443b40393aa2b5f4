//! R1 to R13 of docs/routegc.md.

use e2e::fault_proxy::{Fault, Matcher, Reply, Then, When};
use e2e::natgw::TIMEOUT;
use e2e::openstack::{REGION, Service};
use e2e::routegc::{TestEnv, hop, pods};
use http::{Method, StatusCode};
use serde_json::{Value, json};

/// Two nodes, one orphaned route, and the policy `prod`; without Nova.
async fn cluster() -> TestEnv {
    let env = TestEnv::start().await.unwrap();
    populate(&env).await;
    env
}

async fn populate(env: &TestEnv) {
    env.populate(2, 1).await.unwrap();
    env.policy("prod", json!({})).await.unwrap();
}

/// R1: another client adds routes between routegc's read and its removal.
#[tokio::test]
async fn r1_a_route_that_is_added_concurrently_is_not_lost() {
    let env = cluster().await;
    env.reconcile_times(1).await.unwrap();
    let project = env.project.clone();
    // The first write of the second reconciliation is its intent in the status, the second one is the removal.
    let fired = env.writes.on_write(2, When::BeforeForward, move || async move {
        project.add_routes(&[("192.168.50.0/24", "10.7.1.2"), ("10.244.9.0/24", "10.7.1.2")]).await.unwrap();
        Then::GoOn
    });
    env.reconcile_times(1).await.unwrap();
    fired.unwrap().wait(TIMEOUT).await.unwrap();
    let left = env.destinations().await.unwrap();
    assert_eq!(left, ["10.244.1.0/24", "10.244.2.0/24", "10.244.9.0/24", "192.168.50.0/24"]);
}

/// R2: Nova lists a server of a failed cell, a server without addresses, or fails. A server whose only port is on a network without
/// subnets has no address in a complete list.
#[tokio::test]
async fn r2_an_incomplete_list_of_servers_removes_nothing() {
    let env = TestEnv::with_nova().await.unwrap();
    populate(&env).await;
    let nova = env.nova.as_ref().unwrap();
    let api = env.project.api();
    let network =
        api.create(Service::Network, "/networks", "network", json!({ "name": "l2" })).await.unwrap();
    let port = json!({ "network_id": network["id"], "device_id": "l2-only", "device_owner": "compute:nova" });
    let port = api.create(Service::Network, "/ports", "port", port).await.unwrap();
    assert_eq!(port["fixed_ips"], json!([]));
    nova.add_entry(
        json!({ "id": "l2-only", "name": "l2-only", "status": "ACTIVE", "addresses": { "l2": [] } }),
    );
    env.reconcile_times(1).await.unwrap();
    nova.add_entry(json!({ "id": "cell-is-down", "status": "UNKNOWN" }));
    for _ in 0..3 {
        assert!(env.failing_reconcile().await.unwrap().contains("cell-is-down has the status UNKNOWN"));
    }
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "!PartialInventory");
    nova.change(|servers| servers.retain(|server| server["status"] != "UNKNOWN"));
    nova.add_entry(json!({ "id": "no-addresses", "name": "x", "status": "ACTIVE" }));
    assert!(env.failing_reconcile().await.unwrap().contains("no-addresses"));
    nova.fail();
    assert!(env.failing_reconcile().await.unwrap().contains("cannot list the servers in Nova"));
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "!PartialInventory");
    assert_eq!(env.destinations().await.unwrap().len(), 3);
    // Confirmations are kept: the next complete reconciliation is the second one.
    nova.change(|servers| servers.retain(|server| server["id"] != "no-addresses"));
    env.reconcile_times(1).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
    // If a port of the server has an address that Nova does not list, the list is incomplete.
    env.project.port(Some(&hop(9)), Some("l2-only")).await.unwrap();
    assert!(env.failing_reconcile().await.unwrap().contains("has a port with one"));
}

/// R2: a Nova older than microversion 2.69 does not report failed cells. Then only ports are used.
#[tokio::test]
async fn r2_an_old_nova_is_not_a_source() {
    let env = TestEnv::with_nova().await.unwrap();
    populate(&env).await;
    env.project.port(Some(&hop(4)), Some("00000000-0000-4000-8000-0000000000ff")).await.unwrap();
    env.orphaned_route(4).await.unwrap();
    env.nova.as_ref().unwrap().limit_to_microversion_2_65();
    env.reconcile_times(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2), pods(4)]);
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "NoOrphans");
}

/// R2: the catalogue has Nova only at `/v2`, without microversions.
#[tokio::test]
#[ignore = "full: the test of an old Nova has the rule"]
async fn r2_a_nova_without_microversions_is_not_a_source() {
    let env = TestEnv::with_nova().await.unwrap();
    populate(&env).await;
    env.project.port(Some(&hop(4)), Some("00000000-0000-4000-8000-0000000000ff")).await.unwrap();
    env.orphaned_route(4).await.unwrap();
    let nova = env.nova.as_ref().unwrap().proxy();
    let services = [("network", env.neutron.url()), ("compute", nova.url() + "/v2")];
    env.openstack.region("OldNova", &services).await.unwrap();
    let login = env.project.clouds_yaml().unwrap().replace(REGION, "OldNova");
    env.secret("cloud-config", &login).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2), pods(4)]);
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "NoOrphans");
    assert!(nova.requests().is_empty(), "it gets no request");
}

/// R3: without any server the project is probably wrong.
#[tokio::test]
async fn r3_an_empty_inventory_removes_nothing() {
    let env = TestEnv::start().await.unwrap();
    env.populate(0, 3).await.unwrap();
    env.policy("prod", json!({})).await.unwrap();
    for _ in 0..3 {
        env.failing_reconcile().await.unwrap();
    }
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "!EmptyInventory");
    assert_eq!(env.destinations().await.unwrap().len(), 3);
    assert!(env.status("prod").await.unwrap().candidates.is_empty());
}

/// R4: a server that is being built has no address in Nova yet. R5: an appliance's port, and an address pair, belong to no server. R6: the
/// ports of Zun and Kuryr have the owner of a server's port, but Nova does not know their containers; a softly deleted server is in no
/// list, but can be restored. Only the next hop whose port is of a server that Nova does not know is orphaned, in Audit and in Enforce.
#[tokio::test]
async fn r4_r5_r6_ports_that_nova_does_not_list_are_valid_next_hops_unless_their_server_is_gone() {
    let env = TestEnv::with_nova().await.unwrap();
    populate(&env).await;
    let routes = [4, 5, 6, 7, 8].map(|number| (pods(number), hop(number)));
    let routes: Vec<_> = routes.iter().map(|(pods, hop)| (pods.as_str(), hop.as_str())).collect();
    env.project.add_routes(&routes).await.unwrap();
    let nova = env.nova.as_ref().unwrap();
    env.project.port(Some(&hop(3)), Some("00000000-0000-4000-8000-0000000000ff")).await.unwrap();
    let building = "00000000-0000-4000-8000-00000000b01d";
    env.project.port(Some(&hop(4)), Some(building)).await.unwrap();
    nova.add_entry(json!({ "id": building, "name": "b", "status": "BUILD", "addresses": {} }));
    let appliance = env.project.port(Some(&hop(5)), None).await.unwrap();
    let pair = json!({ "port": { "allowed_address_pairs": [{ "ip_address": hop(6) }] } });
    env.project.api().put(Service::Network, &format!("/ports/{appliance}"), pair).await.unwrap();
    let fixed = json!([{ "subnet_id": env.project.subnet, "ip_address": hop(7) }]);
    let port = json!({ "network_id": env.project.network, "fixed_ips": fixed,
        "device_id": "00000000-0000-4000-8000-00000000c0de", "device_owner": "compute:kuryr" });
    env.project.api().create(Service::Network, "/ports", "port", port).await.unwrap();
    let deleted = "00000000-0000-4000-8000-0000000000fe";
    env.project.port(Some(&hop(8)), Some(deleted)).await.unwrap();
    nova.add_entry(
        json!({ "id": deleted, "name": "soft", "status": "SOFT_DELETED", "addresses": { "nodes": [] } }),
    );
    env.patch("prod", json!({ "spec": { "mode": "Audit" } })).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    let candidates = env.status("prod").await.unwrap().candidates;
    let found: Vec<_> = candidates.iter().map(|one| (one.nexthop.clone(), one.reason.as_str())).collect();
    assert_eq!(found, [(hop(3), "ServerGone")]);
    env.patch("prod", json!({ "spec": { "mode": "Enforce" } })).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [1, 2, 4, 5, 6, 7, 8].map(pods));
    let counts = env.status("prod").await.unwrap().counts.unwrap();
    assert_eq!((counts.valid, counts.orphan), (7, 0));
    let events = env.events().await.unwrap();
    assert!(events.iter().all(|(reason, _)| reason != "Skipped"), "{events:?}");
    let asked = |request: &&e2e::fault_proxy::Recorded| request.path.ends_with("-8000-000000000001");
    assert_eq!(
        nova.proxy().requests().iter().filter(asked).count(),
        0,
        "listed servers are not requested one by one"
    );
}

/// R5: an administrator attached a network of another project, which the project cannot see. Only next hops on it are unknown.
#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn r5_only_next_hops_on_an_invisible_network_are_unknown() {
    let env = cluster().await;
    let admin = env.openstack.admin();
    let network = admin.create(Service::Network, "/networks", "network", json!({ "name": "theirs" })).await;
    let subnet = json!({ "network_id": network.unwrap()["id"], "ip_version": 4, "cidr": "10.8.0.0/16", "enable_dhcp": false });
    let subnet = admin.create(Service::Network, "/subnets", "subnet", subnet).await.unwrap();
    let path = format!("/routers/{}/add_router_interface", env.project.router);
    admin.put(Service::Network, &path, json!({ "subnet_id": subnet["id"] })).await.unwrap();
    env.project.add_routes(&[("10.244.8.0/24", "10.8.0.9")]).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2), pods(8)]);
    assert_eq!(env.status("prod").await.unwrap().counts.unwrap().unknown, 1);
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "UnknownNextHops");
    let message = &env.status("prod").await.unwrap().conditions[0].message;
    assert!(message.contains("10.244.8.0/24 via 10.8.0.9"), "{message}");
}

/// R6: a server has the same address on another network with the same name. Nova reports only the network's name.
#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn r6_the_same_address_on_another_network_does_not_make_a_next_hop_valid() {
    let env = TestEnv::with_nova().await.unwrap();
    populate(&env).await;
    let api = env.project.api();
    let network = json!({ "name": "nodes" });
    let other = api.create(Service::Network, "/networks", "network", network).await.unwrap();
    let other = other["id"].as_str().unwrap();
    let subnet = env.project.new_subnet(other, "10.7.0.0/16", None).await.unwrap();
    let port = json!({ "network_id": other, "device_id": "x", "device_owner": "compute:nova",
        "fixed_ips": [{ "subnet_id": subnet, "ip_address": hop(3) }] });
    api.create(Service::Network, "/ports", "port", port).await.unwrap();
    let nova = env.nova.as_ref().unwrap();
    nova.add_entry(json!({ "id": "x", "name": "x", "status": "ACTIVE",
        "addresses": { "nodes": [{ "addr": hop(3), "version": 4 }] } }));
    env.reconcile_times(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
}

/// R6: another region has a Nova with the same Neutron, so an unknown server may belong to that region.
#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn r6_an_unknown_server_that_may_be_in_another_region_is_not_gone() {
    let env = TestEnv::with_nova().await.unwrap();
    populate(&env).await;
    env.project.port(Some(&hop(4)), Some("00000000-0000-4000-8000-0000000000ff")).await.unwrap();
    env.orphaned_route(4).await.unwrap();
    let services = [("network", env.neutron.url()), ("compute", "http://127.0.0.1:1/v2.1".to_owned())];
    env.openstack.region("OtherNova", &services).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2), pods(4)]);
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "UnknownNextHops");
}

/// R7: several pod networks of both families; routes that are not entirely inside one are foreign.
#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn r7_routes_outside_of_the_pod_networks_and_summary_routes_stay() {
    let env = TestEnv::start().await.unwrap();
    let project = &env.project;
    let six = project.new_subnet(&project.network, "fd00:7::/64", None).await.unwrap();
    let path = format!("/routers/{}/add_router_interface", project.router);
    project.api().put(Service::Network, &path, json!({ "subnet_id": six })).await.unwrap();
    env.node(1).await.unwrap();
    let routes = [
        ("10.244.0.0/15", "10.7.1.99"),
        ("10.244.0.0/16", "10.7.1.99"),
        ("10.244.3.0/24", "10.7.1.99"),
        ("10.250.3.0/24", "10.7.1.99"),
        ("192.168.0.0/24", "10.7.1.99"),
        ("fd00:244:0:1::/64", "fd00:7::99"),
        ("fd00:245:0:1::/64", "fd00:7::99"),
    ];
    project.add_routes(&routes).await.unwrap();
    let more = json!({
        "podCIDRs": ["10.244.0.0/16", "10.250.0.0/16", "fd00:244::/48"],
        "nodePrefixLength": { "ipv4": 24 },
        "safety": { "maxPercent": 100 },
    });
    env.policy("prod", more).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    let left = env.destinations().await.unwrap();
    let expected = ["10.244.0.0/15", "10.244.0.0/16", "10.244.1.0/24", "192.168.0.0/24", "fd00:245:0:1::/64"];
    assert_eq!(left, expected);
}

/// R9: malformed responses are errors, not panics, and remove nothing.
#[tokio::test]
async fn r9_malformed_responses_are_errors() {
    let env = TestEnv::with_nova().await.unwrap();
    populate(&env).await;
    env.reconcile_times(1).await.unwrap();
    let malformed = |path: &str, body: Value| {
        let response = Reply::status(StatusCode::OK).body(body.to_string());
        env.neutron.rule(Matcher::any().path(path), Fault::Reject(response))
    };
    for (path, body) in [
        ("/v2.0/ports", json!({ "ports": "none" })),
        ("/v2.0/ports", json!({})),
        ("/v2.0/ports", json!({ "ports": [{ "id": 7 }] })),
        ("/v2.0/networks/*", json!([])),
        ("/v2.0/routers/*", json!({ "router": null })),
        ("/v2.0/subnets", json!({ "subnets": [{ "id": "s", "network_id": "n", "cidr": "everywhere" }] })),
    ] {
        let rule = malformed(path, body);
        env.failing_reconcile().await.unwrap();
        env.neutron.remove(rule);
    }
    let nova = env.nova.as_ref().unwrap();
    for addresses in [
        json!("none"),
        json!({ "nodes": [{ "addr": 7, "version": 4 }] }),
        json!({ "nodes": [{ "addr": "x", "version": 4 }] }),
    ] {
        nova.add_entry(json!({ "id": "odd", "name": "odd", "status": "ACTIVE", "addresses": addresses }));
        env.failing_reconcile().await.unwrap();
        nova.change(|servers| servers.retain(|server| server["id"] != "odd"));
    }
    assert_eq!(env.destinations().await.unwrap().len(), 3);
}

/// R10: a route that makes Neutron refuse every change is reported, and not removed.
#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn r10_a_router_that_refuses_every_change_is_reported() {
    let env = cluster().await;
    env.reconcile_times(1).await.unwrap();
    let refusal = json!({ "NeutronError": { "type": "InvalidRoutes", "detail": "",
        "message": "Invalid format for routes: [], the nexthop is not connected with router" } });
    let response = Reply::status(StatusCode::BAD_REQUEST).body(refusal.to_string());
    let rule = env.neutron.rule(Matcher::any().path("*/remove_extraroutes"), Fault::Reject(response));
    assert!(env.failing_reconcile().await.unwrap().contains("Neutron refuses every change of this router"));
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "!RouterHasInvalidRoutes");
    assert_eq!(env.reason("prod", "RouterHasInvalidRoutes").await.unwrap(), "RouterHasInvalidRoutes");
    env.neutron.remove(rule);
    env.reconcile_times(1).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
    assert_eq!(env.reason("prod", "RouterHasInvalidRoutes").await.unwrap(), "!NoneFound");
}

/// R11: a deleted cluster has left routes on the router of another one.
#[tokio::test]
#[ignore = "full: the tests of the policy and of the plan have the rule"]
async fn r11_routes_of_a_deleted_cluster_are_removed_and_those_of_another_one_stay() {
    let env = TestEnv::start().await.unwrap();
    env.populate(2, 0).await.unwrap();
    let orphans = [("10.96.1.0/24", "10.7.1.51"), ("10.96.2.0/24", "10.7.1.52")];
    env.project.add_routes(&orphans).await.unwrap();
    env.policy("gone", json!({ "podCIDRs": ["10.96.0.0/16"] })).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
}

/// R12: a change of the policy triggers a reconciliation, but does not shorten `minAge`.
#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn r12_a_changed_policy_does_not_shorten_the_confirmations() {
    let env = cluster().await;
    env.patch("prod", json!({ "spec": { "safety": { "minAge": "10m" } } })).await.unwrap();
    for minutes in 11..15 {
        env.patch("prod", json!({ "spec": { "interval": format!("{minutes}m") } })).await.unwrap();
        env.reconcile_times(1).await.unwrap();
    }
    assert_eq!(env.destinations().await.unwrap().len(), 3);
    assert_eq!(env.status("prod").await.unwrap().candidates[0].observations, 2);
}

/// R13: one token for many reconciliations; `Retry-After` of a 429 is respected.
#[tokio::test]
async fn r13_one_token_serves_many_reconciliations_and_retry_after_is_respected() {
    let env = cluster().await;
    let response = Reply::too_many_requests(1);
    let rule = env.neutron.rule(Matcher::any().method(Method::GET).times(2), Fault::Reject(response));
    let routegc = env.routegc().unwrap().start().unwrap();
    env.wait_for_reason("prod", "Confirming").await.unwrap();
    assert_eq!(env.neutron.applied(rule), 2);
    for count in 0..3 {
        let before = env.neutron.requests().len();
        env.allow("prod", &format!("reconcile-{count}")).await.unwrap();
        env.neutron.wait_for(|requests| requests.len() > before + 1, TIMEOUT).await.unwrap();
    }
    e2e::natgw::wait_for("the removal", || async { Ok(env.destinations().await?.len() == 2) }).await.unwrap();
    let (_, metrics) = routegc.get("/metrics").await.unwrap();
    let tokens =
        metrics.lines().find(|line| line.contains("method=\"POST\"") && line.contains("requests_total"));
    assert!(tokens.unwrap().ends_with(" 1"), "{tokens:?}");
}
