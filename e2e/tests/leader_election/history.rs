//! Every version of one Lease, as the API server had them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::TryStreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client};
use tokio::task::JoinSet;

/// The versions of a Lease since it was created.
pub struct History {
    seen: Arc<Mutex<Vec<LeaseSpec>>>,
    _watch: JoinSet<()>,
}

impl History {
    /// Watches from now on; the Lease need not be there yet.
    pub fn follow(client: Client, namespace: &str, name: &str) -> History {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut watch = JoinSet::new();
        watch.spawn(follow(
            Api::namespaced(client, namespace),
            format!("metadata.name={name}"),
            seen.clone(),
        ));
        History { seen, _watch: watch }
    }

    /// All versions so far.
    pub fn specs(&self) -> Vec<LeaseSpec> {
        self.seen.lock().unwrap().clone()
    }

    /// The last version; that of a new Lease if there is none.
    pub fn last(&self) -> LeaseSpec {
        self.specs().pop().unwrap_or_default()
    }

    /// Waits until the versions are so: each one arrives here a moment after its writer has the response.
    pub async fn wait_for(&self, what: &str, holds: impl Fn(&[LeaseSpec]) -> bool) {
        e2e::natgw::wait_for(what, || async { Ok(holds(&self.specs())) }).await.unwrap();
    }

    /// Waits until the last version has this holder.
    pub async fn wait_for_holder(&self, identity: &str) {
        let holds = |specs: &[LeaseSpec]| specs.last().is_some_and(|last| holder(last) == identity);
        self.wait_for(&format!("{identity} as the last holder"), holds).await;
    }

    /// For each change of hands from one holder straight to another: the old one's last version, the new one's first.
    pub fn takeovers(&self) -> Vec<(LeaseSpec, LeaseSpec)> {
        let specs = self.specs();
        let pairs = specs.iter().zip(specs.iter().skip(1));
        pairs
            .filter(|(old, new)| {
                !holder(old).is_empty() && !holder(new).is_empty() && holder(old) != holder(new)
            })
            .map(|(old, new)| (old.clone(), new.clone()))
            .collect()
    }

    /// Asserts the invariants of every history: no contender took the Lease from a holder before the time that the
    /// holder had written was over, by the clock that both share here; transitions count the changes of hands; the time
    /// of acquisition changes with the holder, and with nothing else.
    pub fn assert_sound(&self) {
        self.assert_sound_within(Duration::ZERO);
    }

    /// The same where client-go may have taken over. It compares the record that it keeps with the one that it reads after
    /// both were cut to whole seconds, so it does not see a renewal within the second of the last one that it saw, and is
    /// early by up to a second.
    pub fn assert_sound_with_client_go(&self) {
        self.assert_sound_within(Duration::from_secs(1));
    }

    fn assert_sound_within(&self, early: Duration) {
        for (old, new) in self.takeovers() {
            let left_alone = acquired(&new).duration_since(renewed(&old)).unsigned_abs() + early;
            let promised = Duration::from_secs(old.lease_duration_seconds.unwrap().try_into().unwrap());
            assert!(
                left_alone >= promised,
                "taken over after {left_alone:?} of {promised:?}: {old:?} {new:?}"
            );
        }
        let specs = self.specs();
        for (old, new) in specs.iter().zip(specs.iter().skip(1)) {
            let (before, after) = (old.lease_transitions.unwrap_or(0), new.lease_transitions.unwrap_or(0));
            let taken = !holder(new).is_empty() && holder(old) != holder(new);
            assert_eq!(after - before, i32::from(taken), "transitions: {old:?} {new:?}");
            if holder(old) == holder(new) {
                assert_eq!(old.acquire_time, new.acquire_time, "{old:?} {new:?}");
            }
        }
    }
}

/// `holderIdentity`; empty without a holder.
pub fn holder(spec: &LeaseSpec) -> &str {
    spec.holder_identity.as_deref().unwrap_or_default()
}

/// `acquireTime`.
pub fn acquired(spec: &LeaseSpec) -> Timestamp {
    spec.acquire_time.as_ref().unwrap().0
}

/// `renewTime`.
pub fn renewed(spec: &LeaseSpec) -> Timestamp {
    spec.renew_time.as_ref().unwrap().0
}

async fn follow(api: Api<Lease>, field: String, seen: Arc<Mutex<Vec<LeaseSpec>>>) {
    // The API server ends a watch after 290 s; no test here takes that long.
    let mut version = "0".to_owned();
    loop {
        let params = WatchParams::default().fields(&field).timeout(290);
        let Ok(events) = api.watch(&params, &version).await else { return };
        let mut events = std::pin::pin!(events);
        while let Ok(Some(event)) = events.try_next().await {
            match event {
                WatchEvent::Added(lease) | WatchEvent::Modified(lease) => {
                    version = lease.metadata.resource_version.unwrap_or_default();
                    seen.lock().unwrap().extend(lease.spec);
                }
                WatchEvent::Bookmark(_) | WatchEvent::Deleted(_) | WatchEvent::Error(_) => {}
            }
        }
    }
}
