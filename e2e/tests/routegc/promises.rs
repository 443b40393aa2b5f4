//! What a user is promised.

use e2e::fault_proxy::{Answer, Fault, Matcher};
use e2e::natgw::wait_for;
use e2e::openstack::{Release, Service};
use e2e::routegc::{TestEnv, hop, pods};
use http::StatusCode;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

async fn cluster(living: u8, dead: u8) -> TestEnv {
    let env = TestEnv::start().await.unwrap();
    for number in 1..=living {
        env.node(number).await.unwrap();
    }
    for number in living + 1..=living + dead {
        env.dead_node(number).await.unwrap();
    }
    env
}

/// Audit, the default, says what Enforce would do, and writes nothing to OpenStack.
#[tokio::test]
async fn audit_reports_and_enforce_removes() {
    let env = cluster(2, 1).await;
    env.policy("prod", json!({ "mode": "Audit" })).await.unwrap();
    env.passes(3).await.unwrap();
    assert!(env.neutron.writes().is_empty());
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "OrphansFound");
    let status = env.status("prod").await.unwrap();
    let counts = status.counts.unwrap();
    assert_eq!((counts.valid, counts.orphan, status.quota.unwrap().routes), (2, 1, 3));
    let events = env.events().await.unwrap();
    assert!(
        events.iter().any(|(reason, note)| reason == "OrphansFound" && note.contains(&pods(3))),
        "{events:?}"
    );

    env.patch("prod", json!({ "spec": { "mode": "Enforce" } })).await.unwrap();
    env.passes(1).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
    let status = env.status("prod").await.unwrap();
    assert_eq!(
        (status.last_removed[0].destination.as_str(), status.last_removed[0].times),
        ("10.244.3.0/24", 1)
    );
    assert!(status.candidates.is_empty() && status.removing.is_empty());
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "NoOrphans");
    let events = env.events().await.unwrap();
    assert!(
        events.iter().any(|(reason, note)| reason == "NoPort" && note.contains("remove route")),
        "{events:?}"
    );
    // Two conditions of Neutron's own that a removal rests on, seen on the wire.
    let removal = &env.neutron.writes()[0];
    assert!(removal.path.ends_with("/remove_extraroutes"));
    assert_eq!(removal.json().unwrap()["router"]["routes"][0]["destination"], "10.244.3.0/24");
}

/// The same on the oldest release that is supported.
#[tokio::test]
#[ignore = "full: the oldest OpenStack"]
async fn the_oldest_release_is_served_too() {
    let env = TestEnv::with(Release::Oldest, false).await.unwrap();
    env.node(1).await.unwrap();
    env.dead_node(2).await.unwrap();
    env.policy("prod", json!({})).await.unwrap();
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1)]);
    assert_eq!(env.status("prod").await.unwrap().quota.unwrap().limit, None, "it has no such quota");
}

/// `--dry-run` says what a pass does next, to the route, and writes nothing anywhere.
#[tokio::test]
async fn a_dry_run_says_exactly_what_a_pass_does() {
    let env = cluster(2, 1).await;
    env.policy("prod", json!({})).await.unwrap();
    let first: Value = serde_json::from_str(&env.dry_run(&["--output", "json"]).await.unwrap()).unwrap();
    assert_eq!(first["policies"][0]["plan"]["steps"], json!([]), "nothing is removed at first sight");
    assert_eq!(first["policies"][0]["counts"]["orphan"], 1);
    assert_eq!(env.writes.count(), 0);
    env.passes(1).await.unwrap();
    let text = env.dry_run(&[]).await.unwrap();
    assert!(text.contains("1. remove route 10.244.3.0/24 via 10.7.1.3 from router"), "{text}");
    assert!(text.contains("10.244.1.0/24  10.7.1.1  valid    server"), "{text}");
    env.passes(1).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
    assert!(env.dry_run(&[]).await.unwrap().contains("nothing to do"));
}

/// In a steady state nothing is written, neither to the API server nor to OpenStack, and no new Event either.
#[tokio::test]
async fn nothing_is_written_while_nothing_is_new() {
    let env = cluster(2, 1).await;
    env.policy("prod", json!({ "mode": "Audit" })).await.unwrap();
    env.passes(2).await.unwrap();
    let (writes, version) =
        (env.writes.count(), env.policies().get("prod").await.unwrap().metadata.resource_version);
    env.passes(5).await.unwrap();
    assert_eq!(env.writes.count(), writes);
    assert_eq!(env.policies().get("prod").await.unwrap().metadata.resource_version, version);
}

