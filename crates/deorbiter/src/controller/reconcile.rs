//! One reconciliation of one Deorbit: observe → plan → store → apply.

use std::time::{Duration, Instant};

use common::api::deorbit::{Deorbit, Phase, Provider};
use common::backoff::Backoff;
use common::cache::ObjectKey;
use common::cloud::openstack::Cloud;
use common::controller::Next;
use jiff::Timestamp;
use kube::{Api, Client};

use super::memo::Memo;
use super::{Context, page};
use crate::apply::{Apply, store};
use crate::error::{Error, NoClient};
use crate::observe::snapshot::{Cluster, Run, Snapshot};
use crate::observe::{cloud, target};
use crate::plan::{self, Decision, LATER, block};
use crate::{routes, status};

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
    let found = found.map_err(Error::kubernetes(format!("read Deorbit {namespace}/{name}")))?;
    let Some(deorbit) = found else {
        return Ok(context.gone(key));
    };
    let uid = deorbit.metadata.uid.clone().unwrap_or_default();
    if memo.uid != uid {
        // Another one of the same name.
        *memo = Memo::new(context.runtime.events.scoped());
        memo.uid = uid;
    }
    let stored = store::read(management, &deorbit).await?;
    let run = Run {
        same_login: context.same_login(&deorbit),
        book: stored.book.clone(),
        records: stored.records.clone(),
        lost: stored.lost.clone(),
        ..Run::new(&deorbit)
    };
    if run.deleting.is_some() && !run.held {
        return Ok(Next::OnChange);
    }
    let started = Instant::now();
    memo.retry_after = None;
    let now = Timestamp::now();
    let (before, is_dry_run) = (run.status.phase, run.spec.dry_run);
    let (decision, client, cloud) = match plan::resting(&run, now) {
        Some(decision) => (decision, None, None),
        None => {
            let (snapshot, client, cloud) = observe(context, run, memo).await?;
            let decision = plan::plan(&context.settings, &snapshot, Timestamp::now());
            let text = status::render(&snapshot.run, &decision);
            context.runtime.status.set(page(key), text);
            (decision, client, cloud)
        }
    };
    let took = started.elapsed();
    if !context.runtime.leadership.is_leading() {
        return Err(Error::NotLeading);
    }
    let wrote = store::store(management, &deorbit, &stored, &decision).await?;
    if !is_dry_run {
        context.metrics.stored((namespace, name), before, &decision.status, &decision.tally);
        context.metrics.kept((namespace, name), &decision.records);
    }
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
    let ran = apply.run(&decision.plan, &memo.failures).await?;
    let is_partial = ran.is_partial;
    memo.record(ran);
    if wrote || !decision.plan.steps.is_empty() {
        memo.changed_at = started;
    }
    let Decision { requeue_after, .. } = decision;
    let Some(requeue_after) = requeue_after.or(is_partial.then_some(LATER)) else {
        return Ok(Next::OnChange);
    };
    let wait = pace(requeue_after, took, memo.failures_in_a_row, memo.changed_at.elapsed());
    // No worker waits meanwhile.
    Ok(Next::After(wait.max(memo.retry_after.unwrap_or_default())))
}

/// After reconciliations of which each step failed: what the target cluster or OpenStack refuses is retried, at a cost that they bear.
const REFUSED: Backoff = Backoff { base: Duration::from_secs(2), max: Duration::from_secs(32) };

/// If nothing changes, the wait grows to the time since the last change divided by this, and to [`LATER`] at most.
const PART: u32 = 10;

/// The time until the next reconciliation. It is longer for a large cluster (`took`), where nothing changes, and after failures.
fn pace(requeue_after: Duration, took: Duration, failures_in_a_row: u32, unchanged: Duration) -> Duration {
    let waits = match requeue_after.is_zero() {
        true => requeue_after,
        false => requeue_after.max(took.max((unchanged / PART).min(LATER))),
    };
    waits.max(REFUSED.delay(failures_in_a_row))
}

