#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use kube::Resource as _;
use serde_json::json;

use super::*;
use crate::names::Flavor;

#[test]
fn the_group_of_a_kind_is_that_of_the_flavor() {
    for (flavor, networking, ipam, apinet) in [
        (Flavor::Onmetal, "networking.api.onmetal.de", "ipam.api.onmetal.de", "core.apinet.api.onmetal.de"),
        (Flavor::Ironcore, "networking.ironcore.dev", "ipam.ironcore.dev", "core.apinet.ironcore.dev"),
    ] {
        assert_eq!(source::Network::api_version(&flavor), format!("{networking}/v1alpha1"));
        assert_eq!(source::Prefix::api_version(&flavor), format!("{ipam}/v1alpha1"));
        assert_eq!(
            apinet::Ip::url_path(&flavor, Some("a")),
            format!("/apis/{apinet}/v1alpha1/namespaces/a/ips")
        );
    }
}

/// As the Go servers write them: null for what is empty or not allocated, empty objects, empty enums.
#[test]
fn objects_of_the_go_servers_are_read() {
    let metadata = json!({ "name": "a", "namespace": "b", "uid": "c", "creationTimestamp": null });
    let balancer: apinet::LoadBalancer = serde_json::from_value(json!({
        "metadata": metadata,
        "spec": {
            "type": "Public", "networkRef": { "name": "n" }, "ports": null,
            "ips": [{ "name": "ipv4", "ipFamily": "IPv4", "ip": null }],
            "selector": { "matchLabels": { "a": "b" } },
            "template": { "metadata": { "creationTimestamp": null }, "spec": { "type": "", "loadBalancerType": "", "networkRef": {} } },
        },
        "status": {},
    }))
    .unwrap();
    assert_eq!(balancer.spec.ips[0].ip, None);
    let interface: source::NetworkInterface = serde_json::from_value(json!({
        "metadata": metadata,
        "spec": { "networkRef": {}, "ipFamilies": null, "ips": null, "prefixes": null, "virtualIP": { "ephemeral": {} } },
        "status": { "lastStateTransitionTime": null, "virtualIP": null },
    }))
    .unwrap();
    assert!(interface.spec.virtual_ip.unwrap().ephemeral.is_some() && interface.status.state.is_empty());
    let routing: source::LoadBalancerRouting =
        serde_json::from_value(json!({ "metadata": metadata, "networkRef": {}, "destinations": null }))
            .unwrap();
    assert!(routing.destinations.is_empty());
    let ip: apinet::Ip = serde_json::from_value(json!({
        "metadata": metadata, "spec": { "type": "Public", "ipFamily": "IPv6", "ip": "fe80::1%eth0" }, "status": {},
    }))
    .unwrap();
    assert_eq!(IpFamily::of(&ip.spec.ip.unwrap()), IpFamily::IPv6);
}

#[test]
fn a_prefix_counts_once_it_is_allocated() {
    let prefix = |phase: Option<&str>| -> source::Prefix {
        serde_json::from_value(json!({
            "metadata": { "name": "p", "ownerReferences": [
                { "apiVersion": "a", "kind": "b", "name": "c", "uid": "owner", "controller": true },
                { "apiVersion": "a", "kind": "b", "name": "c", "uid": "other" },
            ] },
            "spec": { "prefix": "10.0.0.0/24" }, "status": { "phase": phase },
        }))
        .unwrap()
    };
    assert_eq!(prefix(Some("Allocated")).allocated(), Some("10.0.0.0/24"));
    assert_eq!((prefix(Some("Pending")).allocated(), prefix(None).allocated()), (None, None));
    assert_eq!(prefix(None).controller().map(|owner| owner.uid.as_str()), Some("owner"));
}
