//! Eight writers add and remove routes of the router while routegc removes others: no added route is lost, and no removed one returns.
//! 3 reconciliations, with `SWEEP=all` 1,000.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use e2e::natgw::wait_for;
use e2e::openstack::Project;
use e2e::routegc::TestEnv;
use serde_json::json;
use tokio::sync::Semaphore;

const WRITERS: usize = 8;
/// Routes of each writer at a time. Together with those of the nodes they stay below Neutron's quota of 30.
const EACH: usize = 2;
/// Concurrent requests of all writers, so that routegc's requests are not starved.
const IN_FLIGHT: usize = 2;
/// Waits for one reconciliation: on a busy machine each of its dozen requests is queued.
const WAITS: usize = 5;

/// Limits of all writers.
struct Limits {
    in_flight: Semaphore,
    /// Each reconciliation adds one round for each writer: without this limit the writers alone would use a processor for hours.
    rounds: Semaphore,
}

/// A writer like the cloud controller manager. Its routes have a valid next hop, inside and outside of the pod network.
async fn write(
    project: Project,
    writer: usize,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    limits: Arc<Limits>,
) -> BTreeSet<String> {
    let mut mine = BTreeSet::new();
    let mut round = 0_usize;
    while !stop.load(Ordering::Relaxed) || round % 2 == 1 {
        limits.rounds.acquire().await.unwrap().forget();
        let _permit = limits.in_flight.acquire().await.unwrap();
        for each in 0..EACH {
            let net = if each == 0 { 244 } else { 99 };
            let destination = format!("10.{net}.{}.0/24", 100 + writer * 8 + (round / 2) % 8);
            let route = [(destination.as_str(), "10.7.1.1")];
            if round.is_multiple_of(2) {
                project.add_routes(&route).await.unwrap();
                mine.insert(destination);
            } else {
                // A route of this writer must exist until it removes it.
                let there = project.routes().await.unwrap().iter().any(|(to, _)| *to == destination);
                assert!(there, "writer {writer} lost {destination}");
                project.remove_routes(&route).await.unwrap();
                mine.remove(&destination);
            }
        }
        round += 1;
        done.fetch_add(1, Ordering::Relaxed);
    }
    mine
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "full: 1,000 reconciliations; the test of R1 has the rule"]
async fn eight_writers_lose_nothing() {
    let whole = std::env::var("SWEEP").as_deref() == Ok("all");
    let count = if whole { 1000 } else { 3 };
    let env = TestEnv::start().await.unwrap();
    env.node(1).await.unwrap();
    env.policy("prod", json!({ "safety": { "confirmations": 1, "minAge": "0s" } })).await.unwrap();
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let limits = Arc::new(Limits { in_flight: Semaphore::new(IN_FLIGHT), rounds: Semaphore::new(0) });
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            tokio::spawn(write(env.project.clone(), writer, stop.clone(), done.clone(), limits.clone()))
        })
        .collect();
    let routegc = env.routegc().unwrap().start().unwrap();
    for index in 0..count {
        // One orphaned route for each reconciliation.
        let number = u8::try_from(2 + index % 60).unwrap();
        let orphan = format!("10.244.{number}.{}/32", index / 60);
        env.project.add_routes(&[(&orphan, "10.7.9.9")]).await.unwrap();
        limits.rounds.add_permits(WRITERS);
        // A new annotation triggers a reconciliation.
        env.allow("prod", &format!("reconcile-{index}")).await.unwrap();
        let mut gone = Ok(());
        for _ in 0..WAITS {
            let what = format!("the end of {orphan}");
            // Read from routegc's status, because polling Neutron would slow routegc down.
            gone = wait_for(&what, || async {
                let removed = env.status("prod").await?.last_removed;
                Ok(removed.iter().any(|one| one.destination == orphan))
            })
            .await;
            if gone.is_ok() {
                break;
            }
        }
        gone.unwrap();
        assert!(!env.destinations().await.unwrap().contains(&orphan), "{orphan} is there");
        if index % 50 == 49 {
            println!(
                "{} of {count} reconciliations, {} rounds of other writers",
                index + 1,
                done.load(Ordering::Relaxed)
            );
        }
    }
    stop.store(true, Ordering::Relaxed);
    // A writer that waits for its next round adds routes once more, and removes them.
    limits.rounds.add_permits(2 * WRITERS);
    let mut kept = BTreeSet::from(["10.244.1.0/24".to_owned()]);
    for writer in writers {
        kept.extend(writer.await.unwrap());
    }
    assert_eq!(env.destinations().await.unwrap().into_iter().collect::<BTreeSet<_>>(), kept);
    assert_eq!(routegc.exited().unwrap(), None);
    println!(
        "{count} reconciliations with a removal each, {} rounds of other writers, 0 lost",
        done.load(Ordering::Relaxed)
    );
}
