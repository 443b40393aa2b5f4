//! The behaviour that docs/routegc.md describes, except for the rulings.

use e2e::fault_proxy::{Fault, Matcher, Reply};
use e2e::natgw::wait_for;
use e2e::openstack::{Release, Service};
use e2e::routegc::{TestEnv, hop, pods};
use http::StatusCode;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

async fn cluster(nodes: u8, orphans: u8) -> TestEnv {
    let env = TestEnv::start().await.unwrap();
    env.populate(nodes, orphans).await.unwrap();
    env
}

/// Audit, the default, reports what Enforce would do, and writes nothing to OpenStack.
#[tokio::test]
async fn audit_reports_and_enforce_removes() {
    let env = cluster(2, 1).await;
    env.policy("prod", json!({ "mode": "Audit" })).await.unwrap();
    env.reconcile_times(3).await.unwrap();
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
    env.reconcile_times(1).await.unwrap();
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
    // The request that a safe removal depends on.
    let removal = &env.neutron.writes()[0];
    assert!(removal.path.ends_with("/remove_extraroutes"));
    assert_eq!(removal.json().unwrap()["router"]["routes"][0]["destination"], "10.244.3.0/24");
}

/// On the oldest supported release.
#[tokio::test]
#[ignore = "full: the oldest OpenStack"]
async fn the_oldest_release_works() {
    let env = TestEnv::with(Release::Oldest, false).await.unwrap();
    env.populate(1, 1).await.unwrap();
    env.policy("prod", json!({})).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1)]);
    assert_eq!(env.status("prod").await.unwrap().quota.unwrap().limit, None, "it has no such quota");
}

/// `--dry-run` shows the actions of the next reconciliation, and the limit of the router's routes if the cloud reports it, and writes
/// nothing.
#[tokio::test]
async fn a_dry_run_shows_the_actions_of_the_next_reconciliation() {
    let env = cluster(2, 1).await;
    env.openstack.set_network_quota(&env.project, "router_route", 7).await.unwrap();
    env.policy("prod", json!({})).await.unwrap();
    let first: Value = serde_json::from_str(&env.dry_run(&["--output", "json"]).await.unwrap()).unwrap();
    assert_eq!(first["policies"][0]["plan"]["steps"], json!([]), "one observation is not enough");
    assert_eq!(first["policies"][0]["counts"]["orphan"], 1);
    assert_eq!(env.writes.count(), 0);
    env.reconcile_times(1).await.unwrap();
    let quota = env.status("prod").await.unwrap().quota.unwrap();
    assert_eq!((quota.routes, quota.limit), (3, Some(7)));
    let text = env.dry_run(&[]).await.unwrap();
    assert!(text.contains("3 routes of 7"), "{text}");
    assert!(text.contains("1. remove route 10.244.3.0/24 via 10.7.1.3 from router"), "{text}");
    assert!(text.contains("10.244.1.0/24  10.7.1.1  valid    server"), "{text}");
    env.reconcile_times(1).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
    assert!(env.dry_run(&[]).await.unwrap().contains("nothing to do"));
}

/// In a steady state nothing is written, neither to the API server nor to OpenStack, and no new Event either.
#[tokio::test]
async fn a_steady_state_has_no_writes() {
    let env = cluster(2, 1).await;
    env.policy("prod", json!({ "mode": "Audit" })).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    let (writes, version) =
        (env.writes.count(), env.policies().get("prod").await.unwrap().metadata.resource_version);
    env.reconcile_times(2).await.unwrap();
    assert_eq!(env.writes.count(), writes);
    assert_eq!(env.policies().get("prod").await.unwrap().metadata.resource_version, version);
}

