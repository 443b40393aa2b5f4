//! Servers: how they are shown, listed and put into networks.

use crate::hetzner::client::{ACTION, Client, cluster};
use e2e::hetzner::{NewNetwork, NewServer};
use serde_json::{Value, json};
use std::{net::Ipv4Addr, time::Duration};

fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

#[tokio::test]
async fn a_server_is_shown_with_all_its_networks() {
    let (hetzner, client, id) = cluster().await;
    hetzner.add_network(NewNetwork::new("storage", "10.1.0.0/16")).unwrap();
    let new =
        NewServer::new("a").id(4711).attached("cluster", ip("10.0.0.2")).attached("storage", ip("10.1.0.2"));
    hetzner.add_server(new.label("role", "gateway")).unwrap();
    let server = client.get("/servers/4711").await.body["server"].clone();
    assert_eq!(
        (&server["name"], &server["status"], &server["locked"]),
        (&json!("a"), &json!("running"), &json!(false))
    );
    assert_eq!(server["public_net"]["ipv4"], Value::Null);
    assert_eq!(server["private_net"].as_array().unwrap().len(), 2);
    assert_eq!(server["private_net"][0]["ip"], "10.0.0.2");
    assert_eq!(server["labels"], json!({"role": "gateway"}));
    assert_eq!(client.get(&format!("/networks/{id}")).await.body["network"]["servers"], json!([4711]));
    let public = hetzner.add_server(NewServer::new("b").public(ip("203.0.113.9")).status("off")).unwrap();
    let server = client.get(&format!("/servers/{public}")).await.body["server"].clone();
    assert_eq!(
        (&server["status"], &server["public_net"]["ipv4"]["ip"]),
        (&json!("off"), &json!("203.0.113.9"))
    );
}

#[tokio::test]
async fn lists_are_filtered_sorted_and_cut_into_pages() {
    let (hetzner, client, _) = cluster().await;
    for n in 0..60 {
        let status = if n < 3 { "off" } else { "running" };
        let zone = if n % 2 == 0 { "even" } else { "odd" };
        hetzner.add_server(NewServer::new(&format!("n{n:02}")).status(status).label("zone", zone)).unwrap();
    }
    let names = |body: &Value| -> Vec<String> {
        body["servers"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap().to_owned()).collect()
    };
    let page = client.get("/servers?per_page=50&page=2").await.body;
    assert_eq!(names(&page).len(), 10);
    assert_eq!(
        page["meta"]["pagination"],
        json!({"page": 2, "per_page": 50, "previous_page": 1, "next_page": null, "last_page": 2, "total_entries": 60})
    );
    assert_eq!(names(&client.get("/servers").await.body).len(), 25);
    assert_eq!(names(&client.get("/servers?status=off&sort=name:desc").await.body), ["n02", "n01", "n00"]);
    assert_eq!(names(&client.get("/servers?name=n07").await.body), ["n07"]);
    assert_eq!(names(&client.get("/servers?name=n7").await.body), [""; 0]);
    let odd = client.get("/servers?label_selector=zone%20in%20(odd)&status=off").await.body;
    assert_eq!(names(&odd), ["n01"]);
    for bad in ["per_page=51", "page=0", "sort=status", "colour=red", "label_selector=a%20b"] {
        let reply = client.get(&format!("/servers?{bad}")).await;
        assert_eq!((reply.status, reply.code()), (422, "invalid_input"), "{bad}");
    }
    assert_eq!(client.get("/networks?status=off").await.code(), "invalid_input");
}

#[tokio::test]
async fn attaching_gives_an_address_and_detaching_takes_it() {
    let (hetzner, client, id) = cluster().await;
    hetzner.add_server(NewServer::new("a").attached("cluster", ip("10.0.0.2"))).unwrap();
    let server = hetzner.add_server(NewServer::new("b")).unwrap();
    let attach = format!("/servers/{server}/actions/attach_to_network");
    for (body, code) in [
        (json!({"network": id, "ip": "10.0.0.2"}), "ip_not_available"),
        (json!({"network": id, "ip": "10.0.0.1"}), "ip_not_available"),
        (json!({"network": id, "ip": "10.0.1.7"}), "ip_not_available"),
        (json!({"network": id, "ip": "10.0.9.7"}), "ip_not_available"),
        (json!({"network": id, "alias_ips": ["10.0.0.2"]}), "ip_not_available"),
        (json!({"network": 99}), "not_found"),
        (json!({"net": id}), "invalid_input"),
    ] {
        assert_eq!(client.post(&attach, body.clone()).await.code(), code, "{body}");
    }
    let action =
        client.finished(&client.post(&attach, json!({"network": id, "alias_ips": ["10.0.0.9"]})).await).await;
    assert_eq!(action["command"], "attach_to_network");
    assert_eq!(hetzner.server(server).unwrap().private_ip(id), Some(ip("10.0.0.3")), "the first free one");
    assert_eq!(client.post(&attach, json!({"network": id})).await.code(), "server_already_attached");
    assert_eq!(hetzner.project().server_at(id, ip("10.0.0.9")).unwrap().id, server);

    let detach = format!("/servers/{server}/actions/detach_from_network");
    client.finished(&client.post(&detach, json!({"network": id})).await).await;
    assert!(hetzner.server(server).unwrap().private_net.is_empty());
    assert_eq!(client.post(&detach, json!({"network": id})).await.code(), "not_found");
}

