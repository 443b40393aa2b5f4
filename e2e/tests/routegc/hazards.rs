//! R1 to R13: what went wrong in the original, or could.

use e2e::fault_proxy::{Answer, Fault, Matcher, Then, When};
use e2e::natgw::TIMEOUT;
use e2e::openstack::{REGION, Service};
use e2e::routegc::{TestEnv, hop, pods};
use http::{Method, StatusCode};
use serde_json::{Value, json};

/// Two nodes that live, one that is dead, and the policy `prod`.
async fn usual() -> TestEnv {
    let env = TestEnv::start().await.unwrap();
    furnish(&env).await;
    env
}

async fn furnish(env: &TestEnv) {
    env.node(1).await.unwrap();
    env.node(2).await.unwrap();
    env.dead_node(3).await.unwrap();
    env.policy("prod", json!({})).await.unwrap();
}

/// R1: a route that somebody adds between routegc's look and its removal is not lost.
#[tokio::test]
async fn r1_a_route_that_is_added_meanwhile_is_not_lost() {
    let env = usual().await;
    env.passes(1).await.unwrap();
    let project = env.project.clone();
    // The first write of the second pass is its intent in the status, the second one the removal itself.
    let fired = env.writes.on_write(2, When::BeforeForward, move || async move {
        project.add_routes(&[("192.168.50.0/24", "10.7.1.2"), ("10.244.9.0/24", "10.7.1.2")]).await.unwrap();
        Then::GoOn
    });
    env.passes(1).await.unwrap();
    fired.unwrap().wait(TIMEOUT).await.unwrap();
    let left = env.destinations().await.unwrap();
    assert_eq!(left, ["10.244.1.0/24", "10.244.2.0/24", "10.244.9.0/24", "192.168.50.0/24"]);
}

/// R2: a Nova that does not know everything, or nothing, or does not answer, removes nothing.
#[tokio::test]
async fn r2_a_partial_list_of_servers_removes_nothing() {
    let env = TestEnv::with_nova().await.unwrap();
    furnish(&env).await;
    let nova = env.nova.as_ref().unwrap();
    env.passes(1).await.unwrap();
    nova.say(json!({ "id": "cell-is-down", "status": "UNKNOWN" }));
    for _ in 0..3 {
        assert!(env.failing_pass().await.unwrap().contains("cell-is-down has the status UNKNOWN"));
    }
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "!PartialInventory");
    nova.change(|servers| servers.retain(|server| server["status"] != "UNKNOWN"));
    nova.say(json!({ "id": "no-addresses", "name": "x", "status": "ACTIVE" }));
    assert!(env.failing_pass().await.unwrap().contains("no-addresses"));
    nova.fail();
    assert!(env.failing_pass().await.unwrap().contains("cannot list the servers in Nova"));
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "!PartialInventory");
    assert_eq!(env.destinations().await.unwrap().len(), 3);
    // What was confirmed before is not forgotten: the next pass that sees everything is the second one.
    nova.change(|servers| servers.retain(|server| server["id"] != "no-addresses"));
    env.passes(1).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
}

/// R2: a port on a network without subnets is no sign that Nova does not know everything.
#[tokio::test]
async fn r2_a_server_without_any_address_stops_nobody() {
    let env = TestEnv::with_nova().await.unwrap();
    furnish(&env).await;
    let api = env.project.api();
    let network =
        api.create(Service::Network, "/networks", "network", json!({ "name": "l2" })).await.unwrap();
    let port = json!({ "network_id": network["id"], "device_id": "l2-only", "device_owner": "compute:nova" });
    let port = api.create(Service::Network, "/ports", "port", port).await.unwrap();
    assert_eq!(port["fixed_ips"], json!([]));
    let nova = env.nova.as_ref().unwrap();
    nova.say(json!({ "id": "l2-only", "name": "l2-only", "status": "ACTIVE", "addresses": { "l2": [] } }));
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
    // One with an address that Nova does not tell is something else.
    env.project.port(Some(&hop(9)), Some("l2-only")).await.unwrap();
    assert!(env.failing_pass().await.unwrap().contains("has a port with one"));
}

