//! client-go as the other contender: a real kube-controller-manager.

use common::leader::Ended;
use e2e::fault_proxy::{FaultProxy, Matcher};
use e2e::natgw::{TIMEOUT, wait_for};
use e2e::program::Program;

use crate::leader_election::contender::{Arena, LEASE, LONG, ROOMY, SHORT, Times};
use crate::leader_election::history::{acquired, holder, renewed};

/// A kube-controller-manager for the arena's Lease, which calls through a proxy of its own.
async fn manager(arena: &Arena, Times(lease, renew, retry): Times) -> (Program, FaultProxy) {
    let proxy = arena.proxy().await;
    let kubeconfig = arena.control_plane.token_kubeconfig(&proxy.url(), "the-certificate-counts").unwrap();
    let flags = [
        format!("--leader-elect-resource-name={LEASE}"),
        format!("--leader-elect-resource-namespace={}", arena.namespace),
        format!("--leader-elect-lease-duration={lease}ms"),
        format!("--leader-elect-renew-deadline={renew}ms"),
        format!("--leader-elect-retry-period={retry}ms"),
        // The last of two wins.
        format!("--kubeconfig={}", kubeconfig.display()),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    (arena.control_plane.spawn_kube_controller_manager(&flags).unwrap(), proxy)
}

/// Waits until client-go holds the Lease, and has renewed it.
async fn leads(arena: &Arena) -> String {
    let theirs = |spec: &&k8s_openapi::api::coordination::v1::LeaseSpec| {
        !holder(spec).is_empty() && holder(spec) != "ours"
    };
    wait_for("client-go as the leader", || async {
        let specs = arena.history.specs();
        Ok(specs.iter().rev().take(2).filter(theirs).count() == 2)
    })
    .await
    .unwrap();
    holder(&arena.history.last()).to_owned()
}

/// Waits until client-go has read the Lease that often more.
async fn reads_of_client_go(proxy: &FaultProxy, more: usize) {
    let count = |calls: &[e2e::fault_proxy::Recorded]| {
        calls.iter().filter(|call| call.path.ends_with(LEASE) && call.status == Some(200)).count()
    };
    let before = count(&proxy.requests());
    proxy.wait_for(|calls| count(calls) >= before + more, TIMEOUT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_client_go_leader_is_succeeded_after_its_lease_duration() {
    let arena = Arena::new().await;
    let (manager, _proxy) = manager(&arena, SHORT).await;
    let theirs = leads(&arena).await;
    let ours = arena.contender("ours", SHORT).await;
    ours.reads(3).await;
    assert!(!ours.leadership.is_leading(), "client-go leads");
    manager.kill().unwrap();
    ours.leads().await;
    ours.renews(2).await;
    arena.history.wait_for_holder("ours").await;
    let (old, new) = arena.history.takeovers().pop().unwrap();
    assert_eq!((holder(&old), holder(&new)), (theirs.as_str(), "ours"));
    assert_eq!(new.lease_transitions, Some(old.lease_transitions.unwrap() + 1));
    assert_eq!(new.lease_duration_seconds, Some(24));
    arena.history.assert_sound();
    println!(
        "client-go killed: ours took over {} after its last renewal",
        acquired(&new).duration_since(renewed(&old))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "full: the test of a killed client-go has the takeover"]
async fn a_paused_client_go_leader_is_succeeded_and_gives_up_when_it_wakes() {
    let arena = Arena::new().await;
    let (manager, _proxy) = manager(&arena, SHORT).await;
    leads(&arena).await;
    let ours = arena.contender("ours", SHORT).await;
    ours.reads(3).await;
    manager.pause().unwrap();
    ours.leads().await;
    manager.resume().unwrap();
    // client-go takes our record for what it is: it ends, and does not take the Lease back.
    assert!(!manager.wait_exit().await.unwrap().success());
    ours.renews(2).await;
    assert!(ours.leadership.is_leading());
    arena.history.wait_for_holder("ours").await;
    assert_eq!(arena.history.takeovers().len(), 1);
    arena.history.assert_sound();
    let (old, new) = arena.history.takeovers().pop().unwrap();
    println!(
        "client-go paused: ours took over {} after its last renewal, and kept the Lease when it woke",
        acquired(&new).duration_since(renewed(&old))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_go_waits_while_we_lead_and_takes_over_when_we_are_cut_off() {
    let arena = Arena::new().await;
    let mut ours = arena.contender("ours", ROOMY).await;
    ours.leads().await;
    let (manager, proxy) = manager(&arena, ROOMY).await;
    reads_of_client_go(&proxy, 8).await;
    assert!(ours.leadership.is_leading() && arena.history.takeovers().is_empty(), "client-go waits");
    ours.proxy.rule(Matcher::any(), e2e::fault_proxy::Fault::Blackhole);
    assert_eq!(ours.ended().await, Ended::Lost);
    let ended = jiff::Timestamp::now();
    let theirs = leads(&arena).await;
    let (old, new) = arena.history.takeovers().pop().unwrap();
    assert_eq!((holder(&old), holder(&new)), ("ours", theirs.as_str()));
    // Our own end comes first: its time is shorter, and began earlier.
    let interval = arena.sampler.intervals().pop().unwrap();
    let margin = acquired(&new).duration_since(ended);
    assert!(margin.is_positive() && !ours.leadership.is_leading(), "{margin}: {interval:?}");
    arena.history.assert_sound_with_client_go();
    assert_eq!(new.lease_transitions, Some(1));
    println!(
        "ours cut off: client-go took over {} after our last renewal, {margin} after we had ended",
        acquired(&new).duration_since(renewed(&old))
    );
    drop(manager);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_go_takes_a_released_lease_at_once() {
    let arena = Arena::new().await;
    let mut ours = arena.contender("ours", LONG).await;
    ours.leads().await;
    let (_manager, proxy) = manager(&arena, LONG).await;
    reads_of_client_go(&proxy, 3).await;
    ours.release.cancel();
    assert_eq!(ours.ended().await, Ended::Stopped);
    let theirs = leads(&arena).await;
    let specs = arena.history.specs();
    let (at, empty) = specs.iter().enumerate().find(|(_, spec)| holder(spec).is_empty()).unwrap();
    assert_eq!(empty.lease_duration_seconds, Some(1));
    let next = &specs[at + 1];
    assert_eq!((holder(next), next.lease_transitions), (theirs.as_str(), Some(1)), "client-go counts on");
    assert_eq!(next.lease_duration_seconds, Some(600));
    arena.history.assert_sound();
    println!("ours released: client-go led after {}", acquired(next).duration_since(renewed(empty)));
}
