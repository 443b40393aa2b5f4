use jiff::SignedDuration;

use super::env::{
    at, classes, holder, ip, policy, policy_with, removed, safety, second_reconciliation, snapshot,
};
use crate::api::routegc::Safety;
use crate::routes::plan::confirm::record_removal;
use crate::routes::plan::{ClassifiedRoute, History, RouteClass, plan};
use crate::routes::route::Route;
use crate::routes::snapshot::{RouteLimit, Snapshot};

/// `count` nodes, of which the last `orphaned` have no port.
fn cluster(count: usize, orphaned: usize) -> Snapshot {
    let routes: Vec<(String, String)> =
        (1..=count).map(|n| (format!("10.244.{n}.0/24"), format!("10.0.0.{}", n + 10))).collect();
    let texts: Vec<(&str, &str)> = routes.iter().map(|(one, two)| (one.as_str(), two.as_str())).collect();
    let mut all = snapshot(&texts);
    for n in 1..=count - orphaned {
        all = all.server(&format!("s{n}"), &format!("10.0.0.{}", n + 10));
    }
    all
}

/// R4, R5: an address with a port exists, whether Nova knows a server or not.
#[test]
fn a_next_hop_with_a_port_of_any_owner_is_valid() {
    let routes =
        [("10.244.1.0/24", "10.0.0.11"), ("10.244.2.0/24", "10.0.0.12"), ("10.244.3.0/24", "10.0.0.13")];
    let env = snapshot(&routes).server("s1", "10.0.0.11").port("vip", None, "10.0.0.12");
    assert_eq!(classes(&env), ["valid", "valid", "NoPort"]);
}

/// R14: without Nodes, only the policy says that every next hop has a port. A port without its server is orphaned in any case.
#[test]
fn a_next_hop_without_a_port_is_unknown_where_it_may_be_a_machine_outside_of_openstack() {
    let routes = [("10.244.1.0/24", "10.0.0.11"), ("10.244.2.0/24", "10.0.0.12")];
    let env = snapshot(&routes).port("left", Some("gone"), "10.0.0.12");
    let careful = policy_with(&Safety::default());
    let classes_of = |env: &Snapshot| {
        let decision = plan(&careful, env, &History::default(), None, at(0));
        let is_orphan = |one: &ClassifiedRoute| matches!(one.class, RouteClass::Orphan(_));
        (decision.classified.iter().map(is_orphan).collect::<Vec<_>>(), decision.counts.unknown)
    };
    assert_eq!(classes_of(&env), (vec![false, true], 1));
    assert_eq!(classes(&env), ["NoPort", "ServerGone"]);
    let of_another_cluster = env.clone().node("other", "192.168.7.9", "10.9.9.0/24");
    assert_eq!(classes_of(&of_another_cluster), (vec![false, true], 1));
    let with_nodes = env.node("other", "10.0.0.99", "10.244.9.0/24");
    assert_eq!(classes_of(&with_nodes), (vec![true, true], 0), "the Nodes are known, and none has it");
}

/// R7, R8: a route outside the pod networks is foreign; address families are separate.
#[test]
fn foreign_and_invalid_routes_are_never_orphaned() {
    let routes = [
        ("0.0.0.0/0", "10.0.0.99"),
        ("10.244.0.0/15", "10.0.0.99"),
        ("192.168.0.0/24", "10.0.0.99"),
        ("10.244.1.0/24", "fd00:1::99"),
        ("10.244.2.0/24", "10.0.0.1"),
        ("10.244.3.0/24", "172.16.0.1"),
        ("fd00:10:0:1::/64", "fd00:1::99"),
    ];
    let expected = ["foreign", "foreign", "foreign", "invalid", "invalid", "invalid", "NoPort"];
    assert_eq!(classes(&snapshot(&routes)), expected);
}

#[test]
fn a_next_hop_that_is_not_visible_is_unknown() {
    let routes =
        [("10.244.1.0/24", "10.9.0.5"), ("10.244.2.0/24", "203.0.113.5"), ("10.244.3.0/24", "10.0.0.200")];
    let mut env = snapshot(&routes);
    assert_eq!(classes(&env), ["unknown", "invalid", "NoPort"]);
    env.hidden = true;
    let env = env.pair("port-of-vip", None, "nodes", "10.0.0.128/25");
    assert_eq!(classes(&env), ["unknown", "unknown", "unknown"]);
}

