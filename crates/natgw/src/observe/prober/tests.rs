//! The prober in virtual time, on a network that loses packets, is slow, or is cut.

mod failover;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use tokio::time::Instant;

use super::*;

/// A network with one leader. Its gateways are at 10.0.0.<n + 1>, for `node-<n>`.
struct FakeNetwork {
    began: Instant,
    state: Mutex<FakeState>,
}

struct FakeState {
    pub random: fastrand::Rng,
    /// Part of the packets that is lost.
    pub loss: f64,
    /// Of a packet, in one direction.
    pub delay: Duration,
    /// Machines without power.
    pub stopped: BTreeSet<String>,
    /// Machines whose port drops packets. Their kubelets work.
    pub filtered: BTreeSet<String>,
    /// The leader reaches no gateway.
    pub is_cut: bool,
    /// The leader does not reach the API server.
    pub api_is_cut: bool,
}

impl FakeNetwork {
    pub fn new(seed: u64) -> FakeNetwork {
        let state = FakeState {
            random: fastrand::Rng::with_seed(seed),
            loss: 0.0,
            delay: Duration::from_micros(300),
            stopped: BTreeSet::new(),
            filtered: BTreeSet::new(),
            is_cut: false,
            api_is_cut: false,
        };
        FakeNetwork { began: Instant::now(), state: Mutex::new(state) }
    }

    pub fn state(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().unwrap()
    }

    /// Whether a packet and its response arrive, and when.
    fn exchange(&self, name: &str) -> Option<Duration> {
        let state = &mut *self.state();
        let blocked = match name {
            "api" => state.api_is_cut,
            _ => state.is_cut || state.stopped.contains(name) || state.filtered.contains(name),
        };
        let mut arrives = || state.random.f64() >= state.loss;
        (arrives() && arrives() && !blocked).then_some(state.delay * 2)
    }
}

fn name(address: SocketAddr) -> String {
    let SocketAddr::V4(address) = address else { panic!("{address}") };
    format!("node-{}", address.ip().octets()[3] - 1)
}

fn target(n: u8) -> (String, Ipv4Addr) {
    (format!("node-{n}"), Ipv4Addr::new(10, 0, 0, n + 1))
}

impl Probe for FakeNetwork {
    /// SYN is sent again after 1 and 3 s.
    async fn responds(&self, address: SocketAddr) -> bool {
        for pause in [0, 1, 2] {
            tokio::time::sleep(Duration::from_secs(pause)).await;
            if let Some(time) = self.exchange(&name(address)) {
                tokio::time::sleep(time).await;
                return true;
            }
        }
        std::future::pending().await
    }

    /// A kubelet renews its Lease every 10 s.
    async fn renewal(&self, node: &str) -> Option<Option<Timestamp>> {
        for retransmission in [false, true] {
            tokio::time::sleep(Duration::from_millis(400) * u32::from(retransmission)).await;
            if let Some(time) = self.exchange("api") {
                tokio::time::sleep(time).await;
                return Some(self.renewed(node));
            }
        }
        std::future::pending().await
    }
}

impl FakeNetwork {
    fn renewed(&self, node: &str) -> Option<Timestamp> {
        let age = if self.state().stopped.contains(node) { Duration::ZERO } else { self.began.elapsed() };
        Timestamp::from_second(i64::try_from(age.as_secs() / 10).unwrap()).ok()
    }
}

fn prober() -> (Prober, Arc<Notify>) {
    let changed = Arc::new(Notify::new());
    let metrics = Metrics::new(common::metrics::Metrics::new("natgw").unwrap()).unwrap();
    let prober = Prober::new(&HealthCheck::default(), changed.clone(), metrics);
    prober.watch([target(1), target(2)].into_iter());
    (prober, changed)
}

async fn rounds(prober: &Prober, network: &FakeNetwork, time: Duration) {
    let _ = timeout(time, prober.run(network)).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_stops_is_unavailable_within_four_seconds() {
    for phase in 0..10 {
        let (network, (prober, changed)) = (FakeNetwork::new(phase), prober());
        let stops = async {
            tokio::time::sleep(Duration::from_millis(10_000 + phase * 100)).await;
            network.state().stopped.insert("node-1".into());
            let stopped = Instant::now();
            let limits = Limits::new(&HealthCheck::default());
            while !prober.health().nodes["node-1"].is_failing(limits) {
                changed.notified().await;
            }
            stopped.elapsed()
        };
        let took = tokio::select! { took = stops => took, never = prober.run(&network) => match never {} };
        assert!(took > Duration::from_secs(2) && took < Duration::from_millis(4_100), "{took:?}");
        let limits = Limits::new(&HealthCheck::default());
        let health = prober.health();
        assert!(health.nodes["node-2"].is_responding(limits) && health.reference.is_responding(limits));
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_responds_costs_one_connection_a_round_and_the_api_server_nothing() {
    struct Counts(std::sync::atomic::AtomicU32);
    impl Probe for Counts {
        async fn responds(&self, _: SocketAddr) -> bool {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            true
        }
        async fn renewal(&self, node: &str) -> Option<Option<Timestamp>> {
            panic!("the Lease of {node} was read")
        }
    }
    let (counts, (prober, _)) = (Counts(0.into()), prober());
    let _ = timeout(Duration::from_millis(59_500), prober.run(&counts)).await;
    assert_eq!(counts.0.into_inner(), 2 * 60);
}

#[tokio::test(start_paused = true)]
async fn the_results_of_a_target_are_dropped_with_the_target_or_its_address() {
    let (network, (prober, _)) = (FakeNetwork::new(1), prober());
    rounds(&prober, &network, Duration::from_secs(5)).await;
    prober.watch([target(1), ("node-2".into(), Ipv4Addr::new(10, 0, 0, 9))].into_iter());
    assert_eq!(prober.health().nodes.into_keys().collect::<Vec<_>>(), ["node-1"]);
    prober.clear();
    assert_eq!(prober.health(), Health::default());
    rounds(&prober, &network, Duration::from_secs(5)).await;
    assert_eq!(prober.health(), Health::default(), "without targets nothing is probed");
}

#[tokio::test(start_paused = true)]
async fn a_refused_connection_is_a_response() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
        let response = http::Response::new(kube::client::Body::empty());
        if request.uri().path().is_empty() { Err(std::io::Error::other("no path")) } else { Ok(response) }
    });
    let network = Network { client: kube::Client::new(service, "default") };
    assert!(network.responds(address).await);
    drop(listener);
    assert!(network.responds(address).await, "nothing listens there, and the host says so");
}

#[tokio::test(start_paused = true)]
async fn a_slow_network_that_loses_a_fifth_of_its_packets_makes_no_gateway_unavailable() {
    for seed in 0..20 {
        let (network, (prober, changed)) = (FakeNetwork::new(seed), prober());
        (network.state().loss, network.state().delay) = (0.2, Duration::from_millis(300));
        let limits = Limits::new(&HealthCheck::default());
        let never = async {
            loop {
                changed.notified().await;
                let health = prober.health();
                assert!(!health.nodes.values().any(Probes::is_lost), "seed {seed}: {health:?}, {limits:?}");
            }
        };
        let _ = timeout(Duration::from_secs(600), async {
            tokio::select! { () = never => {}, never = prober.run(&network) => match never {} }
        })
        .await;
    }
}