/// Two policies that judge the same routes of one router act neither; when one goes, the other does its work.
#[tokio::test]
async fn overlapping_policies_refuse_both() {
    let env = cluster(2, 1).await;
    env.policy("one", json!({})).await.unwrap();
    env.policy("two", json!({ "podCIDRs": ["10.244.0.0/20"] })).await.unwrap();
    env.policy("apart", json!({ "podCIDRs": ["10.99.0.0/16"] })).await.unwrap();
    for _ in 0..3 {
        env.failing_pass().await.unwrap();
    }
    for (name, other) in [("one", "two"), ("two", "one")] {
        assert_eq!(env.reason(name, "Ready").await.unwrap(), "!Conflict");
        let status = env.status(name).await.unwrap();
        assert!(status.conditions[0].message.contains(&format!("RouteGC {other} covers 10.244.0.0/")));
    }
    assert_eq!(env.reason("apart", "Ready").await.unwrap(), "NoOrphans");
    assert_eq!(env.destinations().await.unwrap().len(), 3);
    env.policies().delete("two", &Default::default()).await.unwrap();
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
}

/// Too many at once: none goes, until a person lets exactly this list through.
#[tokio::test]
async fn a_threshold_holds_until_exactly_this_list_is_let_through() {
    let env = cluster(2, 4).await;
    env.policy("prod", json!({})).await.unwrap();
    env.passes(2).await.unwrap();
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "!SafetyThreshold");
    assert_eq!(env.reason("prod", "SafetyThreshold").await.unwrap(), "SafetyThreshold");
    assert_eq!(env.destinations().await.unwrap().len(), 6);
    let hash = env.status("prod").await.unwrap().removal_hash.unwrap();
    let events = env.events().await.unwrap();
    assert!(
        events.iter().any(|(reason, note)| reason == "SafetyThreshold" && note.contains(&hash)),
        "{events:?}"
    );
    // Another list has another hash.
    env.dead_node(7).await.unwrap();
    env.passes(2).await.unwrap();
    env.allow("prod", &hash).await.unwrap();
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap().len(), 7);
    let hash = env.status("prod").await.unwrap().removal_hash.unwrap();
    env.allow("prod", &hash).await.unwrap();
    env.passes(1).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
    assert_eq!(env.status("prod").await.unwrap().removal_hash, None);
}

/// What is confirmed stays confirmed over a restart; a route that comes to life once begins anew.
#[tokio::test]
async fn confirmations_survive_a_restart_and_no_revival() {
    let env = cluster(2, 1).await;
    env.policy("prod", json!({ "safety": { "confirmations": 3, "minAge": "0s" } })).await.unwrap();
    env.passes(2).await.unwrap();
    let before = env.status("prod").await.unwrap().candidates;
    assert_eq!(before[0].observations, 2);
    let port = env.project.port(Some(&hop(3)), None).await.unwrap();
    env.passes(1).await.unwrap();
    assert!(env.status("prod").await.unwrap().candidates.is_empty());
    let path = format!("/ports/{port}");
    env.project.api().delete(e2e::openstack::Service::Network, &path).await.unwrap();
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap().len(), 3);
    env.passes(1).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
}

/// A route that somebody puts back is left alone and reported.
#[tokio::test]
async fn a_route_that_is_put_back_is_contested() {
    let env = cluster(2, 1).await;
    env.policy("prod", json!({})).await.unwrap();
    env.passes(2).await.unwrap();
    env.dead_node(3).await.unwrap();
    env.passes(4).await.unwrap();
    assert_eq!(env.destinations().await.unwrap().len(), 3);
    assert_eq!(env.neutron.writes().len(), 1, "removed once, not again and again");
    assert_eq!(env.reason("prod", "Contested").await.unwrap(), "Contested");
    let status = env.status("prod").await.unwrap();
    assert_eq!((status.contested[0].times, status.counts.unwrap().contested), (1, 1));
}

