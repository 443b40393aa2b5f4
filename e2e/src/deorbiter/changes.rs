//! Waiting for changes of objects by a watch, instead of polling.

use std::fmt::Debug;
use std::time::Duration;

use futures::FutureExt as _;
use futures::stream::{self, BoxStream, StreamExt as _};
use kube::Resource;
use kube::api::Api;
use kube::runtime::{WatchStreamExt as _, watcher};
use serde::de::DeserializeOwned;

/// Changes of objects since the last call of [`Changes::next`].
pub struct Changes(BoxStream<'static, ()>);

/// The longest wait: a condition may also depend on something outside of the API server.
const LONGEST: Duration = Duration::from_secs(1);

impl Changes {
    /// Of these objects.
    pub fn of<K>(api: Api<K>) -> Changes
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    {
        Changes(watcher(api, watcher::Config::default()).default_backoff().map(drop).boxed())
    }

    /// Of others as well.
    #[must_use]
    pub fn and(self, others: Changes) -> Changes {
        Changes(stream::select(self.0, others.0).boxed())
    }

    /// Waits until something has changed since the last call, a second at most.
    pub async fn next(&mut self) {
        let _ = tokio::time::timeout(LONGEST, self.0.next()).await;
        // One check is enough for all of them.
        while self.0.next().now_or_never().flatten().is_some() {}
    }
}
