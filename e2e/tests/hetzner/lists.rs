//! Lists, and objects by ID.

use crate::hetzner::client::cluster;
use e2e::hetzner::{NewFloatingIp, NewNetwork, NewServer};
use serde_json::{Value, json};

#[tokio::test]
async fn server_is_shown_with_all_its_networks() {
    let (hetzner, client, id) = cluster().await;
    let storage = hetzner.add_network(NewNetwork::new("storage", "10.1.0.0/16")).unwrap();
    let new = NewServer::new("a").id(4711).attached("cluster", [10, 0, 0, 2].into()).label("role", "gateway");
    hetzner.add_server(new.attached("storage", [10, 1, 0, 2].into())).unwrap();
    let server = client.get("/servers/4711").await.body["server"].clone();
    assert_eq!((&server["name"], &server["status"]), (&json!("a"), &json!("running")));
    assert_eq!(server["public_net"]["ipv4"], Value::Null);
    assert_eq!(server["private_net"].as_array().unwrap().len(), 2);
    assert_eq!(server["private_net"][0]["ip"], "10.0.0.2");
    assert_eq!(server["labels"], json!({"role": "gateway"}));
    assert_eq!(client.get(&format!("/networks/{id}")).await.body["network"]["servers"], json!([4711]));
    hetzner.detach_server(4711, storage).unwrap();
    hetzner.attach_server(4711, id, [10, 0, 0, 9].into()).unwrap();
    hetzner.set_server_status(4711, "off").unwrap();
    let server = client.get("/servers/4711").await.body["server"].clone();
    assert_eq!((&server["status"], &server["private_net"][0]["ip"]), (&json!("off"), &json!("10.0.0.9")));
    let public = hetzner.add_server(NewServer::new("b").public([203, 0, 113, 9].into())).unwrap();
    let server = client.get(&format!("/servers/{public}")).await.body["server"].clone();
    assert_eq!(server["public_net"]["ipv4"]["ip"], "203.0.113.9");
}

#[tokio::test]
async fn lists_are_filtered_and_cut_into_pages() {
    let (hetzner, client, _) = cluster().await;
    for n in 0..60 {
        let zone = if n < 3 { "low" } else { "high" };
        hetzner.add_server(NewServer::new(&format!("n{n:02}")).label("zone", zone)).unwrap();
    }
    let names = |body: &Value| -> Vec<String> {
        body["servers"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap().to_owned()).collect()
    };
    let page = client.get("/servers?per_page=50&page=2&sort=id:asc").await.body;
    assert_eq!(names(&page).len(), 10);
    assert_eq!(
        page["meta"]["pagination"],
        json!({"page": 2, "per_page": 50, "previous_page": 1, "next_page": null, "last_page": 2, "total_entries": 60})
    );
    assert_eq!(names(&client.get("/servers").await.body).len(), 25);
    assert_eq!(names(&client.get("/servers?name=n07").await.body), ["n07"]);
    assert_eq!(names(&client.get("/servers?name=n7").await.body), [""; 0]);
    let low = client.get("/servers?label_selector=zone%20in%20(low)").await.body;
    assert_eq!(names(&low), ["n00", "n01", "n02"]);
    for bad in ["per_page=51", "page=0", "sort=colour", "colour=red", "label_selector=a%20b"] {
        let reply = client.get(&format!("/servers?{bad}")).await;
        assert_eq!((reply.status, reply.code()), (422, "invalid_input"), "{bad}");
    }
}

#[tokio::test]
async fn floating_ips_are_listed_with_their_servers() {
    let (hetzner, client, _) = cluster().await;
    let a = hetzner.add_server(NewServer::new("a")).unwrap();
    let four = NewFloatingIp::new("four", "198.51.100.7").label("pool", "egress").server("a");
    let four = hetzner.add_floating_ip(four).unwrap();
    hetzner.add_floating_ip(NewFloatingIp::new("six", "2001:db8:7::/64").label("pool", "egress")).unwrap();
    hetzner.add_floating_ip(NewFloatingIp::new("spare", "198.51.100.8")).unwrap();
    let list = client.get("/floating_ips?label_selector=pool%3D%3Degress&sort=id:asc").await.body;
    assert_eq!(list["meta"]["pagination"]["total_entries"], 2);
    let (first, second) = (&list["floating_ips"][0], &list["floating_ips"][1]);
    assert_eq!(
        (&first["ip"], &first["type"], &first["server"]),
        (&json!("198.51.100.7"), &json!("ipv4"), &json!(a))
    );
    assert_eq!((&second["ip"], &second["type"]), (&json!("2001:db8:7::/64"), &json!("ipv6")));
    let reply = client.get("/floating_ips?ip=198.51.100.7").await;
    assert_eq!(reply.code(), "invalid_input", "the API has no filter by address");
    hetzner.assign_floating_ip(four, None).unwrap();
    let path = format!("/floating_ips/{four}");
    assert_eq!(client.get(&path).await.body["floating_ip"]["server"], Value::Null);
    hetzner.assign_floating_ip(four, Some(a)).unwrap();
    hetzner.delete_server(a).unwrap();
    assert_eq!(client.get(&path).await.body["floating_ip"]["server"], Value::Null);
    assert_eq!(client.get(&format!("/servers/{a}")).await.code(), "not_found");
    for bad in ["2001:db8::1", "2001:db8::/48", "198.51.100.0/24", "x"] {
        assert!(hetzner.add_floating_ip(NewFloatingIp::new("bad", bad)).is_err(), "{bad}");
    }
}
