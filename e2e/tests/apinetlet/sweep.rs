//! apinetlet is stopped at each of its writes, and each fault is injected at each of its requests to both clusters. The mapping must
//! come out as in the undisturbed run, and everything must be gone in the end.
//!
//! `make test` runs a slice of the stops and of the faults, `make test-full` all of them, `SWEEP=k/n` a part.

use anyhow::{Context as _, Result, ensure};
use apinetlet::api::{apinet, source};
use e2e::fault_proxy::{FaultProxy, Matcher, Recorded};
use e2e::sweep::{Case, Harm, Kind, OF_READS, OF_WRITES, Place, Slice, Victim, sweep_at_once};
use kube::ResourceExt as _;
use kube::api::ListParams;
use serde_json::json;

use super::environment::{TestEnv, create, delete, labels, patch, wait, wait_gone};

/// `make test` stops at one of this many writes, and injects one of this many faults.
const SLICES_OF_STOPS: u64 = 3;
const SLICES: u64 = 120;
/// Most of a run is waiting.
const AT_ONCE: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Side {
    Source,
    ApiNet,
}

/// Where a fault occurs.
#[derive(Clone, Copy, Debug)]
enum At {
    Calls(Side, Kind),
    /// The events of the watch of a resource.
    Events(Side, &'static str),
}

/// How many events of each watch get the faults.
const EVENTS: u64 = 3;
const OF_EVENTS: [Harm; 3] = [Harm::LateEvent, Harm::WatchEnded, Harm::WatchExpired];
/// Each has as many events in a run.
const WATCHES: [At; 8] = [
    At::Events(Side::Source, "networks"),
    At::Events(Side::Source, "networkinterfaces"),
    At::Events(Side::Source, "virtualips"),
    At::Events(Side::Source, "loadbalancers"),
    At::Events(Side::ApiNet, "networks"),
    At::Events(Side::ApiNet, "networkinterfaces"),
    At::Events(Side::ApiNet, "ips"),
    At::Events(Side::ApiNet, "loadbalancers"),
];

/// The requests of a run.
#[derive(Debug)]
struct Counts {
    /// Writes at which apinetlet is stopped: without Events.
    stops: u64,
    calls: Vec<((Side, Kind), u64)>,
}

impl At {
    fn place(self, env: &TestEnv) -> Place {
        match self {
            At::Calls(side, kind) => kind.at(proxy(env, side)),
            At::Events(side, resource) => {
                Place::new(proxy(env, side).clone(), Matcher::watches().resource(resource), 1)
            }
        }
    }
}

/// Each fault at each place.
fn faults(counts: &Counts) -> Vec<Case<At>> {
    let calls = counts.calls.iter().flat_map(|&((side, kind), count)| {
        let of: &[Harm] = if kind == Kind::Read { &OF_READS } else { &OF_WRITES };
        Case::faults(&[(At::Calls(side, kind), count)], of)
    });
    let events = WATCHES.iter().flat_map(|&watch| Case::faults(&[(watch, EVENTS)], &OF_EVENTS));
    calls.chain(events).collect()
}

/// The requests without those that are made or not, as it happens: a write that is refused because the object has changed or is gone,
/// and a read that shows that a counterpart is not gone yet.
fn in_every_run(proxy: &FaultProxy) -> Vec<Recorded> {
    let mut requests = proxy.requests();
    requests.retain(|one| match one.kube() {
        Some(request) if request.verb == "get" => !one.is_accepted(),
        _ => one.write.is_none() || one.is_accepted(),
    });
    requests
}

async fn run(case: Case<At>) -> Result<Counts> {
    let env = TestEnv::new().await;
    let victim = Victim::default();
    let armed = case.arm(&env.counter, &victim, |at| at.place(&env))?;
    let launch = env.launch(&["--source-cluster-id=sweep"]);
    victim.start(&launch)?;
    let supervised = victim.clone();
    let supervisor = tokio::spawn(async move {
        while let Some(program) = supervised.program() {
            // An error: it still runs.
            if program.wait_exit().await.is_ok() {
                supervised.start(&launch).unwrap();
            }
        }
    });
    history(&env).await?;
    let (source, apinet) = (in_every_run(&env.source_proxy), in_every_run(&env.apinet_proxy));
    let writes = source.iter().chain(&apinet).filter(|one| one.write.is_some());
    let stops = writes.count() as u64;
    let calls = [Kind::count(Side::Source, &source), Kind::count(Side::ApiNet, &apinet)].concat();
    let counts = Counts { stops, calls };
    supervisor.abort();
    armed.happened().with_context(|| format!("{counts:?}"))?;
    Ok(counts)
}

/// The changes of a user and of the MachinePool, each of which waits for the one before.
async fn history(env: &TestEnv) -> Result<()> {
    let (networks, virtual_ips) = (env.source::<source::Network>(), env.source::<source::VirtualIp>());
    let (sources, apinets) =
        (env.source::<source::NetworkInterface>(), env.apinet::<apinet::NetworkInterface>());
    let balancers = env.source::<source::LoadBalancer>();
    env.network("net").await;
    let network = wait(&networks, "net", "Available", |one| one.status.state == "Available").await;
    create(&virtual_ips, "vip", json!({ "type": "Public", "ipFamily": "IPv4" })).await;
    let address = wait(&virtual_ips, "vip", "an address", |one| one.status.ip.is_some()).await.status.ip;
    let spec =
        json!({ "networkRef": { "name": "net" }, "ipFamilies": ["IPv4"], "ips": [{ "value": "10.0.3.1" }] });
    let uid = create(&sources, "nic", spec).await.uid();
    let interface = env.attach("nic", "node-1").await;
    let name = interface.name_any();
    let holder = |one: &apinet::NetworkInterface| {
        labels(one).get("apinetlet.ironcore.dev/networkinterface-uid").cloned()
    };
    wait(&apinets, &name, "a claim", |one| holder(one) == uid).await;
    env.set_state(&interface, "Ready").await;
    wait(&sources, "nic", "Available", |one| one.status.state == "Available").await;
    patch(&sources, "nic", json!({ "spec": { "virtualIP": { "virtualIPRef": { "name": "vip" } } } })).await;
    let public = wait(&apinets, &name, "a public address", |one| one.spec.public_ips.len() == 1).await;
    ensure!(public.spec.public_ips.first().and_then(|one| one.ip.clone()) == address, "{public:?}");
    env.set_state(&interface, "Ready").await;
    wait(&sources, "nic", "its public address", |one| one.status.virtual_ip == address).await;
    let spec = json!({
        "type": "Internal", "ipFamilies": ["IPv4"], "networkRef": { "name": "net" }, "ips": [{ "value": "10.1.3.1" }],
    });
    create(&balancers, "web", spec).await;
    wait(&balancers, "web", "its address", |one| one.status.ips.len() == 1).await;
    let id = networks.get("net").await?.spec.provider_id;
    ensure!(id == network.spec.provider_id, "the provider ID became {id}");
    ensure!(virtual_ips.get("vip").await?.status.ip == address, "the address has changed");

    delete(&sources, "nic").await;
    wait_gone(&sources, "nic").await;
    let released = apinets.get(&name).await?;
    ensure!(holder(&released).is_none() && released.spec.public_ips.is_empty(), "{released:?}");
    ensure!(virtual_ips.get("vip").await?.spec.target_ref.is_none(), "the VirtualIP is not released");
    delete(&balancers, "web").await;
    wait_gone(&balancers, "web").await;
    delete(&virtual_ips, "vip").await;
    wait_gone(&virtual_ips, "vip").await;
    delete(&networks, "net").await;
    wait_gone(&networks, "net").await;
    let all = ListParams::default();
    ensure!(env.apinet::<apinet::Network>().list(&all).await?.items.is_empty(), "a Network is left");
    ensure!(env.apinet::<apinet::Ip>().list(&all).await?.items.is_empty(), "an IP is left");
    ensure!(
        env.apinet::<apinet::LoadBalancer>().list(&all).await?.items.is_empty(),
        "a LoadBalancer is left"
    );
    Ok(())
}

fn proxy(env: &TestEnv, side: Side) -> &FaultProxy {
    match side {
        Side::Source => &env.source_proxy,
        Side::ApiNet => &env.apinet_proxy,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_stop_and_each_fault_leads_to_the_undisturbed_end() {
    let counts = run(Case::Undisturbed).await.unwrap();
    assert!(counts.stops >= 20, "{counts:?}");
    let slice = Slice::chosen("apinetlet", SLICES).unwrap();
    let of_stops = Slice::chosen("stops of apinetlet", SLICES_OF_STOPS).unwrap();
    let mut cases = of_stops.pick(Case::stops(counts.stops, of_stops.stops()));
    cases.extend(slice.pick(faults(&counts)));
    println!("{counts:?}: {} cases, {slice}", cases.len());
    // Each run has an environment of its own.
    let recover = || {};
    sweep_at_once(AT_ONCE, &cases, async |case| run(case).await.map(drop), recover).await.unwrap();
}
