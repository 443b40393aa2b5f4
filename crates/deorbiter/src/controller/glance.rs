//! Between two reconciles that are some time apart, as those of a large cluster are, or where nothing has changed for long: whether
//! OpenStack still has what is waited for, by a request or two. A reconcile is made earlier than its pace wants once that is in
//! doubt, and never later.

use std::time::{Duration, Instant};

use common::api::deorbit::{Kind, Phase};
use common::cloud::openstack::{Cloud, Error};

use crate::observe::snapshot::Snapshot;
use crate::plan::{Decision, SOON};

/// Things that are asked about. Once all of them are gone, so are most of the others, whatever order they go in.
const SAMPLE: usize = 8;

/// The wait for a reconcile that is some time off.
pub struct Glance {
    cloud: Cloud,
    reconcile_at: Instant,
    /// What was there when last looked at, by kind and ID.
    sample: Vec<(Kind, String)>,
}

impl Glance {
    /// Of what the last reconcile saw; `wait`: until the next one. None where that is soon enough, or nothing is waited for that
    /// ends in OpenStack.
    pub fn new(cloud: Cloud, snapshot: &Snapshot, decision: &Decision, wait: Duration) -> Option<Glance> {
        let Some(Ok(seen)) = &snapshot.cloud else { return None };
        if wait <= SOON || !matches!(decision.status.phase, Phase::Wait | Phase::Verify | Phase::Sweep) {
            return None;
        }
        let there: Vec<(Kind, &String)> = decision
            .records
            .iter()
            // What is shared stays, and what goes along with a load balancer goes when that does: a login needs no right to
            // look at one of those.
            .filter(|record| !matches!(record.kind, Kind::FloatingIP | Kind::SecurityGroup))
            .filter(|record| record.kept.is_none() && !record.shared && seen.shows(record))
            .filter_map(|record| Some((record.kind, record.id.as_ref()?)))
            .collect();
        let apart = there.len().div_ceil(SAMPLE).max(1);
        let sample: Vec<(Kind, String)> =
            there.into_iter().step_by(apart).map(|(kind, id)| (kind, id.clone())).collect();
        (!sample.is_empty()).then(|| Glance { cloud, reconcile_at: Instant::now() + wait, sample })
    }

    /// The wait for the next look; None: it is time for a reconcile. Who is not told is none the wiser, and waits for the reconcile, which
    /// reports what OpenStack refuses.
    pub async fn look(&mut self) -> Option<Duration> {
        while let Some((kind, id)) = self.sample.last()
            && Instant::now() < self.reconcile_at
        {
            match is_there(&self.cloud, *kind, id).await {
                Ok(true) => return Some(self.next()),
                Ok(false) => drop(self.sample.pop()),
                Err(_) => {
                    let wait = self.reconcile_at.saturating_duration_since(Instant::now());
                    return Some(wait).filter(|wait| !wait.is_zero());
                }
            }
        }
        None
    }

    /// The wait for the next look.
    #[must_use]
    pub fn next(&self) -> Duration {
        SOON.min(self.reconcile_at.saturating_duration_since(Instant::now()))
    }
}

async fn is_there(cloud: &Cloud, kind: Kind, id: &str) -> Result<bool, Error> {
    Ok(match kind {
        Kind::Volume => cloud.volume(id).await?.is_some(),
        Kind::Snapshot => cloud.snapshot(id).await?.is_some(),
        Kind::LoadBalancer => cloud.load_balancer(id).await?.is_some(),
        // No sample.
        Kind::FloatingIP | Kind::SecurityGroup => false,
    })
}