/// If two policies cover the same routes of a router, neither acts until one is deleted.
#[tokio::test]
async fn overlapping_policies_are_in_conflict() {
    let env = cluster(2, 1).await;
    env.policy("one", json!({})).await.unwrap();
    env.policy("two", json!({ "podCIDRs": ["10.244.0.0/20"] })).await.unwrap();
    env.policy("apart", json!({ "podCIDRs": ["10.99.0.0/16"] })).await.unwrap();
    for _ in 0..3 {
        env.failing_reconcile().await.unwrap();
    }
    for (name, other) in [("one", "two"), ("two", "one")] {
        assert_eq!(env.reason(name, "Ready").await.unwrap(), "!Conflict");
        let status = env.status(name).await.unwrap();
        assert!(status.conditions[0].message.contains(&format!("RouteGC {other} covers 10.244.0.0/")));
    }
    assert_eq!(env.reason("apart", "Ready").await.unwrap(), "NoOrphans");
    assert_eq!(env.destinations().await.unwrap().len(), 3);
    env.policies().delete("two", &Default::default()).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
}

/// If more routes are orphaned than the threshold, none is removed until the user approves exactly this list.
#[tokio::test]
async fn a_list_over_the_threshold_is_removed_after_its_approval_only() {
    let env = cluster(2, 4).await;
    env.policy("prod", json!({})).await.unwrap();
    env.reconcile_times(2).await.unwrap();
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
    env.orphaned_route(7).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    env.allow("prod", &hash).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap().len(), 7);
    let hash = env.status("prod").await.unwrap().removal_hash.unwrap();
    env.allow("prod", &hash).await.unwrap();
    env.reconcile_times(1).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
    assert_eq!(env.status("prod").await.unwrap().removal_hash, None);
}

/// Confirmations survive a restart. If the route is valid once, they start from zero.
#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn confirmations_survive_a_restart_but_not_a_valid_observation() {
    let env = cluster(2, 1).await;
    env.policy("prod", json!({ "safety": { "confirmations": 3, "minAge": "0s" } })).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    let before = env.status("prod").await.unwrap().candidates;
    assert_eq!(before[0].observations, 2);
    let port = env.project.port(Some(&hop(3)), None).await.unwrap();
    env.reconcile_times(1).await.unwrap();
    assert!(env.status("prod").await.unwrap().candidates.is_empty());
    let path = format!("/ports/{port}");
    env.project.api().delete(e2e::openstack::Service::Network, &path).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap().len(), 3);
    env.reconcile_times(1).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
}

/// A recreated route is not removed again, and reported.
#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn a_route_that_is_recreated_is_reported() {
    let env = cluster(2, 1).await;
    env.policy("prod", json!({})).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    env.orphaned_route(3).await.unwrap();
    env.reconcile_times(4).await.unwrap();
    assert_eq!(env.destinations().await.unwrap().len(), 3);
    assert_eq!(env.neutron.writes().len(), 1, "removed only once");
    assert_eq!(env.reason("prod", "Recreated").await.unwrap(), "Recreated");
    let status = env.status("prod").await.unwrap();
    assert_eq!((status.recreated[0].times, status.counts.unwrap().recreated), (1, 1));
}

/// A port that appears between the plan and the removal keeps the route.
#[tokio::test]
async fn the_last_read_keeps_the_route_of_a_new_port() {
    let env = cluster(2, 1).await;
    env.policy("prod", json!({})).await.unwrap();
    env.reconcile_times(1).await.unwrap();
    let project = env.project.clone();
    // The intent is the first write; the last read follows it.
    let fired = env.writes.on_write(1, e2e::fault_proxy::When::AfterServerActed, move || async move {
        project.port(Some("10.7.1.3"), None).await.unwrap();
        e2e::fault_proxy::Then::GoOn
    });
    env.reconcile_times(1).await.unwrap();
    fired.unwrap().wait(e2e::natgw::TIMEOUT).await.unwrap();
    assert_eq!(env.destinations().await.unwrap().len(), 3);
    assert!(env.neutron.writes().is_empty());
    let events = env.events().await.unwrap();
    assert!(events.iter().any(|(reason, _)| reason == "Skipped"), "{events:?}");
}

