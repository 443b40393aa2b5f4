//! The law of the fault tests: natgw is killed at its 1st, 2nd, … last write and started again.

use e2e::fault_proxy::When;
use futures::{StreamExt as _, stream};

use crate::scene::Scene;
use crate::story;

/// Stories at a time: they mostly wait for the control plane, and share two cores.
const AT_ONCE: usize = 8;

/// A story's writes when no patch meets another change of its Node, which repeats it:
/// * first gateway: marker, Job, record, route, role
/// * second gateway: marker, Job, record
/// * cordon: old route away, new route, role on, role off
/// * teardown: marker, old Job away, Job, record
const LEAST_WRITES: u64 = 5 + 3 + 4 + 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_each_write_it_comes_to_the_same_end() {
    let scene = Scene::start().await;
    let expected = &story::play(&scene, "undisturbed").await;
    let writes = scene.world.writes.count();
    println!("undisturbed: {writes} writes, then {expected:#?}");
    assert!(writes >= LEAST_WRITES, "{writes}");
    drop(scene);
    let moments = [When::BeforeForward, When::AfterServerActed];
    let runs = moments.into_iter().flat_map(|when| (1..=writes).map(move |n| (n, when)));
    let reached: Vec<Option<String>> = stream::iter(runs)
        .map(|(n, when)| async move {
            let scenario = format!("killed at write {n}, {when:?}");
            let scene = Scene::start().await;
            let killed = scene.kill_at(n, when);
            assert_eq!(*expected, story::play(&scene, &scenario).await, "{scenario}");
            scene.world.writes.forget_actions();
            let write = killed.await.unwrap();
            assert!(write.is_some() || n > LEAST_WRITES, "{scenario}: the write never came");
            println!("{scenario}: {}", write.as_deref().unwrap_or("not reached"));
            write
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let kills = reached.iter().flatten().count();
    println!(
        "{} runs with {kills} kills, all with the same end and nothing forbidden on the way",
        reached.len()
    );
}
