//! Garbage collection: apinet objects without a source object, for example because its finalizer was removed by hand.
//!
//! An object is deleted only if it has the mark of this source cluster, the API server of the source cluster says that there is no
//! object with the UID that it names, and it still has the UID that was read. A NetworkInterface is released instead, because
//! the MachinePool has made it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use common::backoff::Backoff;
use common::cache::{Cache, Change, ObjectKey};
use common::controller::{Controller, Next, Queue, Reconciler};
use common::events::Events;
use common::executor::{ActionError as _, Executor};
use common::plan::Step;
use common::runtime::Runtime;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use crate::api::network_policy::SourceNetworkPolicy;
use crate::api::source;
use crate::apply::Apply;
use crate::caches::Caches;
use crate::config::Config;
use crate::error::Error;
use crate::mapping::Mapping;
use crate::names::Kind;
use crate::origin::{Keys, Origin};
use crate::plan::{self, Act, Action, Reason};

/// A read of the source cluster for each object; more at a time would hold up the other controllers.
const MAX_CONCURRENT_RECONCILES: usize = 4;

const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(300) };

/// An apinet object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Of its source object.
    kind: Kind,
    /// metadata.name
    name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "apinet object {} of a {}", self.name, self.kind.name())
    }
}

/// Reconciles one apinet object.
pub struct Garbage {
    runtime: Runtime,
    apply: Arc<Apply>,
}

/// The controller of all kinds.
#[must_use]
pub fn controller(runtime: &Runtime, apply: &Arc<Apply>) -> Controller<Garbage> {
    let garbage = Garbage { runtime: runtime.clone(), apply: Arc::clone(apply) };
    let controller = Controller::new(runtime, "garbage-collector", garbage)
        .max_concurrent_reconciles(MAX_CONCURRENT_RECONCILES)
        .backoff(BACKOFF);
    let controller = watches::<source::Network>(controller, apply);
    let controller = watches::<source::NetworkInterface>(controller, apply);
    let controller = watches::<source::VirtualIp>(controller, apply);
    let controller = watches::<source::LoadBalancer>(controller, apply);
    let controller = watches::<source::NatGateway>(controller, apply);
    watches::<SourceNetworkPolicy>(controller, apply)
}

fn watches<M: Mapping>(controller: Controller<Garbage>, apply: &Arc<Apply>) -> Controller<Garbage> {
    let Some((sources, counterparts)) = M::caches(&apply.caches) else { return controller };
    let (of_counterpart, of_source) = (Arc::clone(apply), Arc::clone(apply));
    controller
        .watches(counterparts, move |change, queue| {
            let object = change.object();
            let is_deleted = matches!(change, Change::Deleted(_));
            if !is_deleted && is_candidate::<M>(&of_counterpart.config, &of_counterpart.caches, object.meta())
            {
                add::<M>(queue, object.meta());
            }
        })
        .watches(sources, move |change, queue| {
            if let Change::Deleted(source) = change {
                counterparts_of::<M>(&of_source, source.meta()).iter().for_each(|one| add::<M>(queue, one));
            }
        })
}

fn add<M: Mapping>(queue: &Queue<Key>, metadata: &ObjectMeta) {
    queue.add(Key { kind: M::KIND, name: metadata.name.clone().unwrap_or_default() });
}

/// The apinet objects that name a source object.
fn counterparts_of<M: Mapping>(apply: &Apply, source: &ObjectMeta) -> Vec<ObjectMeta> {
    let uid = source.uid.as_deref().unwrap_or_default();
    if M::KIND == Kind::NetworkInterface {
        let interfaces = apply.caches.apinet.network_interfaces.indexed(crate::caches::BY_ORIGIN, uid);
        return interfaces.iter().map(|one| one.metadata.clone()).collect();
    }
    let key = ObjectKey::new(&apply.config.namespace, uid);
    let counterpart = M::counterparts(&apply.caches).and_then(|cache| cache.get(&key));
    counterpart.iter().map(|one| one.meta().clone()).collect()
}

/// Whether an apinet object belongs to this program, and the source object that it names is not cached.
fn is_candidate<M: Mapping>(config: &Config, caches: &Caches, metadata: &ObjectMeta) -> bool {
    let Some(origin) = own_origin::<M>(config, metadata) else { return false };
    let source =
        M::sources(caches).and_then(|cache| cache.get(&ObjectKey::new(&origin.namespace, &origin.name)));
    source.is_none_or(|source| source.meta().uid.as_ref() != Some(&origin.uid))
}

/// The source object that an apinet object of this program names, if it is in a namespace that this program watches: there may be no
/// permission to read another one, and another apinetlet of the same source cluster may map it.
fn own_origin<M: Mapping>(config: &Config, metadata: &ObjectMeta) -> Option<Origin> {
    let origin = Keys::of(config.flavor, M::KIND).read(metadata)?;
    let mark = metadata.labels.as_ref().and_then(|labels| labels.get(&config.flavor.source_cluster_label()));
    let is_own = match mark {
        Some(mark) => Some(mark) == config.source_cluster.as_ref(),
        None => config.adopt_unmarked,
    };
    let is_watched = config.watched_namespace.as_ref().is_none_or(|watched| *watched == origin.namespace);
    (is_own && is_watched).then_some(origin)
}

impl Reconciler for Garbage {
    type Key = Key;
    type Memo = Events;
    type Error = Error;

    fn memo(&self, _: &Key) -> Events {
        self.runtime.events.log_only()
    }

