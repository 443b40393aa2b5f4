//! Writes of the route to a cloud that does not respond, on real sockets.

use std::sync::{Arc, Mutex};

use common::cloud::hcloud::Token;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// A cloud with network 1 and server 7 at 10.0.0.3.
#[derive(Default)]
struct FakeCloud {
    gateway: Option<Ipv4Addr>,
    /// The fates of the next writes; those after them are accepted.
    next: Vec<Fate>,
    writes: Vec<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Accepted,
    /// It has its effect, and no response.
    Unanswered,
    /// No effect and no response.
    Lost,
    Conflict,
    Forbidden,
}

impl FakeCloud {
    fn respond(&mut self, head: &str, body: &str) -> Option<(u16, Value)> {
        let path = head.split(' ').nth(1).unwrap();
        if !head.starts_with("POST") {
            let routes: Vec<Value> = self
                .gateway
                .iter()
                .map(|gateway| json!({ "destination": "0.0.0.0/0", "gateway": gateway }))
                .collect();
            let network = json!({ "network": { "id": 1, "name": "lan", "ip_range": "10.0.0.0/16", "routes": routes,
                "servers": [7], "subnets": [] } });
            let server = json!({ "server": { "id": 7, "name": "gateway", "status": "running", "private_net": [
                { "network": 1, "ip": "10.0.0.3", "alias_ips": [] }] } });
            return Some((200, if path.contains("servers") { server } else { network }));
        }
        self.writes.push(path.rsplit('/').next().unwrap().to_owned());
        let fate = if self.next.is_empty() { Fate::Accepted } else { self.next.remove(0) };
        let refused = |status, code: &str| (status, json!({ "error": { "code": code, "message": code } }));
        match fate {
            Fate::Lost => return None,
            Fate::Conflict => return Some(refused(409, "conflict")),
            Fate::Forbidden => return Some(refused(403, "forbidden")),
            Fate::Unanswered | Fate::Accepted => {}
        }
        let asked: Value = serde_json::from_str(body).unwrap();
        let gateway = asked["gateway"].as_str().unwrap().parse().ok();
        if path.ends_with("delete_route") {
            if self.gateway != gateway {
                return Some(refused(404, "not_found"));
            }
            self.gateway = None;
        } else if self.gateway.is_some() {
            return Some(refused(422, "invalid_input"));
        } else {
            self.gateway = gateway;
        }
        let action = json!({ "action": { "id": 1, "command": "change", "status": "success", "progress": 100,
            "error": null } });
        (fate == Fate::Accepted).then_some((201, action))
    }
}

async fn serve(mut stream: TcpStream, cloud: Arc<Mutex<FakeCloud>>) {
    let mut text = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        let Ok(read @ 1..) = stream.read(&mut buffer).await else { return };
        text.extend_from_slice(&buffer[..read]);
        let request = String::from_utf8(text.clone()).unwrap();
        let Some((head, body)) = request.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if body.len() < length.unwrap_or(0) {
            continue;
        }
        let response = cloud.lock().unwrap().respond(head, body);
        let Some((status, json)) = response else { return std::future::pending().await };
        let body = json.to_string();
        let head = format!(
            "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        text.clear();
    }
}

/// Moves the route from 10.0.0.2 to 10.0.0.3: the result, the writes, and the next hop in the end.
async fn moved(next: &[Fate]) -> (Result<(), Error>, Vec<String>, Option<Ipv4Addr>) {
    let [old, new] = [2, 3].map(|last| Ipv4Addr::new(10, 0, 0, last));
    let cloud = FakeCloud { gateway: Some(old), next: next.to_vec(), ..FakeCloud::default() };
    let cloud = Arc::new(Mutex::new(cloud));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let served = cloud.clone();
    let server = async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(serve(stream, served.clone()));
        }
    };
    let token = Token::new("secret").unwrap();
    let hcloud = Hcloud::new(&url, token, "test", &prometheus::Registry::new()).unwrap();
    let result = tokio::select! {
        result = move_to(&hcloud, 1, Some(old), new, 7) => result,
        () = server => unreachable!(),
    };
    let cloud = cloud.lock().unwrap();
    (result, cloud.writes.clone(), cloud.gateway)
}

#[tokio::test]
async fn defect_30_a_write_without_a_response_is_looked_up_and_repeated_after_five_seconds() {
    let new = Some(Ipv4Addr::new(10, 0, 0, 3));
    let began = std::time::Instant::now();
    let cases = [
        (&[][..], &["delete_route", "add_route"][..]),
        // The old route is gone, so it is not deleted again.
        (&[Fate::Unanswered], &["delete_route", "add_route"]),
        (&[Fate::Lost], &["delete_route", "delete_route", "add_route"]),
        (&[Fate::Accepted, Fate::Unanswered], &["delete_route", "add_route"]),
        (&[Fate::Accepted, Fate::Lost], &["delete_route", "add_route", "add_route"]),
    ];
    let runs = futures::future::join_all(cases.iter().map(|(next, _)| moved(next))).await;
    for ((_, writes), (result, made, gateway)) in cases.into_iter().zip(runs) {
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(made, writes);
        assert_eq!(gateway, new);
    }
    // The response timeout of the client itself is 15 s.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[tokio::test]
async fn defect_30_a_refusal_of_a_repeated_write_may_be_about_the_first_one() {
    // The first one is lost for us, and is still being executed when the second one arrives.
    let (result, writes, gateway) = moved(&[Fate::Lost, Fate::Conflict]).await;
    assert!(result.is_ok() && gateway == Some(Ipv4Addr::new(10, 0, 0, 3)), "{result:?} {writes:?}");
    let (result, writes, gateway) = moved(&[Fate::Forbidden]).await;
    assert!(matches!(result, Err(Error::ChangeRoute { .. })), "{result:?}");
    assert_eq!((writes.len(), gateway), (1, Some(Ipv4Addr::new(10, 0, 0, 2))), "a first refusal is final");
}
