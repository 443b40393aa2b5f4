//! Concurrent calls.

use super::*;

#[test]
fn concurrent_calls_for_eight_pods_do_not_affect_each_other() {
    let env = TestEnv::new().unwrap();
    let pods: Vec<Pod> = (0..8).map(|number| env.pod(&format!("pod{number}")).unwrap()).collect();
    let before: Vec<_> = pods.iter().map(|pod| pod.inside.network_state().unwrap()).collect();
    let plugins: Vec<_> = pods
        .iter()
        .enumerate()
        .map(|(number, pod)| {
            let ip = json!({"addresses": [format!("192.168.50.{}/24", 100 + number), format!("2001:db8:50::{}/64", 100 + number)]});
            env.plugin(pod, "net1", config(ip)).unwrap()
        })
        .collect();
    for _ in 0..3 {
        let results = at_once(&plugins, |plugin| plugin.add().unwrap());
        for (number, pod) in pods.iter().enumerate() {
            pod.inside.wait_seen_as(&format!("192.168.50.{}", 100 + number), OUTSIDE[0], PORT).unwrap();
        }
        let jobs: Vec<_> = plugins.iter().zip(&results).collect();
        at_once(&jobs, |(plugin, result)| plugin.del(Some(result)).unwrap());
        for (pod, before) in pods.iter().zip(&before) {
            assert_eq!(
                before.changes(&pod.inside.network_state().unwrap()),
                Vec::<String>::new(),
                "{}",
                pod.name()
            );
        }
    }
}

#[test]
fn concurrent_adds_of_three_attachments_of_one_pod_succeed() {
    // Multus calls them one after the other, and the specification allows concurrent calls only for different containers. They must work
    // nevertheless.
    let scene = Scene::new();
    let plugins: Vec<_> = (1..4)
        .map(|number| {
            scene.attachment(
                &format!("net{number}"),
                json!({"addresses": [format!("192.168.50.{}/24", 90 + number)]}),
            )
        })
        .collect();
    let results = at_once(&plugins, |plugin| plugin.add().unwrap());
    for number in 1..4 {
        scene.leaves_with(&format!("192.168.50.{}", 90 + number));
    }
    let jobs: Vec<_> = plugins.iter().zip(&results).collect();
    at_once(&jobs, |(plugin, result)| plugin.del(Some(result)).unwrap());
    scene.restored();
}

/// A DEL of two that ends later would find the other's journal, and keep the default route and the sysctls for it.
#[test]
fn a_del_waits_until_the_journal_of_the_one_before_is_removed() {
    let scene = Scene::new();
    let [first, second] = [91, 92].map(|host| {
        let addresses = json!([format!("192.168.50.{host}/24"), format!("2001:db8:50::{host}/64")]);
        scene.attachment(&format!("net{host}"), json!({ "addresses": addresses }))
    });
    let results = [&first, &second].map(|plugin| plugin.add().unwrap());
    let late = undo::injected(&first, "?unlink,unlinkat", "delay_enter=2000000", 1);
    std::thread::scope(|scope| {
        let call = scope.spawn(|| late.del(Some(&results[0])).unwrap());
        let is_deleted = || Ok(!scene.pod.inside.sh("nft list tables")?.contains("net91"));
        e2e::netns::wait_until("the table of net91 is deleted", is_deleted).unwrap();
        second.del(Some(&results[1])).unwrap();
        call.join().unwrap();
    });
    scene.restored();
}

fn at_once<T: Sync, R: Send>(items: &[T], act: impl Fn(&T) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = items.iter().map(|item| scope.spawn(|| act(item))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
