//! The steady state.

use std::collections::BTreeMap;

use e2e::cgw::NAMESPACE;
use e2e::cluster::Write;
use e2e::program::Samples;
use e2e::wait::until;

use super::env::TestEnv;
use super::metrics;

/// Comparisons of the datapath, each ten seconds.
const COMPARISONS: f64 = 3.0;
/// The first ones may contain the end of an earlier step.
const WINDOWS: usize = 3;

/// While nothing changes, no role writes to the API server, nor to its node.
pub async fn nothing_is_written(env: &TestEnv) {
    let own = |write: &Write| write.user.starts_with(&format!("system:serviceaccount:{NAMESPACE}:"));
    let before = env.cluster.writes().unwrap();
    for account in ["cgw-controller", "cgw-keeper"] {
        let user = format!("system:serviceaccount:{NAMESPACE}:{account}");
        assert!(before.iter().any(|write| write.user == user), "the audit log has no write of {account}");
    }
    for window in 1..=WINDOWS {
        let (writes, counters) = (env.cluster.writes().unwrap().len(), counters(env).await);
        until("each agent compares, and each controller polls", async || {
            let now = self::counters(env).await;
            let is_over = counters.iter().all(|(name, at)| {
                let enough = if name.starts_with("agent") { COMPARISONS } else { 1.0 };
                now.get(name).is_some_and(|now| now.reconciled >= at.reconciled + enough)
            });
            Ok(is_over.then_some(()))
        })
        .await
        .unwrap();
        let new: Vec<Write> = env.cluster.writes().unwrap().into_iter().skip(writes).filter(own).collect();
        let changed: Vec<String> = {
            let now = self::counters(env).await;
            counters
                .iter()
                .filter(|(name, at)| now[*name].changes > at.changes)
                .map(|(name, _)| name.clone())
                .collect()
        };
        if new.is_empty() && changed.is_empty() {
            println!("no write in window {window}");
            return;
        }
        assert!(
            window < WINDOWS,
            "writes in the steady state: {new:#?}; changes of the datapath: {changed:?}"
        );
    }
}

#[derive(Clone, Copy)]
struct Counters {
    reconciled: f64,
    changes: f64,
}

/// Of each agent and each replica of the controller.
async fn counters(env: &TestEnv) -> BTreeMap<String, Counters> {
    let mut all = BTreeMap::new();
    for node in env.cluster.nodes() {
        let samples = Samples::parse(&metrics::agent(env, node.name()).await.unwrap()).unwrap();
        let reconciled = samples.sum("cgw_agent_apply_duration_seconds_count", &[]).unwrap();
        let changes = samples.sum("cgw_agent_changes_total", &[]).unwrap();
        all.insert(format!("agent {}", node.name()), Counters { reconciled, changes });
    }
    for (address, text) in metrics::controllers(env).await.unwrap() {
        let samples = Samples::parse(&text).unwrap();
        let reconciled = samples.sum("controller_runtime_reconcile_total", &[]).unwrap();
        all.insert(format!("controller {address}"), Counters { reconciled, changes: 0.0 });
    }
    all
}
