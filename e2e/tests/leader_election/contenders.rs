//! Two contenders of this process, and one fault at a time. Faults that cost the lease are in `acts`.

use std::time::{Duration, Instant};

use common::leader::Ended;
use e2e::fault_proxy::{Fault, Matcher, Reply};
use e2e::natgw::TIMEOUT;

use crate::leader_election::contender::{AFTER_SHORT, Arena, Contender, LONG, ROOMY, SHORT, renewals};
use crate::leader_election::history::{acquired, holder, renewed};

/// Releases the lease.
async fn end(contender: &mut Contender) {
    contender.release.cancel();
    assert_eq!(contender.ended().await, Ended::Stopped);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_arrives_after_the_takeover_is_refused() {
    let arena = Arena::new().await;
    let mut first = arena.contender("first", SHORT).await;
    first.leads().await;
    let mut second = arena.contender("second", SHORT).await;
    second.reads(2).await;
    // The renewal is held until the second leads.
    let late = first.proxy.rule(renewals(), Fault::DelayRequest(AFTER_SHORT));
    let reads = first.proxy.rule(Matcher::any().verb("get"), Fault::Refuse);
    assert_eq!(first.ended().await, Ended::Lost);
    second.leads().await;
    let delivered = |call: &e2e::fault_proxy::Recorded| call.upstream_status == Some(409);
    first.proxy.wait_for(|calls| calls.iter().any(delivered), TIMEOUT).await.unwrap();
    second.renews(3).await;
    assert!(second.leadership.is_leading());
    let seen = arena.sampler.assert_never_two();
    arena.history.assert_sound();
    println!(
        "late renewal: {} held back, refused after the takeover; {} reads refused; {seen}",
        first.proxy.applied(late),
        first.proxy.applied(reads)
    );
    end(&mut second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_lease_is_taken_at_the_next_read_of_the_standby() {
    let arena = Arena::new().await;
    let mut first = arena.contender("first", LONG).await;
    first.leads().await;
    let mut second = arena.contender("second", LONG).await;
    second.reads(2).await;
    assert!(!second.leadership.is_leading());
    let began = Instant::now();
    end(&mut first).await;
    let released = arena.history.last();
    second.leads().await;
    let took = began.elapsed();
    second.renews(1).await;
    arena.history.wait_for_holder("second").await;
    let specs = arena.history.specs();
    let empty = specs.iter().find(|spec| holder(spec).is_empty()).expect("a version without a holder");
    assert_eq!(empty.lease_duration_seconds, Some(1));
    let last = arena.history.last();
    assert_eq!(
        (holder(&last), last.lease_transitions, last.lease_duration_seconds),
        ("second", Some(1), Some(600))
    );
    assert!(acquired(&last) >= renewed(empty), "{released:?}");
    println!("release: handed over after {took:.2?}; {}", arena.sampler.assert_never_two());
    arena.history.assert_sound();
    end(&mut second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_keeps_the_lease_after_a_single_fault() {
    let arena = Arena::new().await;
    let mut first = arena.contender("first", ROOMY).await;
    first.leads().await;
    let mut second = arena.contender("second", ROOMY).await;
    second.reads(1).await;
    let faults = [
        ("409", Fault::Reject(Reply::conflict())),
        ("409 for one that was accepted", Fault::Replace(Reply::conflict())),
        ("429", Fault::Reject(Reply::too_many_requests(1))),
        ("500", Fault::Reject(Reply::internal())),
        ("503", Fault::Reject(Reply::unavailable())),
        ("500 for one that was accepted", Fault::Replace(Reply::internal())),
        ("503 for one that was accepted", Fault::Replace(Reply::unavailable())),
        ("refused connection", Fault::Refuse),
        ("lost response", Fault::Swallow),
        ("cut response", Fault::CutResponse { after_bytes: 20 }),
        ("late response", Fault::DelayResponse(Duration::from_millis(1_500))),
        ("late request", Fault::DelayRequest(Duration::from_millis(1_500))),
    ];
    let count = faults.len();
    for (name, fault) in faults {
        let rule = first.proxy.rule(renewals().times(1), fault);
        first.proxy.wait_applied(rule, 1, TIMEOUT).await.expect(name);
        first.renews(2).await;
        assert!(first.leadership.is_leading(), "{name}");
    }
    let intervals = arena.sampler.intervals();
    assert_eq!(intervals.len(), 1, "led without a gap: {intervals:?}");
    assert!(!second.leadership.is_leading());
    assert_eq!(arena.history.last().lease_transitions, Some(0));
    println!("single faults: {count}, none cost the lease; {}", arena.sampler.assert_never_two());
    arena.history.assert_sound();
    end(&mut first).await;
    end(&mut second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_response_is_lost_is_detected_by_the_next_read() {
    let arena = Arena::new().await;
    let mut first = arena.contender("first", SHORT).await;
    first.proxy.rule(Matcher::writes().times(1), Fault::Swallow);
    first.leads().await;
    let mut second = arena.contender("second", SHORT).await;
    second.reads(1).await;
    let lost = second.proxy.rule(renewals().times(1), Fault::Swallow);
    first.proxy.refuse_all(true);
    second.leads().await;
    assert_eq!(second.proxy.applied(lost), 1);
    assert_eq!(first.ended().await, Ended::Lost);
    second.renews(1).await;
    arena.history.wait_for_holder("second").await;
    assert_eq!(arena.history.last().lease_transitions, Some(1), "taken over once");
    println!("lost responses to create and to take over: {}", arena.sampler.assert_never_two());
    arena.history.assert_sound();
    end(&mut second).await;
}