/// An address pair for a range does not show whether one address is in use, so the route is neither removed nor ignored.
#[test]
fn address_pairs_for_ranges_are_reported_with_the_routes_that_they_cover() {
    let routes = [
        ("10.244.1.0/24", "10.0.0.11"),
        ("10.244.2.0/24", "10.0.0.12"),
        ("10.244.3.0/24", "10.0.0.200"),
        ("10.244.4.0/24", "10.9.0.5"),
        ("10.244.5.0/24", "203.0.113.5"),
    ];
    let mut env = snapshot(&routes).server("s1", "10.0.0.11");
    let classified = |env: &Snapshot| plan(&policy(), env, &History::default(), None, at(0));
    assert_eq!(classified(&env).covered, None);
    for (range, port) in
        [("0.0.0.0/0", "p1"), ("0.0.0.0/0", "p2"), ("10.0.0.128/25", "p3"), ("10.1.0.0/16", "p4")]
    {
        env = env.pair(port, None, "nodes", range);
    }
    assert_eq!(classes(&env), ["valid", "unknown", "unknown", "unknown", "invalid"]);
    let covered = classified(&env).covered.unwrap();
    assert_eq!(covered.routes, [Route::new(routes[1].0, routes[1].1), Route::new(routes[2].0, routes[2].1)]);
    let pairs: Vec<_> = covered.covers.iter().map(ToString::to_string).collect();
    assert_eq!(pairs, ["port p1 (0.0.0.0/0)", "port p2 (0.0.0.0/0)", "port p3 (10.0.0.128/25)"]);
    assert!(
        classified(&env).classified[2].class.why().contains("port p3 may use any address of 10.0.0.128/25")
    );
    let second = second_reconciliation(&policy(), &env, None);
    assert!(second.removals.is_empty() && second.counts.unknown == 3);
}

/// An address pair counts on the network of its port, and only as long as the server exists.
#[test]
fn an_address_pair_covers_its_own_network_while_its_server_exists() {
    let routes = [("10.244.1.0/24", "10.0.0.11"), ("10.244.2.0/24", "10.0.0.12")];
    let with = |network: &str, server: &str| {
        snapshot(&routes).server("s1", "10.0.0.11").pair("p", Some(server), network, "0.0.0.0/0")
    };
    assert_eq!(classes(&with("nodes", "s1")), ["valid", "unknown"]);
    assert_eq!(classes(&with("theirs", "s1")), ["valid", "NoPort"], "of another network");
    assert_eq!(classes(&with("nodes", "gone")), ["valid", "NoPort"], "its server is gone");
    let blind = Snapshot { servers: None, ..with("nodes", "gone") };
    assert_eq!(classes(&blind), ["valid", "unknown"], "without Nova its server counts as existing");
    assert_eq!(
        classes(&with("hidden", "s1")),
        ["valid", "unknown"],
        "it is not known what is on its network"
    );
    let mut both = with("theirs", "s1");
    both.networks[1].foreign = false;
    both.networks[1].subnets.push("10.0.0.0/16".parse().unwrap());
    assert_eq!(classes(&both), ["valid", "unknown"], "the address may be on either network");
    both.networks[1].subnets.clear();
    assert_eq!(classes(&both), ["valid", "unknown"], "the subnets of its network are not visible");
}

/// A port without port security may have any address of its network, such as keepalived's, without a port or pair for it.
#[test]
fn ports_without_port_security_cover_their_network() {
    let routes =
        [("10.244.1.0/24", "10.0.0.11"), ("10.244.2.0/24", "10.0.0.12"), ("fd00:10:0:1::/64", "fd00:1::99")];
    let open = |network: &str, server: &str| {
        let mut env = snapshot(&routes).server("s1", "10.0.0.11");
        env.open.push(holder("p", network, Some(server)));
        env
    };
    let env = open("nodes", "s1");
    assert_eq!(classes(&env), ["valid", "unknown", "unknown"]);
    let covered = plan(&policy(), &env, &History::default(), None, at(0)).covered.unwrap();
    assert_eq!(covered.routes.len(), 2);
    assert_eq!(
        covered.covers.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["port p (no port security)"]
    );
    assert_eq!(classes(&open("theirs", "s1")), ["valid", "NoPort", "NoPort"], "of another network");
    assert_eq!(classes(&open("nodes", "gone")), ["valid", "NoPort", "NoPort"], "its server is gone");
    let ignoring = policy_with(&Safety { ignore_open_ports: true, ..safety() });
    assert_eq!(second_reconciliation(&ignoring, &env, None).removals.len(), 2);
}

