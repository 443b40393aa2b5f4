//! The API server answers wrongly, late or not at all: one fault for each run of the story.

use std::time::Duration;

use e2e::fault_proxy::{Answer, Fault, Matcher};
use futures::{StreamExt as _, stream};

use crate::natgw_faults::scene::Scene;
use crate::natgw_faults::story;

/// As in the crash tests.
const AT_ONCE: usize = 8;

fn faults() -> Vec<(&'static str, Matcher, Fault)> {
    let patches = || Matcher::any().verb("patch").resource("nodes");
    let jobs = || Matcher::any().verb("create").resource("jobs");
    let watches = Matcher::watches;
    vec![
        ("409 on patches", patches().times(3), Fault::Reject(Answer::conflict())),
        ("409 on every later patch of six", patches().after(1).times(6), Fault::Reject(Answer::conflict())),
        ("429 on patches", patches().times(2), Fault::Reject(Answer::too_many_requests(1))),
        ("429 on the creation of Jobs", jobs().times(2), Fault::Reject(Answer::too_many_requests(1))),
        ("500 before a patch", patches().times(2), Fault::Reject(Answer::internal())),
        ("500 after a patch", patches().times(2), Fault::Replace(Answer::internal())),
        ("503 before a patch", patches().times(2), Fault::Reject(Answer::unavailable())),
        ("503 after a patch", patches().times(2), Fault::Replace(Answer::unavailable())),
        ("no answer to patches that were accepted", patches().times(3), Fault::Swallow),
        ("500 before a Job is created", jobs().times(2), Fault::Reject(Answer::internal())),
        ("500 after a Job was created", jobs().times(2), Fault::Replace(Answer::internal())),
        ("no answer to a Job that was created", jobs().times(2), Fault::Swallow),
        ("late patches", patches().times(3), Fault::DelayRequest(Duration::from_millis(700))),
        ("refused writes", Matcher::writes().times(4), Fault::Refuse),
        ("410 in watches", watches().times(6), Fault::expire_watch()),
        ("410 instead of watches", watches().times(3), Fault::Reject(Answer::gone())),
        ("watches that end", watches().times(6), Fault::end_watch()),
        ("watches cut in the middle", watches().times(3), Fault::CutResponse { after_bytes: 700 }),
        ("500 instead of watches", watches().times(3), Fault::Reject(Answer::internal())),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_of_the_api_server_leads_to_the_same_end() {
    let scene = Scene::start().await;
    let expected = &story::play(&scene, "undisturbed").await;
    drop(scene);
    let runs: Vec<()> = stream::iter(faults())
        .map(|(scenario, matcher, fault)| async move {
            let scene = Scene::start().await;
            let rule = scene.env.api_proxy.rule(matcher, fault);
            assert_eq!(*expected, story::play(&scene, scenario).await, "{scenario}");
            let applied = scene.env.api_proxy.applied(rule);
            assert!(applied > 0, "{scenario}: it never happened");
            println!("API server, {scenario}: {applied} times, same end");
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    println!("{} faults of the API server", runs.len());
}
