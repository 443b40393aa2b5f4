//! The outage of each way of a packet when a gateway, a role or the API server fails, and the packets that leave with a wrong source: none.

use std::net::Ipv4Addr;
use std::time::Instant;

use e2e::cluster::{Network, PodNetwork, Prober, ProxyMode, SEGMENT_GATEWAY, Target};
use e2e::wait::until;

use super::env::{A, B, FIRST, PORT, SERVICES, TestEnv, tcp};
use super::faults::Fault;
use super::metrics;

/// Requests in a row with the right result before and after each fault: about two seconds.
pub const STREAK: usize = 100;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: real nodes"]
async fn a_failed_gateway_is_replaced_and_no_packet_has_a_wrong_source() {
    let mut env = TestEnv::start(&[FIRST], ProxyMode::Nftables, PodNetwork::Bridge).await;
    env.install(&[FIRST]).await;
    let [a, b, _] = SERVICES;
    env.bind(&[a, b]).await;
    let probes = Probes::start(&env);
    for fault in Fault::ALL {
        let row = measure(&mut env, &probes, fault).await;
        println!("{row}");
        if fault == Fault::Kill {
            // Now each counter has counted.
            metrics::all_there(&env).await;
        }
    }
}

/// Runs a fault. Returns its row of the table.
async fn measure(env: &mut TestEnv, probes: &Probes, fault: Fault) -> String {
    let master = settled(env, probes).await;
    env.capture.reset().unwrap();
    let since = Instant::now();
    fault.run(env, probes, &master).await;
    settled(env, probes).await;

    let (name, id) = fault.names();
    let outages = probes.measured().map(|probe| {
        let (gap, lost) = probe.prober.longest_gap(since);
        format!("{:.2} s ({lost} lost)", gap.as_secs_f64())
    });
    let packets: u64 = env.capture.packets().unwrap().iter().map(|packets| packets.count).sum();
    let wrong = env.wrong_sources(&[A, B]);
    let reported: usize = probes.all().map(|probe| probe.wrong(since)).sum();
    let count = wrong.iter().map(|packets| packets.count).sum::<u64>() + u64::try_from(reported).unwrap();
    let [egress, ingress, hairpin] = outages;
    let by = format!("e2e, driver vxlan: `{id}`");
    let row = format!("| {name} | {egress} | {ingress} | {hairpin} | {count} of {packets} packets | {by} |");
    if count != 0 {
        let seen: Vec<_> = probes.all().map(|probe| (probe.what, probe.wrong(since))).collect();
        env.fail(&format!("{row}\nwrong sources: {wrong:#?}\nresponses: {seen:?}")).await;
    }
    assert!(packets > 1000, "{row}: hardly any packet was counted");
    row
}

/// Waits until nothing moves any more, and each way works. Returns the MASTER.
async fn settled(env: &TestEnv, probes: &Probes) -> String {
    env.installation.rolled_out(&env.cluster).await.unwrap();
    let master = env.settled(&FIRST).await;
    probes.work(env, STREAK).await;
    master
}

/// Clients that send a request each 20 ms.
pub struct Probes {
    measured: [Probe; 3],
    /// Of pods on other nodes, for the counts of packets only: on the gateways, they fail with them.
    others: Vec<Probe>,
}

/// A client, and the source address that its server has to see.
pub struct Probe {
    what: &'static str,
    prober: Prober,
    expected: Ipv4Addr,
}

impl Probe {
    fn start(what: &'static str, network: &Network, target: Target, expected: Ipv4Addr) -> Probe {
        Probe { what, prober: Prober::start_to(network, target).unwrap(), expected }
    }

    /// The number of responses since then that report another source.
    fn wrong(&self, since: Instant) -> usize {
        let responses = self.prober.since(since).into_iter().filter_map(|probe| probe.seen);
        responses.filter(|seen| *seen != self.expected).count()
    }
}

impl Probes {
    fn start(env: &TestEnv) -> Probes {
        let of = |pod: &str| &env.pods[pod].network;
        // The only pod of b is on a worker, so a gateway that fails takes no backend with it.
        let measured = [
            Probe::start("egress", of("a1"), Target::ECHO, A),
            Probe::start("ingress", &env.outside, tcp(B, PORT), SEGMENT_GATEWAY),
            Probe::start("hairpin", of("a1"), tcp(B, PORT), A),
        ];
        let others = [("a2", A), ("a3", A), ("a4", A), ("b1", B)]
            .map(|(pod, vip)| Probe::start("egress of other pods", of(pod), Target::ECHO, vip));
        Probes { measured, others: others.into() }
    }

    fn measured(&self) -> [&Probe; 3] {
        self.measured.each_ref()
    }

    fn all(&self) -> impl Iterator<Item = &Probe> {
        self.measured.iter().chain(&self.others)
    }

    /// Waits until each way has worked for so many requests in a row from now on.
    pub async fn work(&self, env: &TestEnv, streak: usize) {
        let since = Instant::now();
        let streaks =
            || self.measured().map(|probe| (probe.what, probe.prober.streak(probe.expected, since)));
        let poll = async || Ok(streaks().iter().all(|(_, length)| *length >= streak).then_some(()));
        if let Err(error) = until("each way works", poll).await {
            env.fail(&format!("{error:#}: requests in a row with the right result: {:?}", streaks())).await;
        }
    }

    /// Waits until each client has sent so many requests, whatever becomes of them.
    pub async fn requests(&self, count: usize) {
        let since = Instant::now();
        let sent = |probe: &&Probe| probe.prober.since(since).len() >= count;
        let poll = async || Ok(self.measured().iter().all(sent).then_some(()));
        until("requests of all clients", poll).await.unwrap();
    }
}