/// The policy is set to Audit, or deleted, between the plan and the removal.
#[tokio::test]
async fn a_policy_that_is_stopped_before_the_last_read_removes_nothing() {
    let env = cluster(2, 1).await;
    env.policy("prod", json!({})).await.unwrap();
    env.reconcile_times(1).await.unwrap();
    for delete in [false, true] {
        let policies = env.policies();
        // The intent is the first write; the last read follows it.
        let fired = env.writes.on_write(1, e2e::fault_proxy::When::AfterServerActed, move || async move {
            if delete {
                policies.delete("prod", &DeleteParams::default()).await.unwrap();
            } else {
                let audit = Patch::Merge(json!({ "spec": { "mode": "Audit" } }));
                policies.patch("prod", &PatchParams::default(), &audit).await.unwrap();
            }
            e2e::fault_proxy::Then::GoOn
        });
        assert!(env.failing_reconcile().await.unwrap().contains("PolicyChanged"));
        fired.unwrap().wait(e2e::natgw::TIMEOUT).await.unwrap();
        if !delete {
            assert!(env.status("prod").await.unwrap().removing.is_empty(), "nothing was sent to Neutron");
        }
        env.reconcile_times(1).await.unwrap();
        assert_eq!(env.destinations().await.unwrap().len(), 3);
        assert!(env.neutron.writes().is_empty());
        if !delete {
            let status = env.status("prod").await.unwrap();
            assert!(status.removing.is_empty() && status.last_removed.is_empty(), "{status:?}");
            assert_eq!(env.reason("prod", "Ready").await.unwrap(), "OrphansFound");
            env.patch("prod", json!({ "spec": { "mode": "Enforce" } })).await.unwrap();
        }
    }
}

/// Neutron has no filter for the address of a pair, so the last read lists all ports.
#[tokio::test]
#[ignore = "full: the test of a new port has the last read, the plan's tests have the rule"]
async fn the_last_read_keeps_the_route_of_a_new_address_pair() {
    let env = cluster(2, 2).await;
    env.policy("prod", json!({})).await.unwrap();
    env.reconcile_times(1).await.unwrap();
    let project = env.project.clone();
    // routegc's timeout for the API server is nine seconds, so only one request is made while its write is held.
    let port = project.port(Some("10.7.1.50"), None).await.unwrap();
    let fired = env.writes.on_write(1, e2e::fault_proxy::When::AfterServerActed, move || async move {
        let pairs = json!({ "port": { "allowed_address_pairs": [{ "ip_address": "10.7.1.3" }] } });
        let path = format!("/ports/{port}");
        project.api().put(e2e::openstack::Service::Network, &path, pairs).await.unwrap();
        e2e::fault_proxy::Then::GoOn
    });
    env.reconcile_times(1).await.unwrap();
    fired.unwrap().wait(e2e::natgw::TIMEOUT).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2), pods(3)]);
    let events = env.events().await.unwrap();
    assert!(events.iter().any(|(reason, _)| reason == "Skipped"), "{events:?}");
}

/// A pair for a range does not show whether an address is in use: the route stays, and the port is reported.
#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn a_wide_address_pair_is_reported_and_its_routes_stay() {
    let env = cluster(2, 1).await;
    let port = env.project.port(Some("10.7.1.50"), None).await.unwrap();
    let pairs = json!({ "port": { "allowed_address_pairs": [{ "ip_address": "10.7.0.0/16" }] } });
    let path = format!("/ports/{port}");
    env.project.api().put(e2e::openstack::Service::Network, &path, pairs).await.unwrap();
    env.policy("prod", json!({})).await.unwrap();
    env.reconcile_times(3).await.unwrap();
    assert_eq!(env.destinations().await.unwrap().len(), 3);
    for condition in ["Ready", "WideAddressPair"] {
        assert_eq!(env.reason("prod", condition).await.unwrap(), "WideAddressPair");
    }
    let events = env.events().await.unwrap();
    let names_port = |(reason, note): &(String, String)| reason == "WideAddressPair" && note.contains(&port);
    assert!(events.iter().any(names_port), "{events:?}");
}

