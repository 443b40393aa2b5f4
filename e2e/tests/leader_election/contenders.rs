//! Two contenders of ours, and one fault at a time.

use std::time::{Duration, Instant};

use common::leader::Ended;
use e2e::fault_proxy::{Fault, Matcher, Reply};
use e2e::natgw::TIMEOUT;

use crate::leader_election::contender::{Arena, Contender, ROOMY, SHORT, renewals};
use crate::leader_election::history::{acquired, holder, renewed};

/// The leader meets a fault for good: it ends by itself, and the other one takes over, never both at once.
async fn succession(name: &str, matcher: Matcher, fault: Fault) {
    let arena = Arena::new().await;
    let mut first = arena.contender("first", SHORT).await;
    first.leads().await;
    let mut second = arena.contender("second", SHORT).await;
    second.looks(2).await;
    let began = Instant::now();
    let rule = first.proxy.rule(matcher, fault);
    assert_eq!(first.ended().await, Ended::Lost);
    let (lost, _) = (began.elapsed(), first.proxy.wait_applied(rule, 1, TIMEOUT).await.unwrap());
    second.leads().await;
    let took_over = began.elapsed();
    // What is still on its way from the first does no harm.
    second.renews(3).await;
    assert!(second.leadership.is_leading());
    assert_eq!(holder(&arena.history.last()), "second");
    let seen = arena.sampler.assert_never_two();
    arena.history.assert_sound();
    println!("{name}: lost after {lost:.1?}, taken over after {took_over:.1?}; {seen}");
    end(&mut second).await;
}

/// The leader gives up what it has.
async fn end(contender: &mut Contender) {
    contender.release.cancel();
    assert_eq!(contender.ended().await, Ended::Stopped);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_is_succeeded() {
    succession("cut off", Matcher::any(), Fault::Blackhole).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_connections_are_refused_is_succeeded() {
    succession("refused", Matcher::any(), Fault::Refuse).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_hears_no_answer_is_succeeded_after_its_last_unheard_renewal() {
    succession("accepted, not answered", renewals(), Fault::Swallow).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_that_arrive_after_the_deadline_neither_keep_nor_take_the_lease() {
    succession("delayed writes", renewals(), Fault::DelayRequest(Duration::from_millis(2_500))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewal_that_arrives_after_the_takeover_is_refused() {
    let arena = Arena::new().await;
    let mut first = arena.contender("first", SHORT).await;
    first.leads().await;
    let mut second = arena.contender("second", SHORT).await;
    second.looks(2).await;
    // Held until the second leads: then the network delivers.
    let late = first.proxy.rule(renewals(), Fault::DelayRequest(Duration::from_secs(8)));
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
async fn a_release_hands_over_at_the_next_look() {
    let arena = Arena::new().await;
    let mut first = arena.contender("first", ROOMY).await;
    first.leads().await;
    let mut second = arena.contender("second", ROOMY).await;
    second.looks(2).await;
    assert!(!second.leadership.is_leading());
    let began = Instant::now();
    end(&mut first).await;
    let released = arena.history.last();
    second.leads().await;
    let took = began.elapsed();
    // A retry period with its jitter is 0.9 s. Waiting out the lease would take 15 s; this leaves room for a busy machine.
    assert!(took < Duration::from_secs(7), "{took:?}");
    second.renews(1).await;
    let specs = arena.history.specs();
    let empty = specs.iter().find(|spec| holder(spec).is_empty()).expect("a version without a holder");
    assert_eq!(empty.lease_duration_seconds, Some(1));
    let last = arena.history.last();
    assert_eq!(
        (holder(&last), last.lease_transitions, last.lease_duration_seconds),
        ("second", Some(1), Some(15))
    );
    assert!(acquired(&last) >= renewed(empty), "{released:?}");
    println!("release: handed over after {took:.2?}; {}", arena.sampler.assert_never_two());
    arena.history.assert_sound();
    end(&mut second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_fault_does_not_cost_the_lease() {
    let arena = Arena::new().await;
    let mut first = arena.contender("first", ROOMY).await;
    first.leads().await;
    let mut second = arena.contender("second", ROOMY).await;
    second.looks(1).await;
    let faults = [
        ("409", Fault::Reject(Reply::conflict())),
        ("409 for one that was accepted", Fault::Replace(Reply::conflict())),
        ("429", Fault::Reject(Reply::too_many_requests(1))),
        ("500", Fault::Reject(Reply::internal())),
        ("503", Fault::Reject(Reply::unavailable())),
        ("500 for one that was accepted", Fault::Replace(Reply::internal())),
        ("503 for one that was accepted", Fault::Replace(Reply::unavailable())),
        ("refused connection", Fault::Refuse),
        ("lost answer", Fault::Swallow),
        ("cut answer", Fault::CutResponse { after_bytes: 20 }),
        ("late answer", Fault::DelayResponse(Duration::from_millis(1_500))),
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
async fn a_lost_answer_to_the_creation_or_the_takeover_is_found_out() {
    let arena = Arena::new().await;
    let mut first = arena.contender("first", SHORT).await;
    first.proxy.rule(Matcher::writes().times(1), Fault::Swallow);
    first.leads().await;
    let mut second = arena.contender("second", SHORT).await;
    second.looks(1).await;
    let lost = second.proxy.rule(renewals().times(1), Fault::Swallow);
    first.proxy.refuse_all(true);
    second.leads().await;
    assert_eq!(second.proxy.applied(lost), 1);
    assert_eq!(first.ended().await, Ended::Lost);
    second.renews(1).await;
    assert_eq!(arena.history.last().lease_transitions, Some(1), "taken over once");
    println!("lost answers to create and to take over: {}", arena.sampler.assert_never_two());
    arena.history.assert_sound();
    end(&mut second).await;
}
