//! A driver whose process ends at any write: the next one completes it.

use super::*;

/// The writes of an application in their order.
enum Write {
    Operation(Operation),
    Table(Batch),
}

/// Does the first `count` writes of an application, as [`Vxlan::apply`] does them. False: it has no more.
fn interrupted(desired: &Datapath, count: usize) -> bool {
    let mut driver = Vxlan::new(Config::default()).unwrap();
    let Plan { table: desired, observed, changes, .. } = driver.plan(desired).unwrap();
    let table = driver.table_change(&desired).unwrap().map(|(batch, _)| Write::Table(batch));
    let [before, after] = [changes.before, changes.after].map(|part| part.into_iter().map(Write::Operation));
    let writes: Vec<Write> = before.chain(table).chain(after).collect();
    let is_complete = count >= writes.len();
    let mut operations = Vec::new();
    for write in writes.into_iter().take(count) {
        match write {
            Write::Operation(operation) => operations.push(operation),
            Write::Table(batch) => {
                driver.execute(&observed, &operations).unwrap();
                operations.clear();
                driver.write_table(desired.clone(), batch).unwrap();
            }
        }
    }
    driver.execute(&observed, &operations).unwrap();
    !is_complete
}

/// Another driver completes it, and leaves nothing when it is uninstalled.
fn completed(desired: &Datapath, installed: &str, count: usize) {
    Vxlan::new(Config::default()).unwrap().apply(desired).unwrap();
    let mut driver = Vxlan::new(Config::default()).unwrap();
    assert_eq!(driver.preview(desired), Ok(vec![]), "after {count} writes");
    driver.uninstall().unwrap();
    assert_eq!(state(), installed, "uninstalled after {count} writes");
}

/// Interrupts the application of `next` at each of its writes; returns their number. `installed`: the state without the driver.
fn sweep(first: Option<&Datapath>, next: &Datapath, installed: &str) -> usize {
    let mut count = 0;
    loop {
        if let Some(first) = first {
            Vxlan::new(Config::default()).unwrap().apply(first).unwrap();
        }
        let is_interrupted = interrupted(next, count);
        completed(next, installed, count);
        if !is_interrupted {
            return count;
        }
        count += 1;
    }
}

#[test]
fn an_application_that_ends_at_any_write_is_completed_by_the_next_one() {
    isolated(|| {
        let first = sample::gateway();
        drop(node(&first));
        let installed = state();
        let writes = sweep(None, &first, &installed);
        assert!(writes >= 20, "{writes} writes of a first application");
        // A VIP moves, and another one vanishes with its pods and their node.
        let mut next = first.clone();
        next.vips.remove(&sample::B);
        next.vips.get_mut(&sample::A).unwrap().route = sample::via(sample::G2);
        next.vips.get_mut(&sample::A).unwrap().pods.remove(&sample::A2);
        next.peers.remove(&sample::W2);
        let writes = sweep(Some(&first), &next, &installed);
        assert!(writes > 5, "{writes} writes of a change");
    });
}

#[test]
fn a_removal_that_ends_at_any_write_is_completed_by_the_next_one() {
    isolated(|| {
        let datapath = sample::gateway();
        drop(node(&datapath));
        let installed = state();
        for count in 0.. {
            let mut driver = Vxlan::new(Config::default()).unwrap();
            driver.apply(&datapath).unwrap();
            let observed = driver.observe().unwrap();
            let operations = difference::removal(&observed);
            // The table is removed last.
            let Some(some) = operations.get(..count) else { break };
            driver.execute(&observed, some).unwrap();
            Vxlan::new(Config::default()).unwrap().uninstall().unwrap();
            assert_eq!(state(), installed, "after {count} writes");
        }
    });
}