/// R2: a Nova that is too old to say which cells do not answer is no witness; ports are all that counts then.
#[tokio::test]
async fn r2_a_nova_that_is_too_old_is_no_witness() {
    let env = TestEnv::with_nova().await.unwrap();
    furnish(&env).await;
    env.project.port(Some(&hop(4)), Some("00000000-0000-4000-8000-0000000000ff")).await.unwrap();
    env.dead_node(4).await.unwrap();
    env.nova.as_ref().unwrap().age();
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2), pods(4)]);
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "NoOrphans");
}

/// R2: nor is one that the catalogue has without microversions alone.
#[tokio::test]
async fn r2_a_nova_without_microversions_is_no_witness() {
    let env = TestEnv::with_nova().await.unwrap();
    furnish(&env).await;
    env.project.port(Some(&hop(4)), Some("00000000-0000-4000-8000-0000000000ff")).await.unwrap();
    env.dead_node(4).await.unwrap();
    let nova = env.nova.as_ref().unwrap().proxy();
    let services = [("network", env.neutron.url()), ("compute", nova.url() + "/v2")];
    env.openstack.region("OldNova", &services).await.unwrap();
    let login = env.project.clouds_yaml().unwrap().replace(REGION, "OldNova");
    env.secret("cloud-config", &login).await.unwrap();
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2), pods(4)]);
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "NoOrphans");
    assert!(nova.requests().is_empty(), "it is not asked");
}

/// R3: not one machine in sight means that the sight is wrong.
#[tokio::test]
async fn r3_an_empty_inventory_removes_nothing() {
    let env = TestEnv::start().await.unwrap();
    for number in 1..4 {
        env.dead_node(number).await.unwrap();
    }
    env.policy("prod", json!({})).await.unwrap();
    for _ in 0..3 {
        env.failing_pass().await.unwrap();
    }
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "!EmptyInventory");
    assert_eq!(env.destinations().await.unwrap().len(), 3);
    assert!(env.status("prod").await.unwrap().candidates.is_empty());
}

/// R4: a server that is being built has no address in Nova yet; its port has.
#[tokio::test]
async fn r4_a_server_that_is_being_built_is_alive_by_its_port() {
    let env = TestEnv::with_nova().await.unwrap();
    furnish(&env).await;
    let port = env.project.port(Some(&hop(4)), Some("00000000-0000-4000-8000-00000000b01d")).await.unwrap();
    env.dead_node(4).await.unwrap();
    let nova = env.nova.as_ref().unwrap();
    nova.say(json!({ "id": "00000000-0000-4000-8000-00000000b01d", "name": "b", "status": "BUILD", "addresses": {} }));
    env.passes(3).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2), pods(4)], "port {port}");
}

/// R5: whoever has a port or an address pair lives, also if Nova has never heard of it.
#[tokio::test]
async fn r5_addresses_that_are_no_server_s_are_alive() {
    let env = TestEnv::with_nova().await.unwrap();
    furnish(&env).await;
    let appliance = env.project.port(Some(&hop(4)), None).await.unwrap();
    env.dead_node(4).await.unwrap();
    env.dead_node(5).await.unwrap();
    let pair = json!({ "port": { "allowed_address_pairs": [{ "ip_address": hop(5) }] } });
    let path = format!("/ports/{appliance}");
    env.project.api().put(Service::Network, &path, pair).await.unwrap();
    env.passes(3).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2), pods(4), pods(5)]);
    let counts = env.status("prod").await.unwrap().counts.unwrap();
    assert_eq!((counts.valid, counts.orphan), (4, 0));
}