/// R6: a port without its server does not keep a route; a server that Nova has on the network does.
#[test]
fn nova_can_show_that_a_next_hop_exists_and_that_it_is_gone() {
    let routes =
        [("10.244.1.0/24", "10.0.0.11"), ("10.244.2.0/24", "10.0.0.12"), ("10.244.3.0/24", "10.0.0.13")];
    let mut env = snapshot(&routes)
        .port("left-over", Some("deleted"), "10.0.0.11")
        .port("left-over", Some("deleted"), "10.0.0.12")
        .port("taken-over", None, "10.0.0.12");
    env.servers.as_mut().unwrap().addresses.insert(ip("10.0.0.13"), ["s3".to_owned()].into());
    assert_eq!(classes(&env), ["ServerGone", "valid", "valid"]);
    env.servers = None;
    assert_eq!(
        classes(&env),
        ["valid", "valid", "NoPort"],
        "without Nova a port's server counts as existing"
    );
}

/// Regions may share a Neutron, and each has a Nova of its own.
#[test]
fn a_server_that_may_be_in_another_regions_nova_is_not_gone() {
    let routes =
        [("10.244.1.0/24", "10.0.0.11"), ("10.244.2.0/24", "10.0.0.12"), ("10.244.3.0/24", "10.0.0.13")];
    let mut env = snapshot(&routes).server("s1", "10.0.0.11").port("p2", Some("s2"), "10.0.0.12");
    assert_eq!(classes(&env), ["valid", "ServerGone", "NoPort"]);
    env.servers.as_mut().unwrap().others = true;
    assert_eq!(classes(&env), ["valid", "unknown", "NoPort"], "ports of all regions are visible");
    let second = second_reconciliation(&policy(), &env, None);
    assert_eq!(removed(&second), ["10.244.3.0/24 via 10.0.0.13"]);
    let why = second.classified[1].class.why();
    assert!(why.starts_with("port p2 has the next hop, and Nova does not know its server s2"), "{why}");
    let covered = env.clone().pair("p3", Some("s3"), "nodes", "0.0.0.0/0");
    assert_eq!(classes(&covered), ["valid", "unknown", "unknown"], "its pair may be used");
    env.servers.as_mut().unwrap().addresses.insert(ip("10.0.0.12"), ["s4".to_owned()].into());
    assert_eq!(classes(&env), ["valid", "valid", "NoPort"]);
}

#[test]
fn an_address_of_a_node_is_valid_without_a_port() {
    let env = snapshot(&[("10.244.1.0/24", "10.0.0.11")]).node("node-1", "10.0.0.11", "10.244.1.0/24");
    assert_eq!(classes(&env), ["valid"]);
}

#[test]
fn a_route_is_removed_after_enough_observations_and_enough_time() {
    let (policy, env) = (policy(), cluster(5, 1));
    let first = plan(&policy, &env, &History::default(), None, at(0));
    let soon = plan(&policy, &env, &first.history, None, at(1));
    assert!(first.removals.is_empty() && soon.removals.is_empty());
    let late = plan(&policy, &env, &soon.history, None, at(5));
    assert_eq!(removed(&late), ["10.244.5.0/24 via 10.0.0.15"]);
    assert_eq!((late.removals[0].first_seen, late.removals[0].observations), (at(0), 2));
    // Valid once: the count restarts.
    let valid = plan(&policy, &cluster(5, 0), &soon.history, None, at(5));
    assert!(valid.history.candidates.is_empty());
    let later = plan(&policy, &env, &valid.history, None, at(20));
    assert!(later.removals.is_empty());
}

#[test]
fn an_unchanged_state_does_not_change_the_history() {
    let (policy, env) = (policy(), cluster(5, 1));
    let second = second_reconciliation(&policy, &env, None);
    let mut shuffled = env.clone();
    shuffled.routes.reverse();
    let third = plan(&policy, &shuffled, &second.history, None, at(15));
    assert_eq!(third.history, second.history);
}

#[test]
fn a_clock_that_was_set_back_neither_speeds_up_nor_blocks_a_removal() {
    let (policy, env) = (policy(), cluster(5, 1));
    let first = plan(&policy, &env, &History::default(), None, at(1000));
    let back = plan(&policy, &env, &first.history, None, at(0));
    assert!(back.removals.is_empty() && back.history.candidates[0].first_seen == at(0));
    assert_eq!(plan(&policy, &env, &back.history, None, at(5)).removals.len(), 1);
}

