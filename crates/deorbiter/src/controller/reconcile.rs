//! One reconciliation of one Deorbit: observe → plan → store → apply.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use common::api::deorbit::{Deorbit, DeorbitStatus, Phase};
use common::backoff::Backoff;
use common::cache::ObjectKey;
use common::cloud::openstack::Cloud;
use common::controller::Next;
use common::plan::Problem;
use jiff::Timestamp;
use kube::{Api, Client};

use super::memo::Memo;
use super::sample::Sample;
use super::{Context, page};
use crate::apply::{Apply, store};
use crate::error::Error;
use crate::names;
use crate::observe::snapshot::{Cluster, Run, Snapshot, Unread};
use crate::observe::{cloud, target};
use crate::plan::{self, Reason, frozen_is_unknown, is_thawed};
use crate::{routes, status};

/// The longest wait between two reconciliations.
const LONGEST: Duration = Duration::from_secs(60);
/// If nothing changes, the wait until the next reconciliation grows to the time since the last change divided by this:
/// after hours without a change, a change or a timeout may be observed so much later, ...
const PART: u32 = 10;
/// ... and no later than this.
const LATEST: Duration = Duration::from_secs(30);

/// Reconciles a Deorbit once.
///
/// # Errors
/// What of the Deorbit itself could not be read or written; nothing was deleted then.
pub async fn reconcile(context: &Context, key: &ObjectKey, memo: &mut Memo) -> Result<Next, Error> {
    let (namespace, name) = (key.namespace(), key.name());
    let management = &context.runtime.client;
    let api = Api::<Deorbit>::namespaced(management.clone(), namespace);
    // Read from the API server, not from the cache: what is stored decides what may be deleted.
    let found = api.get_opt(name).await;
    let what = || format!("read Deorbit {namespace}/{name}");
    let Some(deorbit) = found.map_err(|cause| Error::Management { what: what(), cause })? else {
        return Ok(context.gone(key));
    };
    let run = match read(management, &deorbit, memo).await {
        Err(error @ Error::Records { .. }) => {
            // Nothing may be done without the records, and only a person can restore them.
            let regarding = plan::action::about(namespace, name, deorbit.metadata.uid.clone());
            let because = Reason::RecordsLost { why: error.to_string() };
            memo.events.found(&[Problem { regarding, because }]);
            return Err(error);
        }
        read => read?,
    };
    if is_quiet(&run) {
        if !run.deleting && !run.spec.dry_run {
            // After a restart the metrics do not know yet how it ended.
            context.metrics.stored((namespace, name), run.status.phase, &run.status);
        }
        return Ok(Next::OnChange);
    }
    let started = Instant::now();
    memo.retry_after = None;
    let (snapshot, client, cloud) = observe(context, run, memo).await;
    let took = started.elapsed();
    let decision = plan::plan(&context.settings, &snapshot, Timestamp::now());
    if !context.runtime.leadership.is_leading() {
        return Err(Error::NotLeading);
    }
    let run = &snapshot.run;
    let mut wrote = false;
    if !run.deleting {
        wrote = store::store(management, &deorbit, decision.status.clone(), &run.records, &decision.records)
            .await?;
        if wrote {
            memo.records = None;
        }
        if !run.spec.dry_run {
            context.metrics.stored((namespace, name), run.status.phase, &decision.status);
        }
    } else if decision.status.first_unavailable_at != run.status.first_unavailable_at {
        store::record_outage(management, &deorbit, decision.status.first_unavailable_at).await?;
    }
    let text = status::render(run, &decision);
    context.runtime.status.set(page(key), text);
    memo.events.found(&decision.plan.problems);
    let apply = Apply {
        management,
        target: client.as_ref(),
        cloud: cloud.as_ref(),
        deorbit: &deorbit,
        runtime: &context.runtime,
        events: &memo.events,
        metrics: &context.metrics,
    };
    let begun = Instant::now();
    let ran = apply.run(&decision.plan, memo.next.as_ref(), took).await?;
    let tried = begun.elapsed();
    memo.record(ran);
    if wrote || !decision.plan.steps.is_empty() {
        memo.changed_at = started;
    }
    if memo.next.is_some() {
        // A failed step is not tried again at once, but the other steps wait no longer than the steps before took.
        let wait = pace(Duration::ZERO, took, memo.failures_in_a_row, Duration::ZERO).min(tried);
        return Ok(Next::After(not_before(wait, memo.retry_after)));
    }
    let Some(requeue_after) = decision.requeue_after else { return Ok(Next::OnChange) };
    let wait = pace(requeue_after, took, memo.failures_in_a_row, memo.changed_at.elapsed());
    if memo.retry_after.is_some() {
        return Ok(Next::After(not_before(wait, memo.retry_after)));
    }
    memo.sample = cloud.and_then(|cloud| Sample::new(cloud, &snapshot, &decision, wait));
    Ok(Next::After(memo.sample.as_ref().map_or(wait, Sample::next_poll)))
}

/// After reconciliations of which each step failed: what the target cluster or OpenStack refuses is retried, at a cost that they bear.
const REFUSED: Backoff = Backoff { base: Duration::from_secs(2), max: Duration::from_secs(32) };

/// The time until the next reconciliation. It is longer for a large cluster (`took`), where nothing changes, and after failures.
fn pace(requeue_after: Duration, took: Duration, failures_in_a_row: u32, unchanged: Duration) -> Duration {
    let refused = REFUSED.delay(failures_in_a_row);
    let waits = if requeue_after.is_zero() {
        requeue_after
    } else {
        requeue_after.max(took * 3).max((unchanged / PART).min(LATEST))
    };
    waits.max(refused).min(LONGEST)
}