/// A port without port security may use any address of its network, such as one of keepalived: the port is reported, and the user can set
/// `ignoreOpenPorts`. Neutron's own ports never have port security, and do not count.
#[tokio::test]
#[ignore = "full: the plan's tests have the rule"]
async fn a_port_without_port_security_is_reported_and_its_routes_stay() {
    let env = cluster(2, 1).await;
    let network =
        json!({ "device_owner": "network:dhcp", "device_id": "dhcp", "network_id": env.project.network });
    let dhcp = env.openstack.admin().create(Service::Network, "/ports", "port", network).await.unwrap();
    assert_eq!(dhcp["port_security_enabled"], false, "Neutron's default for this port");
    let port = env.project.port(Some("10.7.1.50"), None).await.unwrap();
    env.policy("prod", json!({})).await.unwrap();
    env.reconcile_times(1).await.unwrap();
    assert_eq!(env.status("prod").await.unwrap().candidates.len(), 1);
    let open = json!({ "port": { "port_security_enabled": false, "security_groups": [] } });
    env.project.api().put(Service::Network, &format!("/ports/{port}"), open).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap().len(), 3);
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "WideAddressPair");
    let events = env.events().await.unwrap();
    let names_port = |(reason, note): &(String, String)| {
        reason == "WideAddressPair" && note.contains(&format!("port {port} (no port security)"))
    };
    assert!(events.iter().any(names_port), "{events:?}");
    env.patch("prod", json!({ "spec": { "safety": { "ignoreOpenPorts": true } } })).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
}