/// R2, R3: if many routes look orphaned at once, the data is probably wrong.
#[test]
fn more_routes_than_the_threshold_are_not_removed() {
    let policy = policy();
    assert_eq!(
        second_reconciliation(&policy, &cluster(3, 2), None).removals.len(),
        2,
        "two may always be removed"
    );
    assert_eq!(
        second_reconciliation(&policy, &cluster(6, 3), None).removals.len(),
        3,
        "half is not more than half"
    );
    let share = second_reconciliation(&policy, &cluster(5, 3), None);
    assert!(share.removals.is_empty());
    let text = share.excess.unwrap().to_string();
    assert_eq!(
        text,
        "3 of 5 routes look orphaned, and no more than 50 % may be removed in one reconciliation (maxPercent)"
    );
    let number = second_reconciliation(&policy, &cluster(40, 11), None).excess.unwrap();
    assert!(
        number.to_string().ends_with("no more than 10 may be removed in one reconciliation (maxRemovals)")
    );
}

#[test]
fn the_user_allows_one_exact_list_and_no_other() {
    let policy = policy();
    let hash = second_reconciliation(&policy, &cluster(5, 3), None).excess.unwrap().hash;
    assert_eq!(second_reconciliation(&policy, &cluster(5, 3), Some(&hash)).removals.len(), 3);
    assert!(second_reconciliation(&policy, &cluster(5, 4), Some(&hash)).removals.is_empty());
    let mut elsewhere = cluster(5, 3);
    elsewhere.router = "router-2".to_owned();
    assert!(second_reconciliation(&policy, &elsewhere, Some(&hash)).removals.is_empty());
    let mut reversed = cluster(5, 3);
    reversed.routes.reverse();
    assert_eq!(
        second_reconciliation(&policy, &reversed, Some(&hash)).removals.len(),
        3,
        "the order means nothing"
    );
}

/// If the same routes look orphaned again weeks later, the old permission does not apply.
#[test]
fn a_list_that_was_allowed_is_not_allowed_when_it_is_orphaned_again() {
    let (policy, orphaned) = (policy(), cluster(5, 3));
    let start = at(0) + SignedDuration::from_nanos(123_456_789);
    let first = plan(&policy, &orphaned, &History::default(), None, start);
    let second = plan(&policy, &orphaned, &first.history, None, at(10));
    let hash = second.excess.unwrap().hash;
    let kept = serde_json::to_string(&second.history.candidates).unwrap();
    let history = History { candidates: serde_json::from_str(&kept).unwrap(), ..History::default() };
    let restarted = plan(&policy, &orphaned, &history, None, at(20));
    assert_eq!(restarted.excess.unwrap().hash, hash, "a restart changes nothing");
    assert_eq!(plan(&policy, &orphaned, &history, Some(&hash), at(20)).removals.len(), 3);

    let valid = plan(&policy, &cluster(5, 0), &history, Some(&hash), at(30));
    let first = plan(&policy, &orphaned, &valid.history, Some(&hash), at(40));
    let later = plan(&policy, &orphaned, &first.history, Some(&hash), at(50));
    assert!(later.removals.is_empty() && later.excess.is_some_and(|excess| excess.hash != hash));
}

#[test]
fn a_re_created_route_is_reported_and_removed_again_a_day_later() {
    let (policy, env) = (policy(), cluster(5, 1).node("node-5", "10.0.0.115", "10.244.5.0/24"));
    let orphaned = Route::new("10.244.5.0/24", "10.0.0.15");
    let mut history = second_reconciliation(&policy, &env, None).history;
    record_removal(&mut history.removed, &orphaned, at(10));
    let back = plan(&policy, &env, &history, None, at(20));
    assert!(back.removals.is_empty() && back.history.candidates.is_empty());
    let recreated = &back.recreated[0];
    assert_eq!((recreated.removed_at, recreated.back_since, recreated.times), (at(10), at(20), 1));
    assert_eq!(recreated.node.as_deref(), Some("node-5"));
    assert_eq!(recreated.server.as_deref(), Some("server-of-node-5"));
    assert_eq!((back.counts.orphan, back.counts.recreated), (1, 1));
    let still = plan(&policy, &env, &back.history, None, at(30));
    assert_eq!(still.history, back.history, "an unchanged state is not written");
    let day = 24 * 60;
    let over = plan(&policy, &env, &still.history, None, at(10 + day));
    let later = plan(&policy, &env, &over.history, None, at(20 + day));
    assert_eq!(later.removals.len(), 1);
    record_removal(&mut history.removed, &orphaned, at(20 + day));
    assert_eq!(history.removed.last().map(|one| one.times), Some(2));
}

