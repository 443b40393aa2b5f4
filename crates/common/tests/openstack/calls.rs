//! Every call: its method, path and query, and what is read of the response.

use common::cloud::openstack::FloatingIp;
use serde_json::json;

use crate::site::{PROJECT, Site, ok, reply};

#[tokio::test]
async fn neutron() {
    let (site, cloud) = Site::start().await;
    let at = "GET /networking/v2.0";
    let alias = |alias: &str| json!({"alias": alias, "name": "n", "description": ""});
    site.on(
        &format!("{at}/extensions"),
        [ok(&json!({"extensions": [alias("extraroute-atomic"), alias("router")]}))],
    );
    assert!(cloud.extensions().await.unwrap().contains("extraroute-atomic"));
    site.on(
        &format!("{at}/networks/n1"),
        [ok(&json!({"network": {"id": "n1", "name": "n", "project_id": "q", "shared": true}}))],
    );
    let network = cloud.network("n1").await.unwrap();
    assert_eq!((network.name.as_str(), network.project_id.as_str()), ("n", "q"));
    let quota = format!("{at}/quotas/{PROJECT}");
    for (body, limit) in [
        (json!({"router": 10}), None),
        (json!({"router_route": 30}), Some(30)),
        (json!({"router_route": -1}), Some(-1)),
    ] {
        site.on(&quota, [ok(&json!({"quota": body}))]);
        assert_eq!(cloud.quota_router_route().await.unwrap(), limit);
    }
    let port = json!({
        "id": "p1", "name": "", "network_id": "n1", "project_id": "q", "device_id": "s1", "device_owner": "compute:nova",
        "fixed_ips": [{"subnet_id": "b1", "ip_address": "10.7.0.5"}],
        "allowed_address_pairs": [{"ip_address": "10.9.0.0/16", "mac_address": "fa:16:3e:00:00:01"}],
    });
    let fields = "fields=id&fields=name&fields=network_id&fields=project_id&fields=tenant_id&fields=device_id&fields=device_owner&fields=fixed_ips&fields=allowed_address_pairs&fields=port_security_enabled&limit=500";
    for filter in ["device_id=r1", "network_id=n1"] {
        site.on(&format!("{at}/ports?{filter}&{fields}"), [ok(&json!({"ports": [port]}))]);
    }
    let ports = cloud.ports_of_device("r1").await.unwrap();
    assert_eq!(ports[0].fixed_ips[0].ip_address, "10.7.0.5");
    assert_eq!(ports[0].allowed_address_pairs[0].ip_address, "10.9.0.0/16");
    assert!(ports[0].port_security_enabled, "a Neutron without the extension filters always");
    assert_eq!(ports[0].owner(), "q");
    assert_eq!(cloud.ports_of_network("n1").await.unwrap(), ports);
    let mut other = port.clone();
    other["project_id"] = json!(null);
    other["tenant_id"] = json!("t");
    other["port_security_enabled"] = json!(null);
    site.on(&format!("{at}/ports?network_id=n1&{fields}"), [ok(&json!({"ports": [other]}))]);
    let other = cloud.ports_of_network("n1").await.unwrap();
    assert_eq!((other[0].owner(), other[0].port_security_enabled), ("t", true), "what some say of old");
    for wrong in [cloud.ports_of_device("").await, cloud.ports_of_network("").await] {
        assert_eq!(wrong.unwrap_err().code(), "setup");
    }
    let ip = json!({"id": "f1", "floating_ip_address": "198.51.100.7", "description": null, "port_id": null, "project_id": PROJECT, "status": "DOWN", "tags": ["a"]});
    site.on(&format!("{at}/floatingips?project_id={PROJECT}&limit=500"), [ok(&json!({"floatingips": [ip]}))]);
    site.on("DELETE /networking/v2.0/floatingips/f1", [reply(204, "")]);
    let ip = FloatingIp {
        id: "f1".to_owned(),
        floating_ip_address: "198.51.100.7".to_owned(),
        description: String::new(),
        port_id: None,
    };
    assert_eq!(cloud.floating_ips().await.unwrap(), [ip]);
    cloud.delete_floating_ip("f1").await.unwrap();
    let fields = "fields=id&fields=name&fields=description&fields=project_id";
    let group = json!({"id": "g1", "name": "lb-sg-1", "description": "d", "project_id": PROJECT});
    site.on(
        &format!("{at}/security-groups?project_id={PROJECT}&{fields}&limit=500"),
        [ok(&json!({"security_groups": [group]}))],
    );
    site.on("DELETE /networking/v2.0/security-groups/g1", [reply(204, "")]);
    let groups = cloud.security_groups().await.unwrap();
    assert_eq!((groups[0].name.as_str(), groups[0].description.as_str()), ("lb-sg-1", "d"));
    cloud.delete_security_group("g1").await.unwrap();
    site.was_strict();
}