/// R5: a network of another project that an administrator attached, and that is shown to nobody else, hides its own next hops and
/// nothing beside them.
#[tokio::test]
async fn r5_a_network_that_is_not_shown_hides_its_own_next_hops_only() {
    let env = usual().await;
    let admin = env.openstack.admin();
    let network = admin.create(Service::Network, "/networks", "network", json!({ "name": "theirs" })).await;
    let subnet = json!({ "network_id": network.unwrap()["id"], "ip_version": 4, "cidr": "10.8.0.0/16", "enable_dhcp": false });
    let subnet = admin.create(Service::Network, "/subnets", "subnet", subnet).await.unwrap();
    let path = format!("/routers/{}/add_router_interface", env.project.router);
    admin.put(Service::Network, &path, json!({ "subnet_id": subnet["id"] })).await.unwrap();
    env.project.add_routes(&[("10.244.8.0/24", "10.8.0.9")]).await.unwrap();
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2), pods(8)]);
    assert_eq!(env.status("prod").await.unwrap().counts.unwrap().unknown, 1);
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "UnknownNextHops");
    let message = &env.status("prod").await.unwrap().conditions[0].message;
    assert!(message.contains("10.244.8.0/24 via 10.8.0.9"), "{message}");
}

/// Nothing depends on how many routes a project may have but a number that is shown.
#[tokio::test]
async fn a_cloud_that_does_not_tell_its_quota_is_served() {
    let env = usual().await;
    for (status, body) in [
        (StatusCode::NOT_FOUND, "<html>404</html>"),
        (StatusCode::NOT_IMPLEMENTED, ""),
        (StatusCode::OK, r#"{"quota": null}"#),
    ] {
        let answer = Answer::status(status).body(body.to_owned());
        let rule = env.neutron.rule(Matcher::any().path("/v2.0/quotas/*"), Fault::Reject(answer));
        env.passes(1).await.unwrap();
        env.neutron.remove(rule);
    }
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
}

/// R6: the same address on another network of the project hides no orphan, even if the network has the name of the router's, which
/// is all that Nova says of it.
#[tokio::test]
async fn r6_the_same_address_on_another_network_hides_nothing() {
    let env = TestEnv::with_nova().await.unwrap();
    furnish(&env).await;
    let api = env.project.api();
    let network = json!({ "name": "nodes" });
    let other = api.create(Service::Network, "/networks", "network", network).await.unwrap();
    let other = other["id"].as_str().unwrap();
    let subnet = env.project.new_subnet(other, "10.7.0.0/16", None).await.unwrap();
    let port = json!({ "network_id": other, "device_id": "x", "device_owner": "compute:nova",
        "fixed_ips": [{ "subnet_id": subnet, "ip_address": hop(3) }] });
    api.create(Service::Network, "/ports", "port", port).await.unwrap();
    let nova = env.nova.as_ref().unwrap();
    nova.say(json!({ "id": "x", "name": "x", "status": "ACTIVE",
        "addresses": { "nodes": [{ "addr": hop(3), "version": 4 }] } }));
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
}

/// R6: a port that its server has left behind hides none either.
#[tokio::test]
async fn r6_a_port_whose_server_is_gone_hides_nothing() {
    let env = TestEnv::with_nova().await.unwrap();
    furnish(&env).await;
    env.project.port(Some(&hop(3)), Some("00000000-0000-4000-8000-0000000000ff")).await.unwrap();
    env.passes(1).await.unwrap();
    assert_eq!(env.status("prod").await.unwrap().candidates[0].reason, "ServerGone");
    env.passes(1).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
}

/// R6: where another region's Nova has this very Neutron, a server that ours does not know may be one of its.
#[tokio::test]
async fn r6_a_server_that_may_be_another_region_s_is_not_gone() {
    let env = TestEnv::with_nova().await.unwrap();
    furnish(&env).await;
    env.project.port(Some(&hop(4)), Some("00000000-0000-4000-8000-0000000000ff")).await.unwrap();
    env.dead_node(4).await.unwrap();
    let services = [("network", env.neutron.url()), ("compute", "http://127.0.0.1:1/v2.1".to_owned())];
    env.openstack.region("OtherNova", &services).await.unwrap();
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2), pods(4)]);
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "UnknownNextHops");
}

