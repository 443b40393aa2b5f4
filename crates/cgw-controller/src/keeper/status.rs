//! The status server: `GET /` as the seed has it, and `GET /status`.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use common::readiness::Check;
use common::server::{Builder, Limits};
use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::node::Observed;
use super::plan::seconds;
use super::vrrp::Vrrp;
use crate::api::http::{KeeperStatus, MasterStatus, VrrpState};

/// A few replicas of the controller poll, with a deadline of their own. A request has no body.
const LIMITS: Limits = Limits {
    connections: 64,
    head_time: Duration::from_secs(2),
    head_bytes: 8 * 1024,
    body_time: Duration::from_secs(2),
    body_bytes: 1024,
};

/// Until the next attempt to take the address.
const RETRY: Duration = Duration::from_secs(1);

/// The parts of a response.
#[derive(Clone, Debug)]
pub struct Source {
    /// Virtual router ID.
    pub vrid: u8,
    /// State of the VRRP instance.
    pub vrrp: watch::Receiver<Vrrp>,
    /// The node.
    pub observed: watch::Receiver<Observed>,
}

impl Source {
    fn status(&self) -> KeeperStatus {
        let vrrp = *self.vrrp.borrow();
        let Observed { vips, node_ip, tun_mac, .. } = self.observed.borrow().clone();
        let (state, since) = (vrrp.state, seconds(vrrp.since));
        KeeperStatus { state, since, vrid: self.vrid, vips: vips.into_iter().collect(), node_ip, tun_mac }
    }

    fn respond(&self, method: &Method, path: &str) -> Response<Full<Bytes>> {
        let status = self.status();
        let master = || match (status.state, status.tun_mac) {
            // Both or none: a gateway without a tunnel interface cannot be used.
            (VrrpState::Master, Some(_)) => {
                MasterStatus { node_ip: Some(status.node_ip), tun_mac: status.tun_mac }
            }
            _ => MasterStatus::default(),
        };
        let body = match path {
            "/" => serde_json::to_vec(&master()),
            "/status" => serde_json::to_vec(&status),
            _ => return plain(StatusCode::NOT_FOUND, "GET / and GET /status are served\n"),
        };
        if !matches!(*method, Method::GET | Method::HEAD) {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET is served\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match body {
            Ok(body) => {
                let mut response = Response::new(Full::from(body));
                let json = HeaderValue::from_static("application/json");
                response.headers_mut().insert(CONTENT_TYPE, json);
                response
            }
            Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &format!("{error}\n")),
        }
    }
}

fn plain(code: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text.to_owned()));
    *response.status_mut() = code;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, text);
    response
}

/// Serves on the node's main address, also after it has changed, for as long as it is polled.
pub async fn serve(source: Source, port: u16, readiness: Check) {
    let mut observed = source.observed.clone();
    loop {
        let ip = observed.borrow_and_update().node_ip;
        let address = SocketAddr::new(ip, port);
        let server = match Builder::new("status", LIMITS).bind(address).await {
            Ok(server) => server,
            Err(error) => {
                let problem = format!("the status server cannot listen on {address}: {error}");
                tracing::error!("{problem}");
                readiness.failing(problem);
                sleep(RETRY).await;
                continue;
            }
        };
        readiness.ready();
        let handler = {
            let source = source.clone();
            move |_caller, request: Request<Bytes>| {
                let response = source.respond(request.method(), request.uri().path());
                async move { response }
            }
        };
        let shutdown = CancellationToken::new();
        let moved = async {
            // An error: the keeper ends.
            let _ = observed.wait_for(|now| now.node_ip != ip).await;
            shutdown.cancel();
        };
        tokio::join!(server.serve(handler, shutdown.clone()), moved);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    async fn text(source: &Source, path: &str) -> String {
        let response = source.respond(&Method::GET, path);
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn only_a_master_with_a_tunnel_is_reported_on_the_root() {
        let mac = "02:63:c0:a8:32:15".parse().ok();
        let vip = "192.168.50.201".parse().unwrap();
        let node_ip = "192.168.50.21".parse().unwrap();
        let observed = Observed { vips: [vip].into(), configured: Vec::new(), node_ip, tun_mac: mac };
        let (vrrp, vrrp_receiver) = watch::channel(Vrrp { state: VrrpState::Backup, since: 1 });
        let (node, node_receiver) = watch::channel(observed.clone());
        let source = Source { vrid: 51, vrrp: vrrp_receiver, observed: node_receiver };
        assert_eq!(text(&source, "/").await, "{}");
        vrrp.send_replace(Vrrp { state: VrrpState::Master, since: 1_795_171_661_739 });
        assert_eq!(text(&source, "/").await, r#"{"node_ip":"192.168.50.21","tun_mac":"02:63:c0:a8:32:15"}"#);
        assert_eq!(
            text(&source, "/status").await,
            r#"{"state":"MASTER","since":1795171661.739,"vrid":51,"vips":["192.168.50.201"],"node_ip":"192.168.50.21","tun_mac":"02:63:c0:a8:32:15"}"#
        );
        node.send_replace(Observed { tun_mac: None, ..observed });
        assert_eq!(text(&source, "/").await, "{}");
        assert_eq!(source.respond(&Method::GET, "/x").status(), StatusCode::NOT_FOUND);
        assert_eq!(source.respond(&Method::POST, "/").status(), StatusCode::METHOD_NOT_ALLOWED);
    }
}
