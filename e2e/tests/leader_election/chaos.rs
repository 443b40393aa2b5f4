//! Three contenders, and faults at random.

use std::hash::{BuildHasher as _, RandomState};
use std::time::{Duration, Instant};

use common::leader::Ended;
use e2e::fault_proxy::{Fault, Matcher, Reply};

use crate::leader_election::contender::{Arena, Contender, SHORT, renewals};

/// Long enough for several changes of hands at 3 s a lease.
const LENGTH: Duration = Duration::from_secs(30);
/// How long each set of faults lasts: sometimes shorter than the deadline of 2 s, sometimes longer.
const SPELLS: [u64; 4] = [300, 900, 1_800, 3_500];

/// A small generator (splitmix64), so that a failure can be repeated with the seed that it prints.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(bound).unwrap()).unwrap()
    }

    fn fault(&mut self) -> (Matcher, Fault) {
        let delay = Duration::from_millis(u64::try_from(self.below(3_000)).unwrap());
        match self.below(8) {
            0 => (Matcher::any(), Fault::Blackhole),
            1 => (Matcher::any(), Fault::Refuse),
            2 => (renewals(), Fault::Swallow),
            3 => (renewals(), Fault::DelayRequest(delay)),
            4 => (Matcher::any(), Fault::DelayResponse(delay)),
            5 => (renewals(), Fault::Reject(Reply::conflict())),
            6 => (renewals(), Fault::Replace(Reply::unavailable())),
            _ => (Matcher::any(), Fault::Reject(Reply::too_many_requests(1))),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_contenders_under_random_faults_never_lead_at_once() {
    let seed = RandomState::new().hash_one(());
    let seed = std::env::var("CHAOS_SEED").map_or(seed, |seed| seed.parse().unwrap());
    // Shown with a failure.
    println!("chaos: CHAOS_SEED={seed}");
    let mut random = Random(seed);
    let arena = Arena::new().await;
    let mut contenders: Vec<Contender> = Vec::new();
    for number in 0..3 {
        contenders.push(arena.contender(&format!("c{number}"), SHORT).await);
    }
    let (mut spells, mut faults, mut restarts) = (0, 0, 0);
    let began = Instant::now();
    while began.elapsed() < LENGTH {
        for contender in &contenders {
            contender.proxy.clear();
            // The leader always, so that there is something to see.
            if contender.leadership.is_leading() || random.below(3) == 0 {
                let (matcher, fault) = random.fault();
                contender.proxy.rule(matcher, fault);
                faults += 1;
            }
        }
        // The scenario itself takes time: it is what faults do while it passes.
        tokio::time::sleep(Duration::from_millis(SPELLS[random.below(SPELLS.len())])).await;
        spells += 1;
        for contender in &mut contenders {
            if contender.task.is_finished() {
                assert_eq!(contender.ended().await, Ended::Lost);
                restarts += 1;
                *contender = arena.contender(&format!("c{}", restarts + 2), SHORT).await;
            }
        }
    }
    // All faults over: somebody leads in the end, and a release by each in turn hands over.
    for contender in &contenders {
        contender.proxy.clear();
    }
    let leader = e2e::natgw::wait_for("a leader", || async {
        Ok(contenders
            .iter()
            .any(|contender| contender.leadership.is_leading() || contender.task.is_finished()))
    });
    leader.await.unwrap();
    for contender in &mut contenders {
        contender.release.cancel();
        contender.ended().await;
    }
    let seen = arena.sampler.assert_never_two();
    arena.history.assert_sound();
    println!(
        "chaos: {spells} spells, {faults} faults, {restarts} losses, {} changes of hands, {} versions of the Lease; {seen}",
        arena.history.last().lease_transitions.unwrap_or(0),
        arena.history.specs().len()
    );
    assert!(!arena.sampler.intervals().is_empty());
}