/// 412: another client changed the router. routegc reads it and retries. The quota is only displayed: without it routes are removed too.
#[tokio::test]
async fn a_router_that_changes_during_the_removal_is_read_again_and_a_quota_is_not_needed() {
    let env = cluster(2, 1).await;
    env.policy("prod", json!({})).await.unwrap();
    let no_quota = |status: StatusCode, body: &str| {
        let response = Reply::status(status).body(body.to_owned());
        env.neutron.rule(Matcher::any().path("/v2.0/quotas/*"), Fault::Reject(response))
    };
    let rule = no_quota(StatusCode::NOT_FOUND, "<html>404</html>");
    env.reconcile_times(1).await.unwrap();
    env.neutron.remove(rule);
    no_quota(StatusCode::OK, r#"{"quota": null}"#);
    let response = Reply::status(StatusCode::PRECONDITION_FAILED);
    let matcher = Matcher::any().path("*/remove_extraroutes");
    let rule = env.neutron.rule(matcher.times(2), Fault::Reject(response));
    env.reconcile_times(1).await.unwrap();
    assert_eq!(env.neutron.applied(rule), 2);
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
}

/// A permanent refusal is written once, and a route that another client removed does not count as removed by routegc.
#[tokio::test]
async fn a_permanent_refusal_is_written_once() {
    let env = cluster(2, 1).await;
    env.policy("prod", json!({ "safety": { "confirmations": 1, "minAge": "0s" } })).await.unwrap();
    let refusal = json!({ "NeutronError": { "type": "PolicyNotAuthorized", "message": "no", "detail": "" } });
    let response = Reply::status(StatusCode::FORBIDDEN).body(refusal.to_string());
    let rule = env.neutron.rule(Matcher::any().path("*/remove_extraroutes"), Fault::Reject(response));
    let routegc = env.routegc().unwrap().start().unwrap();
    env.wait_for_reason("prod", "!Forbidden").await.unwrap();
    let ready = async || {
        let conditions = env.status("prod").await.unwrap().conditions;
        conditions.into_iter().find(|one| one.kind == "Ready").unwrap()
    };
    let first = ready().await;
    let reconcile = async |more: u64| {
        for _ in 0..more {
            let before = env.neutron.applied(rule);
            env.allow("prod", &format!("reconcile {before}")).await.unwrap();
            let next = || async { Ok(env.neutron.applied(rule) > before) };
            wait_for("the next reconciliation", next).await.unwrap();
        }
    };
    let written = || {
        let requests = env.api_proxy.requests();
        requests.iter().filter(|one| one.method == "PUT" && one.path.ends_with("/prod/status")).count()
    };
    // After the second refusal the intent stays in the status, so that nothing more is written.
    reconcile(3).await;
    let before = written();
    reconcile(4).await;
    assert_eq!(written(), before);
    assert_eq!(ready().await, first, "the condition does not change");
    env.project.remove_routes(&[(&pods(3), &hop(3))]).await.unwrap();
    env.allow("prod", "one more").await.unwrap();
    env.wait_for_reason("prod", "NoOrphans").await.unwrap();
    let status = env.status("prod").await.unwrap();
    assert!(status.removing.is_empty() && status.last_removed.is_empty(), "{status:?}");
    drop(routegc);

    // A new process for each reconciliation knows only what is stored.
    env.orphaned_route(4).await.unwrap();
    env.failing_reconcile().await.unwrap();
    assert!(env.status("prod").await.unwrap().removing.is_empty());
    env.neutron.remove(rule);
    let response = Reply::status(StatusCode::BAD_GATEWAY);
    let rule = env.neutron.rule(Matcher::any().path("*/remove_extraroutes"), Fault::Reject(response));
    env.failing_reconcile().await.unwrap();
    assert_eq!(env.status("prod").await.unwrap().removing.len(), 1, "the removal may have taken effect");
    env.neutron.remove(rule);
    env.project.remove_routes(&[(&pods(4), &hop(4))]).await.unwrap();
    env.reconcile_times(1).await.unwrap();
    let status = env.status("prod").await.unwrap();
    assert_eq!((status.removing.len(), status.last_removed.len()), (0, 1));
}

/// Without `extraroute-atomic` the list is written with `If-Match`; without that too, only if the policy allows it.
#[tokio::test]
async fn an_older_neutron_is_written_with_a_revision_or_not_at_all() {
    let env = cluster(2, 1).await;
    env.policy("prod", json!({})).await.unwrap();
    env.reconcile_times(1).await.unwrap();
    let extensions = |aliases: &[&str]| {
        let list: Vec<Value> = aliases.iter().map(|alias| json!({ "alias": alias })).collect();
        let response = Reply::status(StatusCode::OK).body(json!({ "extensions": list }).to_string());
        env.neutron.rule(Matcher::any().path("/v2.0/extensions"), Fault::Reject(response))
    };
    let rule = extensions(&["extraroute"]);
    assert!(
        env.failing_reconcile().await.unwrap().contains("neither extraroute-atomic nor revision-if-match")
    );
    assert_eq!(env.reason("prod", "Ready").await.unwrap(), "!NoSafeUpdate");
    env.neutron.remove(rule);
    let rule = extensions(&["extraroute", "revision-if-match"]);
    env.reconcile_times(1).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
    let write = env.neutron.writes().pop().unwrap();
    assert!(write.path.ends_with(&env.project.router), "{}", write.path);
    env.neutron.remove(rule);

    env.orphaned_route(4).await.unwrap();
    extensions(&["extraroute"]);
    env.patch("prod", json!({ "spec": { "safety": { "allowUnsafeUpdate": true } } })).await.unwrap();
    env.reconcile_times(2).await.unwrap();
    assert_eq!(env.destinations().await.unwrap(), [pods(1), pods(2)]);
}

/// A cloud that does not respond delays only its own policies.
#[tokio::test]
async fn a_policy_without_a_response_does_not_delay_others() {
    let env = cluster(2, 1).await;
    env.secret("nowhere", &env.clouds_yaml().unwrap().replace("Proxied", "Nowhere")).await.unwrap();
    for number in 0..20 {
        let more = json!({ "identityRef": { "name": "nowhere" }, "routerID": format!("other-{number}") });
        env.policy(&format!("broken-{number:02}"), more).await.unwrap();
    }
    env.policy("prod", json!({ "interval": "10s" })).await.unwrap();
    let _routegc = env.routegc().unwrap().start().unwrap();
    wait_for("the removal", || async { Ok(env.destinations().await?.len() == 2) }).await.unwrap();
    // The Role names one Secret only. The refusal to read the others is reported.
    env.wait_for_reason("broken-00", "!LoginFailed").await.unwrap();
}