    async fn reconcile(&self, key: &Key, events: &mut Events) -> Result<Next, Error> {
        match key.kind {
            Kind::Network => self.collect::<source::Network>(key, events).await,
            Kind::NetworkInterface => self.collect::<source::NetworkInterface>(key, events).await,
            Kind::VirtualIp => self.collect::<source::VirtualIp>(key, events).await,
            Kind::LoadBalancer => self.collect::<source::LoadBalancer>(key, events).await,
            Kind::NatGateway => self.collect::<source::NatGateway>(key, events).await,
            Kind::NetworkPolicy => self.collect::<SourceNetworkPolicy>(key, events).await,
        }
    }

    fn is_outdated(error: &Error) -> bool {
        error.is_outdated()
    }
}

impl Garbage {
    async fn collect<M: Mapping>(&self, key: &Key, events: &Events) -> Result<Next, Error> {
        let Some((origin, step)) = step::<M>(&self.apply, &key.name).await? else { return Ok(Next::Gone) };
        let source = ObjectKey::new(&origin.namespace, &origin.name);
        let executor = Executor { events, ..Executor::from(&self.runtime) };
        executor.execute(&step, self.apply.run::<M>(&source, &step.action.act)).await?;
        Ok(Next::Gone)
    }
}

/// The deletion or the release of an apinet object, if it is garbage, and the source object that it names.
async fn step<M: Mapping>(apply: &Apply, name: &str) -> Result<Option<(Origin, Step<Action>)>, Error> {
    let Apply { config, caches, source, .. } = apply;
    let Some(cache) = M::counterparts(caches) else { return Ok(None) };
    let Some(object) = cache.get(&ObjectKey::new(&config.namespace, name)) else { return Ok(None) };
    let metadata = object.meta();
    let Some(origin) = own_origin::<M>(config, metadata) else { return Ok(None) };
    if metadata.deletion_timestamp.is_some() || !is_candidate::<M>(config, caches, metadata) {
        return Ok(None);
    }
    let observed = source.api::<M>(&origin.namespace).get_metadata_opt(&origin.name).await;
    let observed = observed.map_err(Error::Kubernetes)?;
    if observed.is_some_and(|observed| observed.metadata.uid.as_ref() == Some(&origin.uid)) {
        return Ok(None);
    }
    let act = match M::KIND {
        Kind::NetworkInterface => plan::network_interface::release(config, metadata),
        kind => {
            let uid = metadata.uid.clone().unwrap_or_default();
            Act::Delete { kind, name: name.to_owned(), uid }
        }
    };
    let regarding = plan::regarding_origin(config.flavor, M::KIND, &origin);
    let because = Reason::SourceGone(regarding.to_string());
    Ok(Some((origin, Step { action: Action { source: regarding, act }, because })))
}

/// The steps of a run for the counterparts of a kind that are garbage now.
///
/// # Errors
/// The source cluster does not respond.
pub async fn steps<M: Mapping>(apply: &Apply) -> Result<Vec<Step<Action>>, Error> {
    let mut steps = Vec::new();
    for key in M::counterparts(&apply.caches).map(Cache::keys).unwrap_or_default() {
        steps.extend(step::<M>(apply, key.name()).await?.map(|(_, step)| step));
    }
    Ok(steps)
}

/// Whether any object of the caches has the mark of another source cluster; its name, if so.
#[must_use]
pub fn foreign(config: &Config, caches: &Caches) -> Option<(String, String)> {
    foreign_of::<source::Network>(config, caches)
        .or_else(|| foreign_of::<source::NetworkInterface>(config, caches))
        .or_else(|| foreign_of::<source::VirtualIp>(config, caches))
        .or_else(|| foreign_of::<source::LoadBalancer>(config, caches))
        .or_else(|| foreign_of::<source::NatGateway>(config, caches))
        .or_else(|| foreign_of::<SourceNetworkPolicy>(config, caches))
}

fn foreign_of<M: Mapping>(config: &Config, caches: &Caches) -> Option<(String, String)> {
    let label = config.flavor.source_cluster_label();
    let kind = M::Counterpart::kind(&config.flavor);
    M::counterparts(caches)?.objects().find_map(|one| {
        let mark = one.meta().labels.as_ref()?.get(&label)?;
        let is_foreign = Some(mark) != config.source_cluster.as_ref();
        is_foreign
            .then(|| (format!("{kind} {}", one.meta().name.as_deref().unwrap_or_default()), mark.clone()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Flavor;

    #[test]
    fn an_object_of_a_namespace_that_is_not_watched_is_no_garbage() {
        let ours = Config { source_cluster: Some("ours".into()), ..Config::new(Flavor::Ironcore, "apinet") };
        let origin = Origin { uid: "u1".into(), namespace: "team".into(), name: "net".into() };
        let mut written = Keys::of(ours.flavor, Kind::Network).write(&origin, ours.layout);
        written.labels.insert(ours.flavor.source_cluster_label(), "ours".into());
        let metadata = ObjectMeta {
            labels: Some(written.labels),
            annotations: Some(written.annotations),
            ..ObjectMeta::default()
        };
        for (watched, is_own) in [(None, true), (Some("team"), true), (Some("other"), false)] {
            let config = Config { watched_namespace: watched.map(str::to_owned), ..ours.clone() };
            assert_eq!(own_origin::<source::Network>(&config, &metadata).is_some(), is_own, "{watched:?}");
        }
    }
}
