//! Between two walks of a large cluster, whose lists take seconds: whether it is still full of what is waited for, by a
//! request or two. A walk is made earlier than its pace wants once that is in doubt, and never later.

use std::time::{Duration, Instant};

use common::api::deorbit::{Kind, Phase};
use common::cloud::openstack::Cloud;

use crate::observe::snapshot::Snapshot;
use crate::plan::{Decision, SOON};

/// Volumes that are asked about. Once all of them are gone, so are most of the others, whatever order they go in.
const WITNESSES: usize = 8;

/// The wait for a walk that is some time off.
pub struct Glance {
    cloud: Cloud,
    walk_at: Instant,
    /// IDs of volumes that were there when last looked at.
    witnesses: Vec<String>,
}

impl Glance {
    /// Of what the last walk saw; `wait`: until the next one. None where that is soon enough, or no volume is waited for.
    pub fn new(cloud: Cloud, snapshot: &Snapshot, decision: &Decision, wait: Duration) -> Option<Glance> {
        let Some(Ok(seen)) = &snapshot.cloud else { return None };
        if wait <= SOON || !matches!(decision.status.phase, Phase::Wait | Phase::Verify) {
            return None;
        }
        let there: Vec<&String> = decision
            .records
            .iter()
            .filter(|record| record.kind == Kind::Volume && record.kept.is_none())
            .filter_map(|record| record.id.as_ref().filter(|id| seen.volumes.contains_key(*id)))
            .collect();
        let apart = there.len().div_ceil(WITNESSES).max(1);
        let witnesses: Vec<String> = there.into_iter().step_by(apart).cloned().collect();
        (!witnesses.is_empty()).then(|| Glance { cloud, walk_at: Instant::now() + wait, witnesses })
    }

    /// The wait for the next look; None: it is time for a walk. What OpenStack refuses to say is the walk's to report.
    pub async fn look(&mut self) -> Option<Duration> {
        while let Some(witness) = self.witnesses.last()
            && Instant::now() < self.walk_at
        {
            if self.cloud.volume(witness).await.ok()?.is_some() {
                return Some(self.next());
            }
            self.witnesses.pop();
        }
        None
    }

    /// The wait for the next look.
    #[must_use]
    pub fn next(&self) -> Duration {
        SOON.min(self.walk_at.saturating_duration_since(Instant::now()))
    }
}
