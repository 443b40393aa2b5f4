//! Contenders of this process: `common::leader` with a client and a fault proxy of its own each.

use std::time::Duration;

use common::leader::{self, Ended, Leadership, Settings};
use e2e::control_plane::ControlPlane;
use e2e::fault_proxy::{FaultProxy, Matcher, Upstream};
use e2e::natgw::{TIMEOUT, wait_for};
use e2e::slots::{self, Slot};
use http::Method;
use kube::Client;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::leader_election::history::History;
use crate::leader_election::sampler::Sampler;

/// Name of all Leases here; each test has its own namespace.
pub const LEASE: &str = "contended";

/// Lease duration, renew deadline, retry period, in milliseconds.
#[derive(Clone, Copy)]
pub struct Times(pub u64, pub u64, pub u64);

/// A lease that a test waits for, with client-go's proportions. A program that gets no processor for some seconds, as on a busy machine,
/// keeps it.
pub const SHORT: Times = Times(24_000, 16_000, 400);
/// Longer than the lease of [`SHORT`], and the next tries of a standby that gets no processor for some seconds.
pub const AFTER_SHORT: Duration = Duration::from_secs(32);
/// Room for one fault after another on a busy machine, without the loss of the lease.
pub const ROOMY: Times = Times(45_000, 30_000, 400);
/// A lease that outlasts every wait: a standby that leads did not wait for its end.
pub const LONG: Times = Times(600_000, 400_000, 400);

/// One Lease, and all that is known of it.
pub struct Arena {
    pub control_plane: ControlPlane,
    pub namespace: String,
    pub history: History,
    pub sampler: Sampler,
    _slot: Slot,
}

impl Arena {
    pub async fn new() -> Arena {
        let slot = slots::ELECTIONS.wait().await.unwrap();
        let control_plane = ControlPlane::shared("common").await.unwrap();
        let namespace = control_plane.namespace("election").await.unwrap();
        let history = History::follow(control_plane.client(), &namespace, LEASE);
        Arena { control_plane, namespace, history, sampler: Sampler::start(), _slot: slot }
    }

    /// Starts a new fault proxy to the API server.
    pub async fn proxy(&self) -> FaultProxy {
        let (certificate, key) = self.control_plane.admin_identity_pem().unwrap();
        let upstream = Upstream::kubernetes(self.control_plane.url())
            .ca_pem(self.control_plane.ca_pem().unwrap())
            .client_certificate(certificate, key);
        FaultProxy::start(upstream).await.unwrap()
    }

    /// Starts a contender.
    pub async fn contender(&self, identity: &str, times: Times) -> Contender {
        let proxy = self.proxy().await;
        // kube's own client retries without a log line.
        let kubeconfig = self.control_plane.token_kubeconfig(&proxy.url(), "the-certificate-counts").unwrap();
        let client: Client = ControlPlane::client_of(&kubeconfig).await.unwrap();
        let release = CancellationToken::new();
        let (leadership, election) =
            leader::run(client, settings(&self.namespace, identity, times), release.clone(), |_| {}).unwrap();
        self.sampler.add(identity, leadership.clone());
        let task = tokio::spawn(election);
        Contender { identity: identity.to_owned(), proxy, leadership, release, task }
    }
}

/// A running contender.
pub struct Contender {
    pub identity: String,
    pub proxy: FaultProxy,
    pub leadership: Leadership,
    pub release: CancellationToken,
    pub task: JoinHandle<Ended>,
}

impl Contender {
    /// Waits until it leads.
    pub async fn leads(&self) {
        let led = tokio::time::timeout(TIMEOUT, self.leadership.acquired()).await;
        assert!(led.unwrap_or(false), "{} never leads", self.identity);
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> Ended {
        tokio::time::timeout(TIMEOUT, &mut self.task).await.expect("it ends").unwrap()
    }

    /// How many of its writes of the Lease succeeded.
    pub fn renewals(&self) -> usize {
        let all = self.proxy.requests();
        all.iter().filter(|call| call.method == Method::PUT && call.status == Some(200)).count()
    }

    /// Waits for that many successful writes more.
    pub async fn renews(&self, more: usize) {
        let before = self.renewals();
        wait_for(&format!("{more} renewals of {}", self.identity), || async {
            Ok(self.renewals() >= before + more)
        })
        .await
        .unwrap();
    }

    /// Waits until it has read the Lease that often more, and so could have taken it.
    pub async fn reads(&self, more: usize) {
        let count = || {
            let all = self.proxy.requests();
            all.iter().filter(|call| call.method == Method::GET && call.status == Some(200)).count()
        };
        let before = count();
        wait_for(&format!("{more} reads of {}", self.identity), || async { Ok(count() >= before + more) })
            .await
            .unwrap();
    }
}

/// Renewals.
pub fn renewals() -> Matcher {
    Matcher::any().method(Method::PUT)
}

fn settings(namespace: &str, identity: &str, Times(lease, renew, retry): Times) -> Settings {
    Settings {
        lease_duration: Duration::from_millis(lease),
        renew_deadline: Duration::from_millis(renew),
        retry_period: Duration::from_millis(retry),
        ..Settings::new(namespace, LEASE, identity)
    }
}
