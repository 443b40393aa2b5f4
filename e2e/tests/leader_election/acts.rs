//! Two natgws at work, and faults between the leader and its Lease: never two that act. `make test` has a slice of the duels, `make
//! test-full` has all.
//!
//! An act is a write that a server has accepted, but for Leases and Events. Both replicas' proxies are on one machine and
//! write down when each call arrives: the old leader's last act arrives before the new one's first.

use std::time::{Duration, Instant, SystemTime};

use e2e::fault_proxy::{Fault, Matcher, Recorded, Reply, Then, When};
use e2e::natgw::{Gateway, TIMEOUT, TestEnv};
use e2e::program::Program;
use e2e::sweep::Slice;
use futures::{StreamExt as _, stream};
use nix::libc;

use crate::leader_election::contender::{ROOMY, SHORT, Times, renewals};
use crate::leader_election::processes::{Replica, pair};

/// The part of the duels that `make test` has.
const SLICES: u64 = 9;
/// Duels at a time: they mostly wait for leases to run out.
const AT_ONCE: usize = 5;
/// How often a duel is repeated at most, because its leader lost its lease before the fault.
const DUELS: usize = 5;
/// Longer than the renew deadline of [`SHORT`], and shorter than its lease.
const TOO_LATE: Duration = Duration::from_secs(20);

/// Two gateways between which the route moves to and fro, a leader and a standby.
struct Duel {
    env: TestEnv,
    gateways: [Gateway; 2],
    first: Replica,
    second: Replica,
}

/// The result of a duel: the number of acts of each replica.
#[derive(Default)]
struct Score {
    acts_of_first: usize,
    acts_of_second: usize,
}

impl Duel {
    async fn begin(times: Times) -> Duel {
        let (env, gateway, first, second) = pair(times).await;
        let other = env.node(Some("198.51.100.2")).await.unwrap();
        env.wait_for_setup(&other, "198.51.100.2").await.unwrap();
        Duel { env, gateways: [gateway, other], first, second }
    }

    /// Cordons the primary and uncordons the other.
    async fn move_route(&self) {
        let [one, other] = &self.gateways;
        let at_one = self.env.route() == Some(one.private_ip.to_string());
        let (from, to) = if at_one { (one, other) } else { (other, one) };
        to.node.cordon(false).await.unwrap();
        from.node.cordon(true).await.unwrap();
    }

    /// Moves the route that often, and waits for it each time.
    async fn move_route_and_wait(&self, times: usize) {
        for _ in 0..times {
            let before = self.env.route();
            self.move_route().await;
            let env = &self.env;
            env.wait("the route to follow", || async {
                Ok(env.route().is_some() && env.route() != before && env.role_holders().await?.len() == 1)
            })
            .await
            .unwrap();
        }
    }

    async fn second_leads(&self) {
        let env = &self.env;
        env.wait("the standby to lead", || async { Ok(self.second.leads().await) }).await.unwrap();
    }

    /// No act of the first arrives after the first act of the second.
    async fn end(self, name: &str) -> Score {
        let (first, second) = (acts(&self.first), acts(&self.second));
        let last = first.iter().max_by_key(|call| call.at);
        let next = second.iter().min_by_key(|call| call.at);
        if let (Some(last), Some(next)) = (last, next) {
            assert!(
                last.at < next.at,
                "{name}: two act: the old leader's {} {} came {:?} after the new one's {} {}",
                last.method,
                last.path,
                last.at.duration_since(next.at),
                next.method,
                next.path
            );
        }
        let gap = next.zip(last).and_then(|(next, last)| next.at.duration_since(last.at).ok());
        println!(
            "{name}: {} acts of the old leader, {} of the new one, {gap:.1?} between them",
            first.len(),
            second.len()
        );
        for replica in [self.first, self.second] {
            // One that has lost its lease is gone already.
            let _ = replica.program.kill();
        }
        for gateway in self.gateways {
            gateway.node.remove().await.unwrap();
        }
        Score { acts_of_first: first.len(), acts_of_second: second.len() }
    }
}

fn acts(replica: &Replica) -> Vec<Recorded> {
    let mut acts = replica.writes();
    acts.retain(|call| {
        let aside =
            call.kube().is_some_and(|request| matches!(request.resource.as_str(), "leases" | "events"));
        !aside && call.is_accepted()
    });
    acts
}

