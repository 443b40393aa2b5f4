//! Ingresses, whose load balancers can only be found by name.

use common::api::deorbit::Phase;
use jiff::SignedDuration;
use serde_json::json;

use super::env::*;
use crate::names;
use crate::observe::snapshot::{FloatingIp, Ingress, LoadBalancer, SecurityGroup};
use crate::plan::action::ObjectKind;

/// An Ingress of Octavia's class with this address, one of another class, and the load balancer with the first one's name: at 10.0.0.9,
/// without a controller that deletes it.
fn with_ingress(address: &str) -> TestEnv {
    let asked = json!({"resources": {"ingresses": "Delete"}, "orphanPolicy": "Delete", "timeouts": {"perObject": "10m", "total": "1h"}});
    let mut env = proven(asked);
    env.node("n1", "10.0.0.5", true);
    env.service("x");
    env.cluster.services.clear();
    let (name, port) = (names::ingress_load_balancer("prod", "a", "shop"), Some("port-x".to_owned()));
    *env.balancer("x") = LoadBalancer {
        name,
        provisioning_status: "ACTIVE".into(),
        vip_address: Some("10.0.0.9".into()),
        vip_port_id: port.clone(),
        ..LoadBalancer::default()
    };
    let cloud = env.cloud.as_mut().unwrap();
    cloud.floating_ips.clear();
    let description =
        format!("{} shop in namespace a from cluster prod", names::INGRESS_FLOATING_IP_DESCRIPTION);
    let ip = FloatingIp {
        floating_ip_address: "203.0.113.9".into(),
        description,
        port_id: port,
        ..FloatingIp::default()
    };
    cloud.floating_ips.insert("ip-x".into(), ip);
    for (name, class) in [("shop", "openstack"), ("other", "nginx")] {
        env.cluster.ingresses.push(Ingress {
            meta: meta("a", name),
            class: Some(class.into()),
            addresses: vec![address.into()],
            ..Ingress::default()
        });
    }
    env.untouchable = vec!["uid-other".into()];
    env
}

#[test]
fn load_balancers_of_deleted_ingresses_are_deleted_by_id_where_the_ingress_had_their_address() {
    for address in ["10.0.0.9", "203.0.113.9"] {
        let mut env = with_ingress(address);
        env.finish();
        assert_eq!(env.run.status.phase, Phase::Succeeded, "{address}: {:?}", env.run.status.debris);
        assert!(env.cloud.as_ref().unwrap().floating_ips.is_empty());
        // octavia-ingress-controller may run: it gets its time first.
        let took = env.now.duration_since(env.run.book.deleting_since.unwrap());
        assert!(took >= SignedDuration::from_mins(2), "{took}");
    }
}

#[test]
fn a_load_balancer_that_only_has_the_name_of_an_ingress_is_waited_for_and_becomes_debris() {
    let mut env = with_ingress("198.51.100.1");
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded);
    let debris: Vec<_> = env.run.status.debris.iter().filter_map(|one| one.id.as_deref()).collect();
    assert_eq!(debris, ["lb-x", "ip-x"]);
    assert!(env.cloud.as_ref().unwrap().load_balancers.contains_key("lb-x"));
}

#[test]
fn floating_ip_and_security_group_of_another_cluster_s_load_balancer_are_kept_when_it_is_deleted() {
    let mut env = with_ingress("198.51.100.1");
    let name = names::ingress_load_balancer("prod", "a", "shop");
    let group = SecurityGroup { name, ..SecurityGroup::default() };
    env.cloud.as_mut().unwrap().security_groups.insert("group".into(), group);
    env.until(Phase::Deleting);
    // Its owner deletes it, and keeps the address.
    let cloud = env.cloud.as_mut().unwrap();
    cloud.load_balancers.remove("lb-x");
    cloud.floating_ips.get_mut("ip-x").unwrap().port_id = None;
    env.untouchable.extend(["ip-x".to_owned(), "group".to_owned()]);
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded);
    let debris: Vec<_> = env.run.status.debris.iter().filter_map(|one| one.id.as_deref()).collect();
    assert_eq!(debris, ["ip-x", "group"]);
}

#[test]
fn a_load_balancer_that_an_ingress_got_just_before_its_deletion_is_waited_for() {
    let mut env = with_ingress("10.0.0.9");
    let late = env.cloud.as_mut().unwrap().load_balancers.remove("lb-x").unwrap();
    env.cluster.ingresses.truncate(1);
    while !env.cluster.ingresses.is_empty() {
        env.step();
    }
    env.cloud.as_mut().unwrap().load_balancers.insert("lb-x".into(), late);
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded);
    assert_eq!(env.run.status.debris[0].id.as_deref(), Some("lb-x"));
    assert!(env.cloud.as_ref().unwrap().load_balancers.contains_key("lb-x"));
}

#[test]
fn ingresses_have_their_addresses_and_security_groups_recorded() {
    let mut env = proven(json!({"resources": {"ingresses": "Delete"}}));
    env.service("x");
    env.cluster.services.clear();
    let name = names::ingress_load_balancer("prod", "a", "shop");
    env.balancer("x").name = name.clone();
    let cloud = env.cloud.as_mut().unwrap();
    let port = Some("port-x".to_owned());
    let ip = |text: &str| FloatingIp {
        floating_ip_address: "203.0.113.9".into(),
        description: text.into(),
        port_id: port.clone(),
        ..FloatingIp::default()
    };
    cloud.floating_ips.clear();
    cloud.floating_ips.insert(
        "made".into(),
        ip("Floating IP for Kubernetes ingress shop in namespace a from cluster prod"),
    );
    cloud.floating_ips.insert("own".into(), ip("mine"));
    cloud.security_groups.insert("group".into(), SecurityGroup { name, ..SecurityGroup::default() });
    env.cluster.ingresses.push(Ingress {
        meta: meta("a", "shop"),
        class: Some("openstack".into()),
        ..Ingress::default()
    });
    env.node("n1", "10.0.0.5", true);
    env.until(Phase::Deleting);
    let recorded = |id: &str| env.run.records.iter().find(|one| one.id.as_deref() == Some(id)).unwrap();
    assert_eq!((recorded("made").kept.as_ref(), recorded("group").kept.as_ref()), (None, None));
    assert!(recorded("own").kept.as_deref().unwrap().contains("did not make it"));
    assert_eq!(recorded("lb-x").object, Some(ObjectKind::Ingress));
}