/// The wait, extended to OpenStack's Retry-After. No worker waits meanwhile.
fn not_before(wait: Duration, retry_after: Option<Duration>) -> Duration {
    wait.max(retry_after.unwrap_or_default())
}

/// The run is over, it left nothing in the target, and the Deorbit is not being deleted: no request is made.
fn is_quiet(run: &Run) -> bool {
    if run.deleting {
        return !run.held;
    }
    let planned = run.spec.dry_run && run.status.inventory.taken;
    let settled = planned || (run.status.phase.is_final() && !frozen_is_unknown(&run.status));
    settled && run.status.observed_generation == run.generation
}

async fn read(management: &Client, deorbit: &Deorbit, memo: &mut Memo) -> Result<Run, Error> {
    let meta = &deorbit.metadata;
    let version = meta.resource_version.clone().unwrap_or_default();
    let deleting = meta.deletion_timestamp.is_some();
    let records = match &memo.records {
        Some((known, records)) if *known == version => records.clone(),
        // Removing a freeze needs no records, and must not fail because of them.
        _ if deleting => Vec::new(),
        _ => {
            let records = store::records(management, deorbit).await?;
            memo.records = Some((version, records.clone()));
            records
        }
    };
    let annotation = |key: &str| meta.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
    Ok(Run {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        generation: meta.generation,
        deleting,
        held: meta.finalizers.iter().flatten().any(|one| one == names::FINALIZER),
        protected: annotation(names::PROTECT).is_some_and(|value| !value.is_empty() && value != "false"),
        spec: deorbit.spec.clone(),
        status: without_records(deorbit.status.clone().unwrap_or_default()),
        records,
    })
}

/// The Run has the records already.
fn without_records(mut status: DeorbitStatus) -> DeorbitStatus {
    status.inventory.records = Vec::new();
    status
}

/// Refuses a cluster that is not the one that is meant. While the Deorbit is being deleted only its freeze is read, which has its UID
/// in the name: that is safe in any cluster.
async fn verified(context: &Context, run: &Run, cluster: Cluster) -> Result<Cluster, Unread> {
    if run.deleting {
        return Ok(cluster);
    }
    let management = context.management_identity().await;
    run.verify_identity(cluster, management)
}

async fn observe(context: &Context, run: Run, memo: &mut Memo) -> (Snapshot, Option<Client>, Option<Cloud>) {
    if run.deleting && is_thawed(&run.status) {
        // The cluster is often gone by now, and nothing of the run is in it.
        let nothing = Cluster::default();
        let failures = BTreeMap::new();
        return (Snapshot { run, cluster: Ok(nothing), cloud: None, failures }, None, None);
    }
    let (client, cluster) = match memo.target(context, &run.namespace, &run.spec).await {
        Err(why) => (None, Err(why)),
        Ok(client) => {
            let cluster = if run.deleting {
                target::freeze(&client, &run.uid).await.map(|freeze| Cluster { freeze, ..Cluster::default() })
            } else {
                target::read(&client, &context.settings, &run.uid, frozen_is_unknown(&run.status)).await
            };
            let cluster = match cluster {
                Ok(cluster) => verified(context, &run, cluster).await,
                Err(error) => Err(error.unread()),
            };
            (Some(client), cluster)
        }
    };
    let (project, seen) = match memo.cloud(context, &run.namespace, &run.spec).await {
        _ if run.deleting => (None, None),
        Err(why) => (None, Some(Err(why))),
        Ok(None) => (None, None),
        Ok(Some(project)) => {
            let seen = cloud::read(&project, &run, cluster.as_ref().ok()).await;
            let mut seen = seen
                .map_err(|error| {
                    tracing::debug!(namespace = run.namespace, name = run.name, %error, "OpenStack");
                    memo.retry_after = error.retry_after();
                    cloud::unread(&error)
                })
                .and_then(|seen| run.verify_project(seen));
            if let (Ok(whole), Some(asked), Phase::Inventory | Phase::Routes) =
                (&mut seen, &run.spec.resources.routes, run.status.phase)
            {
                routes::add_to(&project, asked, whole).await;
            }
            (Some(project), Some(seen))
        }
    };
    let failures = memo.failures.clone();
    (Snapshot { run, cluster, cloud: seen, failures }, client, project)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::SOON;

    #[test]
    fn reconciliations_become_rare_while_nothing_changes() {
        let after = |seconds| pace(SOON, Duration::ZERO, 0, Duration::from_secs(seconds));
        assert_eq!(after(0), SOON);
        assert_eq!(after(20), SOON);
        assert_eq!(after(60), Duration::from_secs(6));
        assert_eq!(after(24 * 60 * 60), LATEST);
    }

    #[test]
    fn the_next_reconciliation_is_not_before_the_retry_after_of_openstack() {
        let minutes = Duration::from_secs(300);
        assert_eq!(not_before(SOON, Some(minutes)), minutes);
        assert_eq!(not_before(minutes, Some(SOON)), minutes);
        assert_eq!(not_before(SOON, None), SOON);
    }

    #[test]
    fn the_next_phase_begins_at_once_except_after_failures() {
        let long = Duration::from_secs(600);
        assert_eq!(pace(Duration::ZERO, long, 0, long), Duration::ZERO);
        assert_eq!(pace(Duration::ZERO, Duration::ZERO, 3, long), Duration::from_secs(8));
    }

    #[test]
    fn slow_reconciliations_are_rare_up_to_the_longest_wait() {
        assert_eq!(pace(SOON, Duration::from_secs(5), 0, Duration::ZERO), Duration::from_secs(15));
        assert_eq!(pace(SOON, Duration::from_secs(50), 9, Duration::ZERO), LONGEST);
    }
}