fn leases() -> Matcher {
    Matcher::any().resource("leases")
}

/// Faults that cost the lease, as long as they last.
fn fatal() -> Vec<(&'static str, Matcher, Fault)> {
    vec![
        ("cut responses", leases(), Fault::CutResponse { after_bytes: 20 }),
        ("responses that arrive too late", leases(), Fault::DelayResponse(TOO_LATE)),
        ("renewals that are accepted without a response", renewals(), Fault::Swallow),
        ("renewals that are accepted with the response 500", renewals(), Fault::Replace(Reply::internal())),
        ("renewals that arrive too late", renewals(), Fault::DelayRequest(TOO_LATE)),
        ("renewals without any response", renewals(), Fault::Blackhole),
        ("a Lease that cannot be reached", leases(), Fault::Blackhole),
        ("connections for the Lease that are refused", leases(), Fault::Refuse),
        ("renewals in conflict", renewals(), Fault::Reject(Reply::conflict())),
        ("429 for each call of the Lease", leases(), Fault::Reject(Reply::too_many_requests(1))),
    ]
}

fn report(what: &str, scores: &[Score]) {
    let sum = |of: fn(&Score) -> usize| scores.iter().map(of).sum::<usize>();
    println!(
        "never two that act, {what}: {} duels, {} acts of old leaders, {} of new ones, 0 after the other's first",
        scores.len(),
        sum(|score| score.acts_of_first),
        sum(|score| score.acts_of_second)
    );
}

