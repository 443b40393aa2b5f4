//! `destinations` with a `/`: the allow-list.

use e2e::egress_router::ELSEWHERE;

use super::*;

fn limited(destinations: Value) -> Value {
    json!({"addresses": ["192.168.50.99/24", "2001:db8:50::99/64"], "destinations": destinations})
}

#[test]
fn unlisted_destinations_are_rejected_immediately_and_the_cluster_is_not_restricted() {
    let scene = Scene::new();
    let plugin = scene.plugin(limited(json!(["203.0.113.9/32", "2001:db8:9::9/128"])));
    let result = plugin.add().unwrap();
    for family in 0..2 {
        scene.outside_sees(OWN[family]);
        refused_at_once(&scene.pod.inside, Transport::Tcp, ELSEWHERE[family], PORT);
        refused_at_once(&scene.pod.inside, Transport::Tcp, GATEWAY[family], PORT);
        assert!(!scene.pod.inside.pings(ELSEWHERE[family]).unwrap());
        wait_until("a reply to a ping", || scene.pod.inside.pings(OUTSIDE[family])).unwrap();
    }
    scene.cluster_is_reached(0..2);
    // Incoming connections get replies: the list only restricts connections that the pod opens.
    for family in 0..2 {
        let _server = scene.pod.inside.listen(OWN[family], 8080).unwrap();
        scene.env.outside.wait_seen_as(GATEWAY[family], OWN[family], 8080).unwrap();
    }
    plugin.del(Some(&result)).unwrap();
    for family in 0..2 {
        scene.pod.inside.wait_seen_as(NODE[family], ELSEWHERE[family], PORT).unwrap();
    }
    scene.restored();
}

#[test]
fn a_list_of_one_family_allows_nothing_of_the_other_family() {
    let scene = Scene::new();
    scene.plugin(limited(json!(["203.0.113.0/24"]))).add().unwrap();
    scene.outside_sees(OWN[0]);
    scene.pod.inside.wait_seen_as(OWN[0], ELSEWHERE[0], PORT).unwrap();
    refused_at_once(&scene.pod.inside, Transport::Tcp, OUTSIDE[1], PORT);
}

/// The unit tests of config::overrides test that an empty intersection allows nothing.
#[test]
fn an_empty_list_allows_nothing() {
    let scene = Scene::new();
    scene.plugin(limited(json!([]))).add().unwrap();
    for outside in OUTSIDE {
        refused_at_once(&scene.pod.inside, Transport::Tcp, outside, PORT);
    }
}

#[test]
fn the_source_address_of_another_interface_does_not_bypass_the_list() {
    let scene = Scene::new();
    scene.plugin(limited(json!(["203.0.113.9/32"]))).add().unwrap();
    scene.outside_sees(OWN[0]);
    for source in [OWN[0], &scene.pod.addresses[0]] {
        let to = format!("TCP4:{}:{PORT},bind={source},connect-timeout=1", ELSEWHERE[0]);
        let output = scene.pod.inside.run(["socat", "-T1", "-u", &to, "-"]).unwrap();
        assert_ne!(output.stdout.trim(), OWN[0], "{output:?}");
    }
}