/// A Nova server or a port that appears between the plan and the removal spares the route.
#[tokio::test]
async fn the_last_look_spares_a_next_hop_that_has_just_come() {
    let env = cluster(2, 1).await;
    env.policy("prod", json!({})).await.unwrap();
    env.passes(1).await.unwrap();
    let project = env.project.clone();
    // The intent is the first write; the last look comes after it.
    let fired = env.writes.on_write(1, e2e::fault_proxy::When::AfterServerActed, move || async move {
        project.port(Some("10.7.1.3"), None).await.unwrap();
        e2e::fault_proxy::Then::GoOn
    });
    env.passes(1).await.unwrap();
    fired.unwrap().wait(e2e::natgw::TIMEOUT).await.unwrap();
    assert_eq!(env.destinations().await.unwrap().len(), 3);
    assert!(env.neutron.writes().is_empty());
    let events = env.events().await.unwrap();
    assert!(events.iter().any(|(reason, _)| reason == "Skipped"), "{events:?}");
}

/// Whoever stops a policy while a pass of it looks for the last time has stopped it.
#[tokio::test]
async fn a_policy_that_is_stopped_during_the_last_look_removes_nothing() {
    for delete in [false, true] {
        let env = cluster(2, 1).await;
        env.policy("prod", json!({})).await.unwrap();
        env.passes(1).await.unwrap();
        let policies = env.policies();
        // The intent is the first write; the last look comes after it.
        let fired = env.writes.on_write(1, e2e::fault_proxy::When::AfterServerActed, move || async move {
            if delete {
                policies.delete("prod", &DeleteParams::default()).await.unwrap();
            } else {
                let audit = Patch::Merge(json!({ "spec": { "mode": "Audit" } }));
                policies.patch("prod", &PatchParams::default(), &audit).await.unwrap();
            }
            e2e::fault_proxy::Then::GoOn
        });
        assert!(env.failing_pass().await.unwrap().contains("PolicyChanged"));
        fired.unwrap().wait(e2e::natgw::TIMEOUT).await.unwrap();
        env.passes(1).await.unwrap();
        assert_eq!(env.destinations().await.unwrap().len(), 3);
        assert!(env.neutron.writes().is_empty());
        if !delete {
            let status = env.status("prod").await.unwrap();
            assert!(status.removing.is_empty() && status.last_removed.is_empty(), "{status:?}");
            assert_eq!(env.reason("prod", "Ready").await.unwrap(), "OrphansFound");
        }
    }
}

/// Neutron cannot be asked for pairs of one address: all ports are read again.
#[tokio::test]
async fn the_last_look_sees_address_pairs_that_have_just_come() {
    let env = cluster(2, 2).await;
    env.policy("prod", json!({})).await.unwrap();
    env.passes(1).await.unwrap();
    let project = env.project.clone();
    // routegc waits nine seconds for an answer of the API server: a single request fits into that on a busy machine as well.
    let port = project.port(Some("10.7.1.50"), None).await.unwrap();
    let fired = env.writes.on_write(1, e2e::fault_proxy::When::AfterServerActed, move || async move {
        let pairs = json!({ "port": { "allowed_address_pairs": [{ "ip_address": "10.7.1.3" }] } });
        let path = format!("/ports/{port}");
        project.api().put(e2e::openstack::Service::Network, &path, pairs).await.unwrap();
        e2e::fault_proxy::Then::GoOn
    });
    env.passes(1).await.unwrap();
    fired.unwrap().wait(e2e::natgw::TIMEOUT).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2), pods(3)]);
    let events = env.events().await.unwrap();
    assert!(events.iter().any(|(reason, _)| reason == "Skipped"), "{events:?}");
}

/// A pair for a range is no sign of life, and none of death: the route stays, and a person is told which port it is.
#[tokio::test]
async fn a_wide_address_pair_is_named_and_its_routes_stay() {
    let env = cluster(2, 1).await;
    let port = env.project.port(Some("10.7.1.50"), None).await.unwrap();
    let pairs = json!({ "port": { "allowed_address_pairs": [{ "ip_address": "10.7.0.0/16" }] } });
    let path = format!("/ports/{port}");
    env.project.api().put(e2e::openstack::Service::Network, &path, pairs).await.unwrap();
    env.policy("prod", json!({})).await.unwrap();
    env.passes(3).await.unwrap();
    assert_eq!(env.destinations().await.unwrap().len(), 3);
    for condition in ["Ready", "WideAddressPair"] {
        assert_eq!(env.reason("prod", condition).await.unwrap(), "WideAddressPair");
    }
    let events = env.events().await.unwrap();
    let told = |(reason, note): &(String, String)| reason == "WideAddressPair" && note.contains(&port);
    assert!(events.iter().any(told), "{events:?}");
}

