//! The masters of the VIPs: the status servers of the keepers, and the last masters that are known.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use common::cluster::error_chain;
use futures::future::join_all;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::plan::{Master, master};
use crate::api::Vip;
use crate::api::http::KeeperStatus;
use crate::api::stores::Host;

/// The most bytes of a status: with 4,096 VIPs of IPv6 it has less.
const STATUS_BYTES: usize = 256 * 1024;

/// The response of a status server, or why there is none.
pub type Status = Result<KeeperStatus, NoStatus>;

/// The statuses of one poll.
pub type Statuses = HashMap<SocketAddr, Status>;

/// Why a status server has no status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoStatus {
    /// There is no connection, or no response in time. False: a program responded, though not with the status of this keeper.
    pub is_silent: bool,
    /// The cause.
    pub why: String,
}

impl NoStatus {
    fn silent(why: String) -> NoStatus {
        NoStatus { is_silent: true, why }
    }

    fn wrong(why: String) -> NoStatus {
        NoStatus { is_silent: false, why }
    }
}

/// Whether two keepers of a VIP are MASTER (split brain).
#[must_use]
pub fn is_split(vips: impl IntoIterator<Item = Vip>, hosts: &[Host], statuses: &Statuses) -> bool {
    vips.into_iter().any(|vip| {
        let keepers = hosts.iter().filter(|host| host.serves(vip));
        let reported = keepers.filter_map(|host| statuses.get(&host.status())?.as_ref().ok());
        reported.filter_map(Master::of).count() > 1
    })
}

/// Polls status servers. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Poller {
    client: Client<HttpConnector, Empty<Bytes>>,
    /// For all status servers together.
    timeout: Duration,
}

impl Poller {
    /// Polls for at most `timeout`.
    #[must_use]
    pub fn new(timeout: Duration) -> Poller {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(timeout));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            // A connection that is kept to a gateway that is gone would be the first one that is tried at a flip.
            .pool_max_idle_per_host(0)
            .build(connector);
        Poller { client, timeout }
    }

    /// The statuses of all of them, polled at once. A server that does not respond in time has none.
    pub async fn poll(&self, endpoints: &[SocketAddr]) -> Statuses {
        let poll = async |endpoint: SocketAddr| {
            let polled = tokio::time::timeout(self.timeout, self.get(endpoint)).await;
            let silent = |_| Err(NoStatus::silent(format!("no response within {:?}", self.timeout)));
            let status = polled.unwrap_or_else(silent);
            if let Err(NoStatus { why, .. }) = &status {
                tracing::debug!(%endpoint, why, "status server does not report its state");
            }
            (endpoint, status)
        };
        join_all(endpoints.iter().map(|endpoint| poll(*endpoint))).await.into_iter().collect()
    }

    async fn get(&self, endpoint: SocketAddr) -> Result<KeeperStatus, NoStatus> {
        let wrong = |error: &dyn std::fmt::Display| NoStatus::wrong(error.to_string());
        let uri: Uri = format!("http://{endpoint}/status").parse().map_err(|error| wrong(&error))?;
        let request = Request::get(uri).body(Empty::new()).map_err(|error| wrong(&error))?;
        let response = self
            .client
            .request(request)
            .await
            .map_err(|error| NoStatus { is_silent: error.is_connect(), why: error_chain(&error) })?;
        if response.status() != StatusCode::OK {
            return Err(NoStatus::wrong(format!("status {}", response.status())));
        }
        let body = Limited::new(response.into_body(), STATUS_BYTES).collect().await;
        let body = body.map_err(|error| wrong(&error))?.to_bytes();
        let status: KeeperStatus = serde_json::from_slice(&body).map_err(|error| wrong(&error))?;
        if status.node_ip != endpoint.ip() {
            return Err(NoStatus::wrong(format!("it reports the node {}", status.node_ip)));
        }
        Ok(status)
    }
}

/// The last known master of each VIP, so that a Service that another replica has just bound gets it at once. The API server has
/// what must survive a restart: the annotations of the Services.
#[derive(Debug, Default)]
pub struct Known(Mutex<HashMap<Vip, State>>);

#[derive(Clone, Copy, Debug)]
enum State {
    Master(Master),
    /// So many polls in a row have found none.
    Missing(u32),
}

impl State {
    fn master(&self) -> Option<Master> {
        match self {
            State::Master(master) => Some(*master),
            State::Missing(_) => None,
        }
    }
}

impl Known {
    /// The last known master.
    #[must_use]
    pub fn get(&self, vip: Vip) -> Option<Master> {
        self.lock().get(&vip).and_then(State::master)
    }

    /// Whether two polls in a row have found no master. One can fall into the moment in which the VIP moves.
    #[must_use]
    pub fn has_none(&self, vip: Vip) -> bool {
        matches!(self.lock().get(&vip), Some(State::Missing(polls)) if *polls > 1)
    }

    /// Records a master.
    pub fn set(&self, vip: Vip, master: Master) {
        self.lock().insert(vip, State::Master(master));
    }