/// R6: a server that was deleted softly is in no list, and can be restored: Audit and Enforce say the same of its route.
#[tokio::test]
async fn r6_a_server_that_was_deleted_softly_is_there() {
    let env = TestEnv::with_nova().await.unwrap();
    furnish(&env).await;
    let server = "00000000-0000-4000-8000-0000000000fe";
    env.project.port(Some(&hop(4)), Some(server)).await.unwrap();
    env.dead_node(4).await.unwrap();
    let nova = env.nova.as_ref().unwrap();
    nova.say(json!({ "id": server, "name": "soft", "status": "SOFT_DELETED", "addresses": { "nodes": [] } }));
    env.patch("prod", json!({ "spec": { "mode": "Audit" } })).await.unwrap();
    env.passes(2).await.unwrap();
    let candidates = env.status("prod").await.unwrap().candidates;
    assert_eq!(candidates.iter().map(|one| one.nexthop.as_str()).collect::<Vec<_>>(), [hop(3)]);
    env.patch("prod", json!({ "spec": { "mode": "Enforce" } })).await.unwrap();
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2), pods(4)]);
    let events = env.events().await.unwrap();
    assert!(events.iter().all(|(reason, _)| reason != "Skipped"), "{events:?}");
    let asked = |request: &&e2e::fault_proxy::Recorded| request.path.ends_with("-8000-000000000001");
    assert_eq!(
        nova.proxy().requests().iter().filter(asked).count(),
        0,
        "those in the list are not asked for"
    );
}

/// R6: Zun's and Kuryr's ports look like those of servers, with IDs of containers: Nova has never heard of these.
#[tokio::test]
async fn r6_a_container_is_no_server_that_is_gone() {
    let env = TestEnv::with_nova().await.unwrap();
    furnish(&env).await;
    let fixed = json!([{ "subnet_id": env.project.subnet, "ip_address": hop(4) }]);
    let port = json!({ "network_id": env.project.network, "fixed_ips": fixed,
        "device_id": "00000000-0000-4000-8000-00000000c0de", "device_owner": "compute:kuryr" });
    env.project.api().create(Service::Network, "/ports", "port", port).await.unwrap();
    env.dead_node(4).await.unwrap();
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2), pods(4)]);
}

/// R7: several networks of both families; what is not wholly inside is nobody's business.
#[tokio::test]
async fn r7_several_networks_of_both_families_and_no_summary_route() {
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
    env.passes(2).await.unwrap();
    let left = env.destinations().await.unwrap();
    let expected = ["10.244.0.0/15", "10.244.0.0/16", "10.244.1.0/24", "192.168.0.0/24", "fd00:245:0:1::/64"];
    assert_eq!(left, expected);
}

/// R8: control-plane machines are machines too, whether they have pods of their own or not.
#[tokio::test]
async fn r8_a_route_to_a_control_plane_machine_is_valid() {
    let env = usual().await;
    env.project.port(Some(&hop(10)), Some("00000000-0000-4000-8000-0000000000aa")).await.unwrap();
    env.project.add_routes(&[(&pods(10), &hop(10))]).await.unwrap();
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(10), pods(2)]);
}

/// R9: odd answers are errors, not panics, and remove nothing.
#[tokio::test]
async fn r9_odd_answers_are_errors() {
    let env = TestEnv::with_nova().await.unwrap();
    furnish(&env).await;
    env.passes(1).await.unwrap();
    let odd = |path: &str, body: Value| {
        let answer = Answer::status(StatusCode::OK).body(body.to_string());
        env.neutron.rule(Matcher::any().path(path), Fault::Reject(answer))
    };
    for (path, body) in [
        ("/v2.0/ports", json!({ "ports": "none" })),
        ("/v2.0/ports", json!({})),
        ("/v2.0/ports", json!({ "ports": [{ "id": 7 }] })),
        ("/v2.0/networks/*", json!([])),
        ("/v2.0/routers/*", json!({ "router": null })),
        ("/v2.0/subnets", json!({ "subnets": [{ "id": "s", "network_id": "n", "cidr": "everywhere" }] })),
    ] {
        let rule = odd(path, body);
        env.failing_pass().await.unwrap();
        env.neutron.remove(rule);
    }
    let nova = env.nova.as_ref().unwrap();
    for addresses in [
        json!("none"),
        json!({ "nodes": [{ "addr": 7, "version": 4 }] }),
        json!({ "nodes": [{ "addr": "x", "version": 4 }] }),
    ] {
        nova.say(json!({ "id": "odd", "name": "odd", "status": "ACTIVE", "addresses": addresses }));
        env.failing_pass().await.unwrap();
        nova.change(|servers| servers.retain(|server| server["id"] != "odd"));
    }
    assert_eq!(env.destinations().await.unwrap().len(), 3);
}