/// A duel in which the first leader meets a fault. None: on a busy machine it has lost its lease before.
async fn lose_the_lease(name: &str, matcher: Matcher, fault: Fault) -> Option<Score> {
    let duel = Duel::begin(SHORT).await;
    let rule = duel.first.api.rule(matcher, fault);
    let work = async {
        loop {
            duel.move_route().await;
            // A move of the route takes about so long; the next one may begin in the middle of it as well.
            tokio::time::sleep(Duration::from_millis(1_300)).await;
        }
    };
    let lost = async {
        let status = duel.first.program.wait_exit().await.unwrap();
        assert_eq!(status.code(), Some(1), "{name}: a lost lease is a failure");
        duel.second_leads().await;
    };
    tokio::select! {
        () = work => {}
        () = lost => {}
    }
    if duel.first.api.applied(rule) == 0 {
        println!("{name}: it lost its lease before: {}", duel.first.program.output().lines().join("\n"));
        duel.end(name).await;
        return None;
    }
    duel.move_route_and_wait(2).await;
    let score = duel.end(name).await;
    assert!(score.acts_of_first > 0 && score.acts_of_second > 0, "{name}: no act");
    Some(score)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_lease_calls_fail_stops_before_the_other_acts() {
    // All other requests succeed: only the old leader itself prevents its writes.
    let faults = Slice::chosen("faults that cost the lease", SLICES).unwrap().pick(fatal());
    let scores: Vec<Score> = stream::iter(faults)
        .map(|(name, matcher, fault)| async move {
            for _ in 0..DUELS {
                if let Some(score) = lose_the_lease(name, matcher.clone(), fault.clone()).await {
                    return score;
                }
            }
            panic!("{name}: it never happened")
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    report("faults that cost the lease", &scores);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_responses_are_late_but_in_time_keeps_the_lease() {
    let faults = [
        ("responses that are late, but in time", leases(), Fault::DelayResponse(Duration::from_secs(2))),
        ("renewals that are late, but in time", renewals(), Fault::DelayRequest(Duration::from_secs(2))),
        (
            "a renewal whose response is cut",
            renewals().after(1).times(1),
            Fault::CutResponse { after_bytes: 20 },
        ),
    ];
    let faults = Slice::chosen("faults that do not cost the lease", 3).unwrap().pick(faults);
    let scores: Vec<Score> = stream::iter(faults)
        .map(|(name, matcher, fault)| async move {
            let duel = Duel::begin(ROOMY).await;
            let rule = duel.first.api.rule(matcher, fault);
            duel.move_route_and_wait(4).await;
            duel.first.api.wait_applied(rule, 1, TIMEOUT).await.expect(name);
            assert!(duel.first.leads().await && !duel.second.leads().await, "{name}");
            let score = duel.end(name).await;
            assert_eq!(score.acts_of_second, 0, "{name}");
            score
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    report("faults that do not", &scores);
}

/// When a leader is put to sleep.
#[derive(Clone, Copy, Debug)]
enum Sleep {
    /// At its nth write.
    At(u64, When),
    /// So long after it was given something to do: between two writes, most likely, and while it waits.
    After(Duration),
}

/// A duel whose first replica is stopped (SIGSTOP). If it loses its Lease before its nth write, as on a busy machine, the duel is repeated.
async fn with_sleeper(sleep: Sleep, name: &str) -> Duel {
    for _ in 0..DUELS {
        let duel = Duel::begin(SHORT).await;
        let sleeper = duel.first.program.clone();
        match sleep {
            Sleep::At(n, when) => {
                let program = sleeper.clone();
                let pause = move || async move {
                    program.pause().unwrap();
                    Then::GoOn
                };
                let asleep = duel.first.counter.on_write(n, when, pause).unwrap();
                duel.move_route().await;
                tokio::select! {
                    asleep = asleep.wait(TIMEOUT) => {
                        asleep.expect(name);
                        return duel;
                    }
                    exited = sleeper.wait_exit() => println!("{name}: it lost its lease before: {}", exited.unwrap()),
                }
                duel.end(name).await;
            }
            Sleep::After(pause) => {
                duel.move_route().await;
                // The moment is the scenario.
                tokio::time::sleep(pause).await;
                put_to_sleep(&sleeper).await;
                return duel;
            }
        }
    }
    panic!("{name}: it never happened");
}

/// Stops it while it waits for something. Stopped between its check of the lease and the socket, it sends when it wakes
/// what it decided while it led: no lease prevents that (see `common::leader`), and a busy machine makes that moment long.
async fn put_to_sleep(program: &Program) {
    let end = Instant::now() + TIMEOUT;
    while Instant::now() < end {
        program.pause().unwrap();
        let call = std::fs::read_to_string(format!("/proc/{}/syscall", program.pid())).unwrap();
        if call.split(' ').next().and_then(|call| call.parse().ok()).is_some_and(|call| WAITS.contains(&call))
        {
            return;
        }
        program.resume().unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it never waits");
}

/// The system calls in which a process waits for its sockets and timers.
#[cfg(target_arch = "x86_64")]
const WAITS: [i64; 2] = [libc::SYS_epoll_wait, libc::SYS_epoll_pwait];
#[cfg(not(target_arch = "x86_64"))]
const WAITS: [i64; 1] = [libc::SYS_epoll_pwait];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_was_stopped_beyond_its_lease_writes_nothing_when_it_continues() {
    // A move is four writes: old route away, new route, role on, role off.
    let moments = [When::BeforeForward, When::AfterServerActed, When::AfterResponse];
    let at_writes = (1..=4).flat_map(|n| moments.map(|when| Sleep::At(n, when)));
    let between = [5, 30, 60, 90, 150, 400, 700, 1_000].map(|ms| Sleep::After(Duration::from_millis(ms)));
    let moments = Slice::chosen("asleep beyond the lease", SLICES).unwrap().pick(at_writes.chain(between));
    let scores: Vec<Score> = stream::iter(moments)
        .map(|sleep| async move {
            let name = format!("asleep {sleep:?}");
            let duel = with_sleeper(sleep, &name).await;
            duel.second_leads().await;
            duel.second.reconciles(&duel.env, 2.0).await;
            // The new leader has acted, so that whatever the old one does now is too late.
            duel.move_route_and_wait(1).await;
            let woken = SystemTime::now();
            duel.first.program.resume().unwrap();
            let status = duel.first.program.wait_exit().await.unwrap();
            assert_eq!(status.code(), Some(1), "{name}: a lost lease is a failure");
            let late = acts(&duel.first).into_iter().filter(|act| act.at >= woken).count();
            assert_eq!(late, 0, "{name}: it acted when it woke: {:#?}", acts(&duel.first));
            duel.end(&name).await
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    report("asleep beyond the lease", &scores);
}