    /// Removes what is known of a VIP that is not bound any more.
    pub fn forget(&self, vip: Vip) {
        self.lock().remove(&vip);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vip, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the master that a poll shows, and returns it. `before` was in force when the poll began, and the Services have `recorded`
    /// now. If a notification has changed the master since, the statuses may be older than it, and the notified one stays.
    pub fn polled(
        &self,
        vip: Vip,
        before: Option<Master>,
        recorded: Option<Master>,
        statuses: &[KeeperStatus],
    ) -> Option<Master> {
        let mut known = self.lock();
        let current = master::newest(recorded, known.get(&vip).and_then(State::master));
        let master = if current == before { master::elect(statuses, current) } else { current };
        let state = match (master, known.get(&vip)) {
            (Some(master), _) => State::Master(master),
            (None, Some(State::Missing(polls))) => State::Missing(polls.saturating_add(1)),
            (None, _) => State::Missing(1),
        };
        known.insert(vip, state);
        master
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// A status server with one response; None: it never responds.
    async fn server(body: Option<&'static str>) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let mut open = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                if let Some(body) = body {
                    let mut head = [0; 1024];
                    let _read = stream.read(&mut head).await.unwrap();
                    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
                    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
                }
                open.push(stream);
            }
        });
        address
    }

    fn status(node: &str, state: &str, since: f64) -> KeeperStatus {
        let tun_mac = "02:63:c0:a8:32:15";
        serde_json::from_value(serde_json::json!({
            "state": state, "since": since, "vrid": 51, "vips": [], "node_ip": node, "tun_mac": tun_mac
        }))
        .unwrap()
    }

    #[test]
    fn two_masters_of_a_bound_vip_are_a_split_brain() {
        let host = |node: &str, vips: &str| -> Host {
            let (ip, vips) = (node.parse().unwrap(), vec![vips.parse().unwrap()]);
            Host { v: 1, ip, port: 63051, node: node.to_owned(), vrid: 51, vips, boot: String::new() }
        };
        let vips: [Vip; 2] = ["10.9.0.1".parse().unwrap(), "10.9.0.9".parse().unwrap()];
        let hosts =
            [host("10.0.0.1", "10.9.0.1"), host("10.0.0.2", "10.9.0.1"), host("10.0.0.3", "10.9.0.9")];
        let is = |states: [&str; 3]| {
            let reported = hosts.iter().zip(states).map(|(host, state)| {
                let silent = || NoStatus::silent(String::new());
                let reported = (!state.is_empty()).then(|| status(&host.node, state, 1.0));
                (host.status(), reported.ok_or_else(silent))
            });
            is_split(vips, &hosts, &reported.collect::<Statuses>())
        };
        assert!(is(["MASTER", "MASTER", "BACKUP"]));
        assert!(!is(["MASTER", "BACKUP", "MASTER"]), "each VIP has one");
        assert!(!is(["MASTER", "", "MASTER"]), "one is powered off");
    }

    #[test]
    fn a_notification_during_a_poll_prevails_over_its_statuses() {
        let vip: Vip = "192.168.50.200".parse().unwrap();
        let before_the_flip = [status("10.0.0.1", "MASTER", 100.0), status("10.0.0.2", "BACKUP", 100.0)];
        let first = Master::of(&before_the_flip[0]);
        let second = Master::of(&status("10.0.0.2", "MASTER", 200.0));

        let known = Known::default();
        assert_eq!(known.polled(vip, None, None, &before_the_flip), first);
        known.set(vip, second.unwrap());
        assert_eq!(known.polled(vip, first, first, &before_the_flip), second);
        // Another replica was notified, and its annotations show it.
        let known = Known::default();
        known.set(vip, first.unwrap());
        assert_eq!(known.polled(vip, first, second, &before_the_flip), second);
        assert_eq!(known.get(vip), second);
        // Nothing happened during the poll: the second gateway is not MASTER, and the clock of the first one is late.
        let elected = known.polled(vip, second, second, &before_the_flip).unwrap();
        assert_eq!((elected.gateway, elected.epoch.0), (first.unwrap().gateway, 200_001));
        // No keeper is MASTER.
        assert!(!known.has_none(vip));
        let without_master = [status("10.0.0.1", "FAULT", 300.0)];
        assert_eq!((known.polled(vip, Some(elected), second, &without_master), known.get(vip)), (None, None));
        assert!(!known.has_none(vip), "it may be moving");
        assert_eq!(known.polled(vip, second, second, &without_master), None);
        assert!(known.has_none(vip));
        known.forget(vip);
        assert!(!known.has_none(vip));
    }

    #[tokio::test]
    async fn all_are_polled_at_once_and_a_silent_one_has_no_status() {
        let good = server(Some(
            r#"{"state":"MASTER","since":1.5,"vrid":51,"vips":[],"node_ip":"127.0.0.1","tun_mac":"02:63:c0:a8:32:15"}"#,
        ))
        .await;
        let foreign = server(Some(
            r#"{"state":"MASTER","since":1.5,"vrid":51,"vips":[],"node_ip":"10.0.0.1","tun_mac":null}"#,
        ))
        .await;
        let other = server(Some("{}")).await;
        let (silent, silent2) = (server(None).await, server(None).await);
        let all = [silent, good, silent2, foreign, other];
        let more = join_all((0..6).map(|_| server(None))).await;
        let started = std::time::Instant::now();
        let timeout = Duration::from_secs(3);
        let statuses = Poller::new(timeout).poll(&[&all[..], &more].concat()).await;
        // One after another, the silent ones take eight times the timeout.
        assert!(started.elapsed() < timeout * 6, "{:?}", started.elapsed());
        let is_good = all.map(|endpoint| statuses[&endpoint].is_ok());
        assert_eq!(is_good, [false, true, false, false, false], "{statuses:?}");
        let is_silent = |status: &Status| status.as_ref().is_err_and(|error| error.is_silent);
        let silent = all.map(|endpoint| is_silent(&statuses[&endpoint]));
        assert_eq!(silent, [true, false, true, false, false], "{statuses:?}");
        let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap().local_addr().unwrap();
        let statuses = Poller::new(Duration::from_secs(5)).poll(&[closed]).await;
        assert!(is_silent(&statuses[&closed]), "{statuses:?}");
    }
}