/// A port without port security may have any address of its network, as a keepalived on it does: it is said which port that is,
/// and a person may say that there is no such address. Neutron's own ports never have port security.
#[tokio::test]
async fn a_port_without_port_security_is_named_and_its_routes_stay() {
    let env = cluster(2, 1).await;
    let network =
        json!({ "device_owner": "network:dhcp", "device_id": "dhcp", "network_id": env.project.network });
    let dhcp = env.openstack.admin().create(Service::Network, "/ports", "port", network).await.unwrap();
    assert_eq!(dhcp["port_security_enabled"], false, "the real one makes it so");
    let port = env.project.port(Some("10.7.1.50"), None).await.unwrap();
    env.policy("prod", json!({})).await.unwrap();
    env.passes(1).await.unwrap();
    assert_eq!(env.status("prod").await.unwrap().candidates.len(), 1);
    let open = json!({ "port": { "port_security_enabled": false, "security_groups": [] } });
    env.project.api().put(Service::Network, &format!("/ports/{port}"), open).await.unwrap();
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap().len(), 3);
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "WideAddressPair");
    let events = env.events().await.unwrap();
    let told = |(reason, note): &(String, String)| {
        reason == "WideAddressPair" && note.contains(&format!("port {port} (no port security)"))
    };
    assert!(events.iter().any(told), "{events:?}");
    env.patch("prod", json!({ "spec": { "safety": { "ignoreOpenPorts": true } } })).await.unwrap();
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
}

/// 412: somebody else was faster. It is tried again on what is then there.
#[tokio::test]
async fn a_router_that_changes_under_the_removal_is_read_again() {
    let env = cluster(2, 1).await;
    env.policy("prod", json!({})).await.unwrap();
    env.passes(1).await.unwrap();
    let answer = Answer::status(StatusCode::PRECONDITION_FAILED);
    let matcher = Matcher::any().path("*/remove_extraroutes");
    let rule = env.neutron.rule(matcher.times(2), Fault::Reject(answer));
    env.passes(1).await.unwrap();
    assert_eq!(env.neutron.applied(rule), 2);
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
}

/// A refusal that lasts is said once, and nobody is told that routegc removed what somebody else did.
#[tokio::test]
async fn a_refusal_that_lasts_is_written_once() {
    let env = cluster(2, 1).await;
    env.policy("prod", json!({ "safety": { "confirmations": 1, "minAge": "0s" } })).await.unwrap();
    let refusal = json!({ "NeutronError": { "type": "PolicyNotAuthorized", "message": "no", "detail": "" } });
    let answer = Answer::status(StatusCode::FORBIDDEN).body(refusal.to_string());
    let rule = env.neutron.rule(Matcher::any().path("*/remove_extraroutes"), Fault::Reject(answer));
    let routegc = env.routegc().unwrap().start().unwrap();
    env.wait_for_reason("prod", "!Forbidden").await.unwrap();
    let ready = async || {
        let conditions = env.status("prod").await.unwrap().conditions;
        conditions.into_iter().find(|one| one.kind == "Ready").unwrap()
    };
    let first = ready().await;
    let passes = async |more: u64| {
        for _ in 0..more {
            let before = env.neutron.applied(rule);
            env.allow("prod", &format!("pass {before}")).await.unwrap();
            let next = || async { Ok(env.neutron.applied(rule) > before) };
            wait_for("the next pass", next).await.unwrap();
        }
    };
    let written = || {
        let requests = env.api_proxy.requests();
        requests.iter().filter(|one| one.method == "PUT" && one.path.ends_with("/prod/status")).count()
    };
    // The second refusal leaves the intent where it is: from then on there is nothing to write.
    passes(3).await;
    let before = written();
    passes(4).await;
    assert_eq!(written(), before);
    assert_eq!(ready().await, first, "it never was anything else");
    env.project.remove_routes(&[(&pods(3), &hop(3))]).await.unwrap();
    env.allow("prod", "one more").await.unwrap();
    env.wait_for_reason("prod", "NoOrphans").await.unwrap();
    let status = env.status("prod").await.unwrap();
    assert!(status.removing.is_empty() && status.last_removed.is_empty(), "{status:?}");
    drop(routegc);

    // A process of its own for each pass knows nothing of the one before but what is written.
    env.dead_node(4).await.unwrap();
    env.failing_pass().await.unwrap();
    assert!(env.status("prod").await.unwrap().removing.is_empty());
    env.neutron.remove(rule);
    let answer = Answer::status(StatusCode::BAD_GATEWAY);
    let rule = env.neutron.rule(Matcher::any().path("*/remove_extraroutes"), Fault::Reject(answer));
    env.failing_pass().await.unwrap();
    assert_eq!(env.status("prod").await.unwrap().removing.len(), 1, "who knows what became of that");
    env.neutron.remove(rule);
    env.project.remove_routes(&[(&pods(4), &hop(4))]).await.unwrap();
    env.passes(1).await.unwrap();
    let status = env.status("prod").await.unwrap();
    assert_eq!((status.removing.len(), status.last_removed.len()), (0, 1));
}