async fn observe(
    context: &Context,
    run: Run,
    memo: &mut Memo,
) -> Result<(Snapshot, Option<Client>, Option<Cloud>), Error> {
    // A block has the Deorbit's UID in its name: it can be lifted in any cluster. Everything else needs the identity of the target.
    let only_block = run.deleting.is_some() || run.status.phase.is_final();
    let target = match run.spec.cluster_gone {
        Some(_) => Ok(None),
        None => memo.target(context, &run.namespace, &run.spec).await.map(Some),
    };
    let (client, cluster) = match target {
        Err(NoClient::Management(error)) => return Err(error),
        Err(NoClient::Unread(why)) => (None, Err(why)),
        Ok(None) => (None, Ok(Cluster::gone())),
        Ok(Some(client)) => {
            let cluster = if only_block {
                target::block(&client, &run.uid).await.map(|block| Cluster { block, ..Cluster::default() })
            } else {
                let is_blocked = block::may_exist(&run);
                target::read(&client, &context.settings, run.spec.provider, &run.uid, is_blocked).await
            };
            let cluster = match cluster {
                Ok(cluster) if only_block => Ok(cluster),
                Ok(cluster) => match context.management_identity().await {
                    Err(error) if error.unread().is_outage() => {
                        return Err(Error::Unreadable(error.to_string()));
                    }
                    management => run.verify_identity(cluster, management.map_err(|error| error.to_string())),
                },
                Err(error) => Err(error.unread()),
            };
            (Some(client), cluster)
        }
    };
    let failures = memo.failures.clone();
    if only_block {
        return Ok((Snapshot { run, cluster, cloud: None, failures }, client, None));
    }
    if run.book.credential.is_some() {
        memo.forget_login();
    }
    let login = match run.spec.provider {
        Provider::OpenStack => memo.cloud(context, &run.namespace, &run.spec).await,
        // The API server refuses a login together with it: there, no ID is one of OpenStack.
        Provider::Any => Ok(None),
    };
    let (project, seen) = match login {
        Err(NoClient::Management(error)) => return Err(error),
        Err(NoClient::Unread(why)) => (None, Some(Err(why))),
        Ok(None) => (None, None),
        Ok(Some(project)) => {
            let seen = cloud::read(&project, &run, cluster.as_ref().ok()).await;
            let mut seen = seen
                .map_err(|error| {
                    tracing::debug!(namespace = run.namespace, name = run.name, %error, "OpenStack");
                    memo.retry_after = error.retry_after();
                    cloud::unread(&error)
                })
                .and_then(|seen| run.verify_project(seen))
                .and_then(|seen| run.verify_credential(seen));
            if let (Ok(whole), Some(asked), Phase::Inventory | Phase::Finishing) =
                (&mut seen, &run.spec.resources.routes, run.status.phase)
            {
                whole.routes = Some(routes::read(&project, asked, cluster.as_ref().ok()).await);
            }
            (Some(project), Some(seen))
        }
    };
    Ok((Snapshot { run, cluster, cloud: seen, failures }, client, project))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::SOON;

    #[test]
    fn reconciliations_become_rare_while_nothing_changes() {
        let after = |seconds| pace(SOON, Duration::ZERO, 0, Duration::from_secs(seconds));
        assert_eq!((after(0), after(20)), (SOON, SOON));
        assert_eq!(after(60), Duration::from_secs(6));
        assert_eq!(after(24 * 60 * 60), LATER);
        assert_eq!(pace(SOON, Duration::from_secs(50), 0, Duration::ZERO), Duration::from_secs(50));
    }

    #[test]
    fn the_next_phase_begins_at_once_except_after_failures() {
        let long = Duration::from_secs(600);
        assert_eq!(pace(Duration::ZERO, long, 0, long), Duration::ZERO);
        assert_eq!(pace(Duration::ZERO, Duration::ZERO, 3, long), Duration::from_secs(8));
    }
}
