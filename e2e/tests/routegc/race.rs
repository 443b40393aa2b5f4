//! Eight writers add and remove routes on the router while routegc works: none of their routes is lost, and none of their
//! removals comes back. `make test` has 20 passes; `SWEEP=all` 1,000.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use e2e::natgw::wait_for;
use e2e::openstack::{Knobs, OpenStack, Parts, Project, Release};
use e2e::routegc::TestEnv;
use serde_json::json;
use tokio::sync::Semaphore;

const WRITERS: usize = 8;
/// Of each writer at a time; with those of the nodes they stay under Neutron's 30.
const EACH: usize = 2;
/// Requests of writers that are under way at a time: routegc is to get a turn now and then.
const UNDER_WAY: usize = 2;
/// Waits for one pass: on a busy machine each of its dozen requests stands in a queue.
const WAITS: usize = 5;

/// One writer, as the cloud controller manager is one: its routes lead to a node that lives, in and beside the pod network.
async fn write(
    project: Project,
    writer: usize,
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    turns: Arc<Semaphore>,
) -> BTreeSet<String> {
    let mut mine = BTreeSet::new();
    let mut turn = 0_usize;
    while !stop.load(Ordering::Relaxed) || turn % 2 == 1 {
        let _turn = turns.acquire().await.unwrap();
        for each in 0..EACH {
            let net = if each == 0 { 244 } else { 99 };
            let destination = format!("10.{net}.{}.0/24", 100 + writer * 8 + (turn / 2) % 8);
            let route = [(destination.as_str(), "10.7.1.1")];
            if turn.is_multiple_of(2) {
                project.add_routes(&route).await.unwrap();
                mine.insert(destination);
            } else {
                // What this writer added must still be there when it is taken back.
                let there = project.routes().await.unwrap().iter().any(|(to, _)| *to == destination);
                assert!(there, "writer {writer} lost {destination}");
                project.remove_routes(&route).await.unwrap();
                mine.remove(&destination);
            }
        }
        turn += 1;
        done.fetch_add(1, Ordering::Relaxed);
    }
    mine
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_writers_lose_nothing() {
    let whole = std::env::var("SWEEP").as_deref() == Ok("all");
    let passes = if whole { 1000 } else { 20 };
    let env = if whole {
        // As real ones have: the whole race would take half as long again with one.
        let knobs = Knobs { neutron_processes: 2, ..Knobs::default() };
        let cloud = OpenStack::start(Parts::KeystoneNeutron, Release::Main, knobs).await.unwrap();
        TestEnv::on(cloud, false).await.unwrap()
    } else {
        TestEnv::start().await.unwrap()
    };
    env.node(1).await.unwrap();
    env.policy("prod", json!({ "safety": { "confirmations": 1, "minAge": "0s" } })).await.unwrap();
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let turns = Arc::new(Semaphore::new(UNDER_WAY));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            tokio::spawn(write(env.project.clone(), writer, stop.clone(), done.clone(), turns.clone()))
        })
        .collect();
    let routegc = env.routegc().unwrap().start().unwrap();
    for pass in 0..passes {
        // A dead route of its own for each pass, so that each pass removes one.
        let number = u8::try_from(2 + pass % 60).unwrap();
        let dead = format!("10.244.{number}.{}/32", pass / 60);
        env.project.add_routes(&[(&dead, "10.7.9.9")]).await.unwrap();
        // A new annotation asks for a pass at once.
        env.allow("prod", &format!("pass-{pass}")).await.unwrap();
        let mut gone = Ok(());
        for _ in 0..WAITS {
            let what = format!("the end of {dead}");
            // By routegc's own word: who asks Neutron all the time keeps routegc waiting.
            gone = wait_for(&what, || async {
                let removed = env.status("prod").await?.last_removed;
                Ok(removed.iter().any(|one| one.destination == dead))
            })
            .await;
            if gone.is_ok() {
                break;
            }
        }
        gone.unwrap();
        assert!(!env.destinations().await.unwrap().contains(&dead), "{dead} is there");
        if pass % 50 == 49 {
            println!(
                "{} of {passes} passes, {} turns of other writers",
                pass + 1,
                done.load(Ordering::Relaxed)
            );
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut kept = BTreeSet::from(["10.244.1.0/24".to_owned()]);
    for writer in writers {
        kept.extend(writer.await.unwrap());
    }
    assert_eq!(env.destinations().await.unwrap().into_iter().collect::<BTreeSet<_>>(), kept);
    assert_eq!(routegc.exited().unwrap(), None);
    println!(
        "{passes} passes with a removal each, {} turns of other writers, 0 lost",
        done.load(Ordering::Relaxed)
    );
}
