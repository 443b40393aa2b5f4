//! One observation of a cloud that refuses a list, on real sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::cloud::hcloud::{Hcloud, Token};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::names;

/// Serves network 1 without a route, its server 7 at 10.0.0.2, and no list of floating IPs: `refused` counts the requests for it.
async fn serve(mut stream: TcpStream, refused: Arc<AtomicUsize>) {
    loop {
        let mut buffer = [0; 4096];
        let Ok(read @ 1..) = stream.read(&mut buffer).await else { return };
        let head = String::from_utf8_lossy(&buffer[..read]).into_owned();
        let path = head.split(' ').nth(1).unwrap();
        let (status, body) = if path.contains("/floating_ips") {
            refused.fetch_add(1, Ordering::SeqCst);
            (403, json!({ "error": { "code": "forbidden", "message": "no" } }))
        } else if path.contains("/servers") {
            let at = json!([{ "network": 1, "ip": "10.0.0.2", "alias_ips": [] }]);
            (
                200,
                json!({ "servers": [{ "id": 7, "name": "gateway", "status": "running", "private_net": at }] }),
            )
        } else {
            (200, json!({ "network": { "id": 1, "name": "lan", "ip_range": "10.0.0.0/16", "servers": [7] } }))
        };
        let body = body.to_string();
        let length = body.len();
        let text = format!(
            "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// A gateway that is set up.
fn gateway() -> Node {
    let node = json!({
        "metadata": {
            "name": "gateway", "uid": "uid", "resourceVersion": "1",
            "labels": { names::FLOATING_IP_LABEL: "198.51.100.1" },
            "annotations": { names::SETUP_ANNOTATION: "198.51.100.1", names::BOOT_ID_ANNOTATION: "boot" },
        },
        "spec": { "providerID": "hcloud://7" },
        "status": { "nodeInfo": { "bootID": "boot" }, "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    serde_json::from_value(node).unwrap()
}

#[tokio::test]
async fn defect_37_a_list_of_floating_ips_that_has_just_failed_does_not_delay_the_route_once_more() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let refused = Arc::new(AtomicUsize::new(0));
    let counted = refused.clone();
    let server = async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream, counted.clone()));
        }
    };
    let token = Token::new("secret").unwrap();
    let hcloud = Hcloud::new(&url, token, "test", &prometheus::Registry::new()).unwrap();
    let config = Config::new(serde_yaml::from_str("network: 1").unwrap()).unwrap();
    let mut cloud = Cloud::new(&config, Arc::new(hcloud));
    let jobs: [Job; 0] = [];
    let nodes = [gateway()];
    let snapshot = tokio::select! {
        snapshot = observe(&config, &nodes, &jobs, &mut cloud, Health::default()) => snapshot.unwrap(),
        () = server => unreachable!(),
    };
    assert!(plan::moves_route(&config, &snapshot) && snapshot.floating_ips_error.is_some());
    assert_eq!(refused.load(Ordering::SeqCst), 1);
}