#[tokio::test]
async fn networks_of_one_server_are_few_and_apart() {
    let (hetzner, client, id) = cluster().await;
    let mut new = NewServer::new("a");
    for n in 1..=3 {
        let name = format!("n{n}");
        hetzner.add_network(NewNetwork::new(&name, &format!("10.{n}.0.0/16"))).unwrap();
        new = new.attached(&name, format!("10.{n}.0.2").parse().unwrap());
    }
    let server = hetzner.add_server(new).unwrap();
    let attach = format!("/servers/{server}/actions/attach_to_network");
    assert_eq!(client.post(&attach, json!({"network": id})).await.code(), "resource_limit_exceeded");
    let wide = hetzner.add_network(NewNetwork::new("wide", "10.0.0.0/8")).unwrap();
    let third = hetzner.project().network_named("n3").unwrap().id;
    hetzner.detach_server(server, third).unwrap();
    assert_eq!(client.post(&attach, json!({"network": wide})).await.code(), "networks_overlap");
    let tiny = hetzner.add_network(NewNetwork::new("tiny", "10.9.0.0/24").subnet("10.9.0.0/30")).unwrap();
    hetzner.add_server(NewServer::new("b").attached("tiny", ip("10.9.0.2"))).unwrap();
    assert_eq!(client.post(&attach, json!({"network": tiny})).await.code(), "no_subnet_available");
}

#[tokio::test]
async fn aliases_are_replaced_as_a_whole() {
    let (hetzner, client, id) = cluster().await;
    let a = hetzner.add_server(NewServer::new("a").attached("cluster", ip("10.0.0.2"))).unwrap();
    let b = hetzner.add_server(NewServer::new("b").attached("cluster", ip("10.0.0.3"))).unwrap();
    let path = |server: u64| format!("/servers/{server}/actions/change_alias_ips");
    let body = |ips: &[&str]| json!({"network": id, "alias_ips": ips});
    client.finished(&client.post(&path(a), body(&["10.0.0.8", "10.0.0.9"])).await).await;
    client.finished(&client.post(&path(a), body(&["10.0.0.9"])).await).await;
    assert_eq!(hetzner.server(a).unwrap().private_net[0].alias_ips, [ip("10.0.0.9")]);
    for taken in ["10.0.0.9", "10.0.0.2", "10.0.0.3", "10.0.1.1"] {
        assert_eq!(client.post(&path(b), body(&[taken])).await.code(), "ip_not_available", "{taken}");
    }
    let many = ["10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.13", "10.0.0.14", "10.0.0.15"];
    assert_eq!(client.post(&path(b), body(&many)).await.code(), "resource_limit_exceeded");
    assert_eq!(client.post(&path(b), json!({"network": 99, "alias_ips": []})).await.code(), "not_found");
    assert_eq!(client.post(&path(b), json!({"network": id})).await.code(), "invalid_input");
}

#[tokio::test]
async fn a_server_is_locked_while_an_action_runs_on_it() {
    let (hetzner, client, id) = cluster().await;
    let server = hetzner.add_server(NewServer::new("a").attached("cluster", ip("10.0.0.2"))).unwrap();
    hetzner.set_action_duration(Duration::from_secs(3600));
    let path = |command: &str| format!("/servers/{server}/actions/{command}");
    let off = client.send("POST", &path("poweroff"), "", "").await.unwrap();
    assert_eq!(off.status, 201);
    assert_eq!(client.get(&format!("/servers/{server}")).await.body["server"]["locked"], true);
    for (command, body) in [("poweron", json!({})), ("detach_from_network", json!({"network": id}))] {
        let reply = client.post(&path(command), body).await;
        assert_eq!((reply.status, reply.code()), (423, "locked"), "{command}");
    }
    hetzner.finish_actions();
    client.finished(&off).await;
    assert_eq!(hetzner.server(server).unwrap().status, "off");
    hetzner.set_action_duration(ACTION);
    client.finished(&client.post(&path("poweron"), json!({})).await).await;
    assert_eq!(hetzner.server(server).unwrap().status, "running");
}

#[tokio::test]
async fn a_server_deleted_under_an_action_makes_it_fail() {
    let (hetzner, client, id) = cluster().await;
    let server = hetzner.add_server(NewServer::new("a")).unwrap();
    hetzner.set_action_duration(Duration::from_secs(3600));
    let reply =
        client.post(&format!("/servers/{server}/actions/attach_to_network"), json!({"network": id})).await;
    hetzner.delete_server(server).unwrap();
    hetzner.finish_actions();
    assert_eq!(Client::of(&hetzner).finished(&reply).await["status"], "error");
    assert_eq!(client.get(&format!("/servers/{server}")).await.code(), "not_found");
}