/// R10: a route that makes Neutron refuse every change is named, and not repaired.
#[tokio::test]
async fn r10_a_router_that_refuses_every_change_is_reported() {
    let env = usual().await;
    env.passes(1).await.unwrap();
    let refusal = json!({ "NeutronError": { "type": "InvalidRoutes", "detail": "",
        "message": "Invalid format for routes: [], the nexthop is not connected with router" } });
    let answer = Answer::status(StatusCode::BAD_REQUEST).body(refusal.to_string());
    let rule = env.neutron.rule(Matcher::any().path("*/remove_extraroutes"), Fault::Reject(answer));
    assert!(env.failing_pass().await.unwrap().contains("Neutron refuses every change of this router"));
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "!RouterHasInvalidRoutes");
    assert_eq!(env.reason("prod", "RouterHasInvalidRoutes").await.unwrap(), "RouterHasInvalidRoutes");
    env.neutron.remove(rule);
    env.passes(1).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
    assert_eq!(env.reason("prod", "RouterHasInvalidRoutes").await.unwrap(), "!NoneFound");
}

/// R11: a cluster that is gone leaves routes; another one on the same router is not touched.
#[tokio::test]
async fn r11_routes_of_a_cluster_that_is_gone_are_removed_beside_another_one() {
    let env = TestEnv::start().await.unwrap();
    env.node(1).await.unwrap();
    env.node(2).await.unwrap();
    let dead = [("10.96.1.0/24", "10.7.1.51"), ("10.96.2.0/24", "10.7.1.52")];
    env.project.add_routes(&dead).await.unwrap();
    env.policy("gone", json!({ "podCIDRs": ["10.96.0.0/16"] })).await.unwrap();
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
}

/// R12: a change of the policy brings a pass, and no removal without its confirmations.
#[tokio::test]
async fn r12_a_change_of_the_policy_hastens_no_removal() {
    let env = usual().await;
    env.patch("prod", json!({ "spec": { "safety": { "minAge": "10m" } } })).await.unwrap();
    for minutes in 11..15 {
        env.patch("prod", json!({ "spec": { "interval": format!("{minutes}m") } })).await.unwrap();
        env.passes(1).await.unwrap();
    }
    assert_eq!(env.destinations().await.unwrap().len(), 3);
    assert_eq!(env.status("prod").await.unwrap().candidates[0].observations, 2);
}

/// R13: one token for many passes, and a cloud that asks for timeout gets it.
#[tokio::test]
async fn r13_a_token_serves_many_passes_and_patience_is_given() {
    let env = usual().await;
    let answer = Answer::status(StatusCode::TOO_MANY_REQUESTS).retry_after(1);
    let rule = env.neutron.rule(Matcher::any().method(Method::GET).times(2), Fault::Reject(answer));
    let routegc = env.routegc().unwrap().start().unwrap();
    env.wait_for_reason("prod", "Confirming").await.unwrap();
    assert_eq!(env.neutron.applied(rule), 2);
    for again in 0..3 {
        let before = env.neutron.requests().len();
        env.allow("prod", &format!("again-{again}")).await.unwrap();
        env.neutron.wait_for(|requests| requests.len() > before + 1, TIMEOUT).await.unwrap();
    }
    e2e::natgw::wait_for("the removal", || async { Ok(env.destinations().await?.len() == 2) }).await.unwrap();
    let (_, metrics) = routegc.get("/metrics").await.unwrap();
    let tokens =
        metrics.lines().find(|line| line.contains("method=\"POST\"") && line.contains("requests_total"));
    assert!(tokens.unwrap().ends_with(" 1"), "{tokens:?}");
}