/// Without the atomic call the list is written under the revision it was read at; without a lock not at all, unless allowed.
#[tokio::test]
async fn an_older_neutron_is_written_under_a_lock_or_not_at_all() {
    let env = cluster(2, 1).await;
    env.policy("prod", json!({})).await.unwrap();
    env.passes(1).await.unwrap();
    let extensions = |aliases: &[&str]| {
        let list: Vec<Value> = aliases.iter().map(|alias| json!({ "alias": alias })).collect();
        let answer = Answer::status(StatusCode::OK).body(json!({ "extensions": list }).to_string());
        env.neutron.rule(Matcher::any().path("/v2.0/extensions"), Fault::Reject(answer))
    };
    let rule = extensions(&["extraroute"]);
    assert!(env.failing_pass().await.unwrap().contains("neither extraroute-atomic nor revision-if-match"));
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "!NoSafeUpdate");
    env.neutron.remove(rule);
    let rule = extensions(&["extraroute", "revision-if-match"]);
    env.passes(1).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
    let write = env.neutron.writes().pop().unwrap();
    assert!(write.path.ends_with(&env.project.router), "{}", write.path);
    env.neutron.remove(rule);

    env.dead_node(4).await.unwrap();
    extensions(&["extraroute"]);
    env.patch("prod", json!({ "spec": { "safety": { "allowUnsafeUpdate": true } } })).await.unwrap();
    env.passes(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
}

/// How full the router is, where the cloud says so.
#[tokio::test]
async fn the_quota_is_shown() {
    let env = cluster(2, 0).await;
    env.openstack.set_network_quota(&env.project, "router_route", 7).await.unwrap();
    env.policy("prod", json!({})).await.unwrap();
    env.passes(1).await.unwrap();
    let quota = env.status("prod").await.unwrap().quota.unwrap();
    assert_eq!((quota.routes, quota.limit), (2, Some(7)));
    assert!(env.dry_run(&[]).await.unwrap().contains("2 routes of 7"));
}

/// One cloud that hangs holds up its own policy and no other.
#[tokio::test]
async fn a_policy_that_hangs_stalls_no_other() {
    let env = cluster(2, 1).await;
    env.secret("nowhere", &env.clouds_yaml().unwrap().replace("Proxied", "Nowhere")).await.unwrap();
    for number in 0..20 {
        let more = json!({ "identityRef": { "name": "nowhere" }, "routerID": format!("other-{number}") });
        env.policy(&format!("broken-{number:02}"), more).await.unwrap();
    }
    env.policy("prod", json!({ "interval": "10s" })).await.unwrap();
    let _routegc = env.routegc().unwrap().start().unwrap();
    wait_for("the removal", || async { Ok(env.destinations().await?.len() == 2) }).await.unwrap();
    // The Role names one Secret: the others may not be read, and that is what is said.
    env.wait_for_reason("broken-00", "!LoginFailed").await.unwrap();
}