#[tokio::test]
async fn nova_cinder_octavia() {
    let (site, cloud) = Site::start().await;
    let addr = json!({"addr": "10.7.2.168", "version": 4, "OS-EXT-IPS:type": "fixed"});
    let server = json!({"id": "s1", "name": "n", "status": "ACTIVE", "addresses": {"net": [addr]}});
    site.on("GET /compute/v2.1/servers/s1", [ok(&json!({"server": server}))]);
    let server = cloud.server("s1").await.unwrap().unwrap();
    assert_eq!(server.addresses.unwrap()["net"][0].addr, "10.7.2.168");
    let volume = json!({
        "id": "v1", "name": null, "status": "in-use", "size": 3, "metadata": {"cinder.csi.openstack.org/cluster": "c"},
        "attachments": [{"server_id": "s1", "attachment_id": "a1", "device": "/dev/vdb"}],
    });
    site.on("GET /volume/v3/volumes/v1", [ok(&json!({"volume": volume}))]);
    site.on("GET /volume/v3/volumes/detail?limit=500", [ok(&json!({"volumes": [volume]}))]);
    let volume = cloud.volume("v1").await.unwrap().unwrap();
    assert_eq!((volume.name.as_deref(), volume.status.as_str()), (None, "in-use"));
    assert_eq!(cloud.volumes(Some).await.unwrap(), [volume]);
    // As Cinder answers: empty, and HTML by its header.
    let accepted = || reply(202, "").with("Content-Type", "text/html; charset=UTF-8");
    site.on("DELETE /volume/v3/volumes/v1", [accepted()]);
    cloud.delete_volume("v1", false).await.unwrap();
    assert_eq!(site.last().line, "DELETE /volume/v3/volumes/v1");
    cloud.delete_volume("v1", true).await.unwrap();
    assert_eq!(site.last().line, "DELETE /volume/v3/volumes/v1?cascade=true");
    let snapshot =
        json!({"id": "n1", "name": "snap", "status": "available", "volume_id": "v1", "metadata": {}});
    site.on("GET /volume/v3/snapshots/n1", [ok(&json!({"snapshot": snapshot}))]);
    site.on("GET /volume/v3/snapshots/detail?limit=500", [ok(&json!({"snapshots": [snapshot]}))]);
    site.on("DELETE /volume/v3/snapshots/n1", [accepted()]);
    assert_eq!(cloud.snapshots(Some).await.unwrap(), [cloud.snapshot("n1").await.unwrap().unwrap()]);
    cloud.delete_snapshot("n1").await.unwrap();
    let at = "/load-balancer/v2.0/lbaas/loadbalancers";
    let balancer = json!({
        "id": "l1", "name": "kube_service_c_ns_web", "description": "d", "provisioning_status": "ACTIVE",
        "operating_status": "ONLINE", "vip_address": "10.7.0.9", "vip_port_id": "p9", "project_id": PROJECT,
        "tags": ["kube_service_c_ns_web"], "listeners": [],
    });
    // Gone, and not yet purged.
    let mut deleted = balancer.clone();
    deleted["id"] = json!("l2");
    deleted["provisioning_status"] = json!("DELETED");
    site.on(&format!("GET {at}/l2"), [ok(&json!({"loadbalancer": deleted}))]);
    assert_eq!(cloud.load_balancer("l2").await.unwrap(), None);
    site.on(&format!("GET {at}/l1"), [ok(&json!({"loadbalancer": balancer}))]);
    site.on(
        &format!("GET {at}?project_id={PROJECT}&limit=500"),
        [ok(&json!({"loadbalancers": [balancer, deleted], "loadbalancers_links": []}))],
    );
    site.on(&format!("DELETE {at}/l1"), [reply(204, "")]);
    assert_eq!(cloud.load_balancers().await.unwrap(), [cloud.load_balancer("l1").await.unwrap().unwrap()]);
    cloud.delete_load_balancer("l1", false).await.unwrap();
    assert_eq!(site.last().line, format!("DELETE {at}/l1"));
    cloud.delete_load_balancer("l1", true).await.unwrap();
    assert_eq!(site.last().line, format!("DELETE {at}/l1?cascade=true"));
    site.was_strict();
}

#[tokio::test]
async fn an_id_with_other_characters_is_refused() {
    let (site, cloud) = Site::start().await;
    for id in ["", "..", "a/b", "a?cascade=true", "a%2Fb", "a b", "ü", "a\n"] {
        for error in [
            cloud.volume(id).await.unwrap_err(),
            cloud.delete_load_balancer(id, true).await.unwrap_err(),
            cloud.router(id).await.unwrap_err(),
        ] {
            assert_eq!(error.code(), "setup", "{error}");
            assert!(!error.is_not_found() && error.to_string().contains("is not an ID"), "{error}");
        }
    }
    assert!(site.state().seen.is_empty());
}

/// The metrics after one login, one call and one refusal.
#[tokio::test]
async fn calls_are_counted_by_service_method_and_code() {
    let (site, cloud) = Site::start().await;
    site.on("GET /compute/v2.1/servers/s1", [ok(&json!({"server": {"id": "s1", "status": "ACTIVE"}}))]);
    cloud.server("s1").await.unwrap();
    site.on(
        "DELETE /volume/v3/volumes/v1",
        [reply(400, r#"{"badRequest": {"code": 400, "message": "in-use"}}"#)],
    );
    cloud.delete_volume("v1", false).await.unwrap_err();
    let text = prometheus::TextEncoder::new().encode_to_string(&site.registry.gather()).unwrap();
    for line in [
        r#"cloud_api_requests_total{cloud="openstack",code="201",method="POST",service="identity"} 1"#,
        r#"cloud_api_requests_total{cloud="openstack",code="200",method="GET",service="compute"} 1"#,
        r#"cloud_api_requests_total{cloud="openstack",code="400",method="DELETE",service="block-storage"} 1"#,
        r#"cloud_api_request_duration_seconds_count{cloud="openstack",method="POST",service="identity"} 1"#,
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}
