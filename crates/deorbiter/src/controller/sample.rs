//! Polls a few of the things that a run waits for, between two reconciliations that are some time apart. Reconciliations are rare in
//! a large cluster and where nothing changes for long. A poll is a request or two; once all things of the sample are gone, the
//! reconciliation comes at once. A poll never delays the reconciliation.

use std::time::{Duration, Instant};

use common::api::deorbit::{Kind, Phase};
use common::cloud::openstack::{Cloud, Error};

use crate::observe::snapshot::Snapshot;
use crate::plan::{Decision, SOON};

/// Things that are polled. When all of them are gone, most of the others are gone too, in whatever order they go.
const SIZE: usize = 8;

/// See the module.
pub struct Sample {
    cloud: Cloud,
    reconcile_at: Instant,
    /// The polled resources that existed at the last poll, by kind and ID.
    things: Vec<(Kind, String)>,
}

impl Sample {
    /// A sample of what the last reconciliation observed; `wait` is the time until the next one. None where that is soon enough, or
    /// where the run waits for nothing in OpenStack.
    pub fn new(cloud: Cloud, snapshot: &Snapshot, decision: &Decision, wait: Duration) -> Option<Sample> {
        let Some(Ok(seen)) = &snapshot.cloud else { return None };
        if wait <= SOON || !matches!(decision.status.phase, Phase::Wait | Phase::Verify | Phase::Sweep) {
            return None;
        }
        let remaining: Vec<(Kind, &String)> = decision
            .records
            .iter()
            // A shared thing stays. A floating IP or a security group goes with its load balancer, and the login may have no right
            // to read it.
            .filter(|record| !matches!(record.kind, Kind::FloatingIP | Kind::SecurityGroup))
            .filter(|record| record.kept.is_none() && !record.shared && seen.shows(record))
            .filter_map(|record| Some((record.kind, record.id.as_ref()?)))
            .collect();
        let step = remaining.len().div_ceil(SIZE).max(1);
        let things: Vec<(Kind, String)> =
            remaining.into_iter().step_by(step).map(|(kind, id)| (kind, id.clone())).collect();
        (!things.is_empty()).then(|| Sample { cloud, reconcile_at: Instant::now() + wait, things })
    }

    /// Polls until one thing exists. Returns the time until the next poll; None: it is time for the reconciliation. A failed poll
    /// proves nothing, so polling ends, and the reconciliation comes when it is due: that one reports the failure.
    pub async fn poll(&mut self) -> Option<Duration> {
        while let Some((kind, id)) = self.things.last()
            && Instant::now() < self.reconcile_at
        {
            match exists(&self.cloud, *kind, id).await {
                Ok(true) => return Some(self.next_poll()),
                Ok(false) => drop(self.things.pop()),
                Err(_) => {
                    let wait = self.reconcile_at.saturating_duration_since(Instant::now());
                    return Some(wait).filter(|wait| !wait.is_zero());
                }
            }
        }
        None
    }

    /// The time until the next poll.
    #[must_use]
    pub fn next_poll(&self) -> Duration {
        SOON.min(self.reconcile_at.saturating_duration_since(Instant::now()))
    }
}

async fn exists(cloud: &Cloud, kind: Kind, id: &str) -> Result<bool, Error> {
    Ok(match kind {
        Kind::Volume => cloud.volume(id).await?.is_some(),
        Kind::Snapshot => cloud.snapshot(id).await?.is_some(),
        Kind::LoadBalancer => cloud.load_balancer(id).await?.is_some(),
        // Never part of a sample.
        Kind::FloatingIP | Kind::SecurityGroup => false,
    })
}
