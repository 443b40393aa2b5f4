//! Hears when a Node goes, so that its route is looked at then and not an interval later. What it misses, the interval finds: no
//! pass waits for it, and no failure of it is one of a pass.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use common::api::routegc::NodesFrom;
use common::cluster::error_chain;
use common::runtime::Runtime;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt as _};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::client;
use crate::home::Home;

/// After a watch that could not be begun or broke, doubled with each further one: an API server restarts in less.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// A watch that lasted so long was no failure to begin one.
const HELD: Duration = Duration::from_secs(60);
/// A right that is missing is not given more often.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
/// The API server ends a watch after five minutes at the latest; one that is silent for longer leads nowhere.
const SILENCE: Duration = Duration::from_secs(600);

/// The watches of the policies that know their Nodes.
pub struct Departures {
    runtime: Runtime,
    changed: Arc<Notify>,
    gone: Arc<Mutex<BTreeSet<Home>>>,
    watches: BTreeMap<Home, Watch>,
}

struct Watch {
    from: NodesFrom,
    task: JoinHandle<()>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Departures {
    /// `changed` is told of each.
    #[must_use]
    pub fn new(runtime: Runtime, changed: Arc<Notify>) -> Departures {
        Departures { runtime, changed, gone: Arc::default(), watches: BTreeMap::new() }
    }

    /// Listens for these policies and no others.
    pub fn listen(&mut self, wanted: BTreeMap<Home, NodesFrom>) {
        self.watches.retain(|home, watch| wanted.get(home) == Some(&watch.from));
        for (home, from) in wanted {
            if self.watches.contains_key(&home) {
                continue;
            }
            let (gone, changed, of) = (Arc::clone(&self.gone), Arc::clone(&self.changed), home.clone());
            let tell = move || {
                gone.lock().unwrap_or_else(PoisonError::into_inner).insert(of.clone());
                changed.notify_one();
            };
            let (runtime, of) = (self.runtime.clone(), from.clone());
            let connect = move || {
                let (runtime, from) = (runtime.clone(), of.clone());
                async move { client(&runtime, &from).await }
            };
            let task = tokio::spawn(follow(connect, tell));
            self.watches.insert(home, Watch { from, task });
        }
    }

    /// The policies of whose clusters a Node has gone since this was asked last.
    pub fn take(&self) -> BTreeSet<Home> {
        std::mem::take(&mut *self.gone.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Follows the Nodes for ever; the kubeconfig is read again for each watch that is begun anew.
async fn follow<C: Future<Output = Result<kube::Client, String>>>(connect: impl Fn() -> C, gone: impl Fn()) {
    let mut known = Known::default();
    let mut wait = FIRST_WAIT;
    loop {
        let why = match connect().await {
            Ok(client) => {
                let (began, mut heard) = (Instant::now(), false);
                let why = watch(client, &mut known, &gone, &mut heard).await;
                // Whoever may list Nodes and not watch them would else be asked for all of them each second.
                if heard || began.elapsed() >= HELD {
                    wait = FIRST_WAIT;
                }
                why
            }
            Err(why) => why,
        };
        tracing::info!(why, again_in = ?wait, "Nodes cannot be watched: until then passes are made at the interval only");
        tokio::time::sleep(wait).await;
        wait = wait.saturating_mul(2).min(LONGEST_WAIT);
    }
}

/// Follows the Nodes until the watch breaks; why it did. `heard`: it told of a change, not just the list that it begins with.
async fn watch(client: kube::Client, known: &mut Known, gone: &impl Fn(), heard: &mut bool) -> String {
    // Names are enough; kubelets write the rest of a Node all the time.
    let api = Api::<PartialObjectMeta<Node>>::all(client);
    let mut events = pin!(watcher(api, watcher::Config::default()));
    loop {
        match tokio::time::timeout(SILENCE, events.next()).await {
            Ok(Some(Ok(event))) => {
                *heard |= matches!(event, Event::Apply(_) | Event::Delete(_));
                if known.after(event) {
                    gone();
                }
            }
            Ok(Some(Err(error))) => return error_chain(&error),
            Ok(None) => return "the watch ended".to_owned(),
            Err(_) => return format!("nothing was heard for {} s", SILENCE.as_secs()),
        }
    }
}

/// The Nodes that there are, by UID: one that is made again under its name is another one.
#[derive(Debug, Default)]
struct Known {
    nodes: BTreeSet<String>,
    listed: BTreeSet<String>,
}

impl Known {
    /// Takes an event over; whether a Node has gone.
    fn after(&mut self, event: Event<PartialObjectMeta<Node>>) -> bool {
        let id = |node: &PartialObjectMeta<Node>| node.uid().unwrap_or_else(|| node.name_any());
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(node) => _ = self.listed.insert(id(&node)),
            // What went while nobody listened is missing in the list.
            Event::InitDone => {
                let before = std::mem::replace(&mut self.nodes, std::mem::take(&mut self.listed));
                return !before.is_subset(&self.nodes);
            }
            Event::Apply(node) => _ = self.nodes.insert(id(&node)),
            Event::Delete(node) => {
                self.nodes.remove(&id(&node));
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::client::Body;

    use super::*;

    fn node(uid: &str) -> PartialObjectMeta<Node> {
        let mut node = PartialObjectMeta::<Node>::default();
        node.metadata.name = Some("node".to_owned());
        node.metadata.uid = Some(uid.to_owned());
        node
    }

    /// The right to list Nodes without that to watch them: in an hour, all Nodes are read a few times and not each second.
    #[tokio::test(start_paused = true)]
    async fn a_watch_that_is_refused_is_begun_less_and_less_often() {
        let lists = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&lists);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let watch = request.uri().query().unwrap_or_default().contains("watch=true");
            count.fetch_add(usize::from(!watch), Ordering::Relaxed);
            let (code, body) = if watch {
                let forbidden = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"no","reason":"Forbidden","code":403}"#;
                (403, forbidden)
            } else {
                (
                    200,
                    r#"{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}"#,
                )
            };
            let answer = http::Response::builder().status(code).body(Body::from(body.as_bytes().to_vec()));
            std::future::ready(answer)
        });
        let client = kube::Client::new(service, "default");
        let endless = follow(move || std::future::ready(Ok(client.clone())), || {});
        assert!(tokio::time::timeout(Duration::from_secs(3600), endless).await.is_err());
        let lists = lists.load(Ordering::Relaxed);
        assert!((10..30).contains(&lists), "{lists} lists");
    }

    #[test]
    fn a_node_goes_by_an_event_or_while_nobody_listens() {
        let mut known = Known::default();
        let list = |known: &mut Known, uids: &[&str]| {
            let mut gone = known.after(Event::Init);
            for uid in uids {
                gone |= known.after(Event::InitApply(node(uid)));
            }
            gone | known.after(Event::InitDone)
        };
        assert!(!list(&mut known, &["a", "b"]), "the first list has nobody missing");
        assert!(!known.after(Event::Apply(node("c"))) && !known.after(Event::Apply(node("a"))));
        assert!(known.after(Event::Delete(node("c"))));
        assert!(!list(&mut known, &["a", "b"]));
        assert!(list(&mut known, &["a"]), "b went meanwhile");
        assert!(list(&mut known, &["d"]), "of the same name, but another");
    }
}
