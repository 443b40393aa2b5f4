//! Floating IPs: assigned, moved, unassigned.

use crate::hetzner::client::cluster;
use e2e::hetzner::{NewFloatingIp, NewServer};
use serde_json::{Value, json};

#[tokio::test]
async fn a_floating_ip_moves_but_is_not_given_twice_to_one_server() {
    let (hetzner, client, _) = cluster().await;
    let a = hetzner.add_server(NewServer::new("a")).unwrap();
    let b = hetzner.add_server(NewServer::new("b")).unwrap();
    let ip = hetzner.add_floating_ip(NewFloatingIp::new("egress", "198.51.100.7")).unwrap();
    let (assign, unassign) =
        (format!("/floating_ips/{ip}/actions/assign"), format!("/floating_ips/{ip}/actions/unassign"));

    assert_eq!(client.send("POST", &unassign, "", "").await.unwrap().code(), "invalid_input");
    assert_eq!(client.post(&assign, json!({"server": 99})).await.code(), "not_found");
    let first = client.post(&assign, json!({"server": a})).await;
    let locked = client.post(&assign, json!({"server": b})).await;
    assert_eq!((locked.status, locked.code()), (423, "locked"));
    assert_eq!(client.finished(&first).await["command"], "assign_floating_ip");
    assert_eq!(
        client.get(&format!("/servers/{a}")).await.body["server"]["public_net"]["floating_ips"],
        json!([ip])
    );

    let again = client.post(&assign, json!({"server": a})).await;
    assert_eq!((again.status, again.code()), (422, "floating_ip_assigned"));
    client.finished(&client.post(&assign, json!({"server": b})).await).await;
    assert_eq!(hetzner.floating_ip(ip).unwrap().server, Some(b));
    client.finished(&client.send("POST", &unassign, "", "").await.unwrap()).await;
    assert_eq!(client.get(&format!("/floating_ips/{ip}")).await.body["floating_ip"]["server"], Value::Null);
}

#[tokio::test]
async fn floating_ips_are_listed_by_label_and_name() {
    let (hetzner, client, _) = cluster().await;
    hetzner.add_server(NewServer::new("a")).unwrap();
    let four = NewFloatingIp::new("four", "198.51.100.7").label("pool", "egress").server("a");
    let four = hetzner.add_floating_ip(four).unwrap();
    hetzner.add_floating_ip(NewFloatingIp::new("six", "2001:db8:7::/64").label("pool", "egress")).unwrap();
    hetzner.add_floating_ip(NewFloatingIp::new("spare", "198.51.100.8")).unwrap();
    let list = client.get("/floating_ips?label_selector=pool%3D%3Degress&sort=id").await.body;
    assert_eq!(list["meta"]["pagination"]["total_entries"], 2);
    let (first, second) = (&list["floating_ips"][0], &list["floating_ips"][1]);
    assert_eq!((&first["ip"], &first["type"]), (&json!("198.51.100.7"), &json!("ipv4")));
    assert!(first["server"].is_u64());
    assert_eq!((&second["ip"], &second["type"]), (&json!("2001:db8:7::/64"), &json!("ipv6")));
    let one = client.get("/floating_ips?name=four").await.body;
    assert_eq!(one["floating_ips"][0]["id"], four);
    assert_eq!(
        client.get("/floating_ips?ip=198.51.100.7").await.code(),
        "invalid_input",
        "no filter by address"
    );
    hetzner.delete_server(hetzner.floating_ip(four).unwrap().server.unwrap()).unwrap();
    assert_eq!(hetzner.floating_ip(four).unwrap().server, None);
}

#[tokio::test]
async fn what_no_floating_ip_is_cannot_be_added() {
    let (hetzner, _, _) = cluster().await;
    for bad in ["2001:db8::1", "2001:db8::/48", "198.51.100.0/24", "x"] {
        assert!(hetzner.add_floating_ip(NewFloatingIp::new("bad", bad)).is_err(), "{bad}");
    }
}