/// The clock was a month ahead when the removal was recorded.
#[test]
fn a_removal_with_a_future_time_counts_as_recreated_for_one_day_only() {
    let (policy, env) = (policy(), cluster(5, 1));
    let day = 24 * 60;
    let mut history = second_reconciliation(&policy, &env, None).history;
    record_removal(&mut history.removed, &Route::new("10.244.5.0/24", "10.0.0.15"), at(30 * day));
    let back = plan(&policy, &env, &history, None, at(20));
    assert_eq!(back.recreated[0].removed_at, at(20));
    let still = plan(&policy, &env, &back.history, None, at(30));
    assert_eq!(still.history, back.history, "an unchanged state is not written");
    let over = plan(&policy, &env, &still.history, None, at(20 + day));
    assert!(over.recreated.is_empty() && over.history.candidates.len() == 1);
}

/// A new Node may get the address and pod network of an old one. When it is deleted too, its route is removed like any other.
#[test]
fn a_route_that_was_valid_again_does_not_count_as_recreated_when_it_is_orphaned_again() {
    let (policy, orphaned) = (policy(), cluster(5, 1));
    let mut history = second_reconciliation(&policy, &orphaned, None).history;
    record_removal(&mut history.removed, &Route::new("10.244.5.0/24", "10.0.0.15"), at(10));
    let valid = plan(&policy, &cluster(5, 0), &history, None, at(20));
    assert!(valid.history.removed.is_empty() && valid.recreated.is_empty());
    let later = plan(&policy, &orphaned, &valid.history, None, at(30));
    assert!(later.recreated.is_empty() && later.removals.is_empty());
    assert_eq!(
        removed(&plan(&policy, &orphaned, &later.history, None, at(40))),
        ["10.244.5.0/24 via 10.0.0.15"]
    );
}

/// The process ended between a removal and its record.
#[test]
fn a_route_that_was_being_removed_and_is_gone_counts_as_removed() {
    let policy = policy();
    let (gone, there) = (Route::new("10.244.9.0/24", "10.0.0.99"), Route::new("10.244.5.0/24", "10.0.0.15"));
    let history = History { removing: vec![gone.clone(), there], ..History::default() };
    let next = plan(&policy, &cluster(5, 1), &history, None, at(1));
    let texts: Vec<&str> = next.history.removed.iter().map(|one| one.destination.as_str()).collect();
    assert_eq!(texts, [gone.destination.as_str()]);
    assert!(next.history.removing.is_empty() && next.recreated.is_empty());
    assert_eq!(next.history.candidates.len(), 1);
}

#[test]
fn at_most_a_thousand_orphaned_routes_are_tracked_at_a_time() {
    let routes: Vec<(String, String)> =
        (0..1500).map(|n| (format!("10.244.{}.{}/32", n / 256, n % 256), "10.0.0.99".to_owned())).collect();
    let texts: Vec<(&str, &str)> = routes.iter().map(|(one, two)| (one.as_str(), two.as_str())).collect();
    let policy = policy_with(&Safety { max_removals: 2000, max_percent: 100, ..safety() });
    let decision = second_reconciliation(&policy, &snapshot(&texts), None);
    assert_eq!((decision.removals.len(), decision.counts.orphan), (1000, 1500));
}

/// R10: an invalid route makes Neutron refuse every change of the router.
#[test]
fn routes_for_which_neutron_refuses_every_change_are_named() {
    let env = snapshot(&[("192.168.7.0/24", "172.16.0.1"), ("10.244.1.0/24", "10.0.0.11")]);
    let decision = plan(&policy(), &env, &History::default(), None, at(0));
    assert_eq!(decision.unconnected, [Route::new("192.168.7.0/24", "172.16.0.1")]);
    let hidden = Snapshot { hidden: true, ..env };
    let decision = plan(&policy(), &hidden, &History::default(), None, at(0));
    assert!(decision.unconnected.is_empty(), "it may be on what is hidden");
}

#[test]
fn the_last_limit_stays_while_the_quota_cannot_be_read() {
    for (now, last, expected) in [
        (RouteLimit::Routes(30), Some(7), Some(30)),
        (RouteLimit::Unknown, Some(30), Some(30)),
        (RouteLimit::Unknown, None, None),
        (RouteLimit::NotReported, Some(30), None),
    ] {
        let env = Snapshot { limit: now, ..cluster(3, 0) };
        let history = History { limit: last, ..History::default() };
        let decision = plan(&policy(), &env, &history, None, at(0));
        assert_eq!((decision.quota.limit, decision.history.limit), (expected, expected), "{now:?}");
    }
}
