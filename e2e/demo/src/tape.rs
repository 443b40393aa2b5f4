//! What happened when: natgw's own log lines, the cluster's Nodes and Jobs, the cloud's route, in the order of time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use e2e::hetzner::Hetzner;
use e2e::program::Program;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use natgw::names;
use serde_json::Value;
use tokio::task::JoinSet;

/// A Node as `kubectl get nodes` shows it, and what natgw reads and writes there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) ready: bool,
    pub(crate) cordoned: bool,
    pub(crate) role: bool,
    /// The floating-IP label.
    pub(crate) label: Option<String>,
    /// The setup annotation.
    pub(crate) setup: Option<String>,
    /// Whether it is set up as a client of the gateway.
    pub(crate) client: bool,
    /// A Job that was begun and not yet recorded.
    pub(crate) pending: Option<String>,
}

/// The cluster and the cloud as they are now.
#[derive(Clone, Debug)]
pub(crate) struct Now {
    pub(crate) nodes: BTreeMap<String, Seen>,
    pub(crate) route: Option<Ipv4Addr>,
}

/// What kind of thing happened, where a chapter asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The network's default route is so.
    Route(Option<Ipv4Addr>),
    /// The node controller's word about a Node.
    Ready(String, bool),
    /// A natgw leads from now on.
    Leads,
    /// natgw did something: the name of the action.
    Act(String),
    /// Anything else.
    Other,
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) at: Instant,
    pub(crate) who: String,
    pub(crate) what: What,
    pub(crate) text: String,
    /// Why natgw did it: the word that Events and metrics have for it, and the sentence.
    pub(crate) because: Option<(String, String)>,
}

/// Collects what happened.
pub(crate) struct Tape {
    clock: Clock,
    hetzner: Arc<Hetzner>,
    network: u64,
    names: BTreeMap<Ipv4Addr, String>,
    routes: usize,
    programs: Vec<Source>,
    cluster: Arc<Mutex<Cluster>>,
    _watches: JoinSet<()>,
}

struct Source {
    who: String,
    program: Arc<Program>,
    lines: usize,
}

/// One moment on both clocks: programs tell the time of day, everything else is measured.
#[derive(Clone, Copy)]
struct Clock {
    instant: Instant,
    timestamp: Timestamp,
}

#[derive(Default)]
struct Cluster {
    nodes: BTreeMap<String, Seen>,
    done: BTreeSet<String>,
    entries: Vec<Entry>,
}

impl Tape {
    /// Starts to watch. `names` are the Nodes by their addresses in the network.
    pub(crate) fn new(
        client: &Client,
        namespace: &str,
        hetzner: Arc<Hetzner>,
        network: u64,
        names: BTreeMap<Ipv4Addr, String>,
    ) -> Self {
        let cluster = Arc::new(Mutex::new(Cluster::default()));
        let mut watches = JoinSet::new();
        let (nodes, jobs) =
            (Api::<Node>::all(client.clone()), Api::<Job>::namespaced(client.clone(), namespace));
        let shared = cluster.clone();
        watches.spawn(async move {
            let mut nodes = std::pin::pin!(watcher(nodes, watcher::Config::default()).default_backoff());
            while let Some(event) = nodes.next().await {
                match event {
                    Ok(watcher::Event::Apply(node) | watcher::Event::InitApply(node)) => {
                        lock(&shared).saw_node(&node);
                    }
                    Ok(watcher::Event::Delete(node)) => drop(lock(&shared).nodes.remove(&node.name_any())),
                    Ok(watcher::Event::Init | watcher::Event::InitDone) | Err(_) => {}
                }
            }
        });
        let shared = cluster.clone();
        watches.spawn(async move {
            let mut jobs = std::pin::pin!(watcher(jobs, watcher::Config::default()).default_backoff());
            while let Some(event) = jobs.next().await {
                if let Ok(watcher::Event::Apply(job) | watcher::Event::InitApply(job)) = event {
                    lock(&shared).saw_job(&job);
                }
            }
        });
        let routes = hetzner.route_history(network).len();
        Tape {
            clock: Clock { instant: Instant::now(), timestamp: Timestamp::now() },
            hetzner,
            network,
            names,
            routes,
            programs: Vec::new(),
            cluster,
            _watches: watches,
        }
    }

    /// Listens to a program from its first line on.
    pub(crate) fn listen(&mut self, who: &str, program: Arc<Program>) {
        self.programs.push(Source { who: who.to_owned(), program, lines: 0 });
    }

    /// Things as they are.
    pub(crate) fn now(&self) -> Now {
        Now { nodes: lock(&self.cluster).nodes.clone(), route: self.hetzner.default_gateway(self.network) }
    }

    /// What is new since it was asked last, oldest first.
    pub(crate) fn collect(&mut self) -> Vec<Entry> {
        let mut entries = std::mem::take(&mut lock(&self.cluster).entries);
        let history = self.hetzner.route_history(self.network);
        for change in history.iter().skip(self.routes) {
            let text = match change.gateway {
                Some(ip) => format!("0.0.0.0/0 of the network goes to {ip}, {}", self.name_of(ip)),
                None => "0.0.0.0/0 of the network is removed".to_owned(),
            };
            let what = What::Route(change.gateway);
            entries.push(Entry { at: change.at, who: "hetzner".into(), what, text, because: None });
        }
        self.routes = history.len();
        let clock = self.clock;
        for source in &mut self.programs {
            let lines = source.program.output().lines();
            entries.extend(lines.iter().skip(source.lines).filter_map(|line| clock.entry(&source.who, line)));
            source.lines = lines.len();
        }
        entries.sort_by_key(|entry| entry.at);
        entries
    }

    /// The last lines of every natgw that was started, for a person who has to find out what went wrong.
    pub(crate) fn tails(&self, lines: usize) -> Vec<(String, Vec<String>)> {
        let tail = |source: &Source| {
            let all = source.program.output().lines();
            (source.who.clone(), all.iter().skip(all.len().saturating_sub(lines)).cloned().collect())
        };
        self.programs.iter().map(tail).collect()
    }

    /// The Node at an address of the network.
    pub(crate) fn name_of(&self, ip: Ipv4Addr) -> &str {
        self.names.get(&ip).map_or("no Node", String::as_str)
    }
}

impl Clock {
    /// A line of natgw's JSON log, if it is one that a person should see: an act, a problem, a failure, a change of leader.
    fn entry(self, who: &str, line: &str) -> Option<Entry> {
        let line: Value = serde_json::from_str(line).ok()?;
        let field = |name: &str| line.get(name).and_then(Value::as_str);
        let (level, text) = (field("level")?, field("msg")?);
        let at = self.instant_of(field("ts")?.parse().ok()?);
        let entry = |what, text: String, because: Option<(String, String)>| {
            Some(Entry { at, who: who.to_owned(), what, text, because })
        };
        match (level, field("action"), field("because")) {
            ("info", Some(action), Some(because)) => entry(
                What::Act(action.to_owned()),
                text.to_owned(),
                Some((field("reason").unwrap_or_default().to_owned(), because.to_owned())),
            ),
            ("info", ..) if text == "became leader" => {
                entry(What::Leads, "leads: it holds the Lease".into(), None)
            }
            ("info", ..) if text == "released the lease" => {
                entry(What::Other, "has given its Lease back".into(), None)
            }
            ("warn" | "error", ..) => {
                let error = field("error").map(|error| format!(": {error}")).unwrap_or_default();
                entry(What::Other, format!("{level}: {text}{error}"), None)
            }
            _ => None,
        }
    }

    fn instant_of(self, timestamp: Timestamp) -> Instant {
        let since = timestamp.duration_since(self.timestamp);
        let apart = since.unsigned_abs();
        if since.is_negative() {
            self.instant.checked_sub(apart).unwrap_or(self.instant)
        } else {
            self.instant + apart
        }
    }
}

impl Cluster {
    fn saw_node(&mut self, node: &Node) {
        let (name, seen) = (node.name_any(), Seen::of(node));
        let before = self.nodes.insert(name.clone(), seen.clone());
        if before.is_some_and(|before| before.ready != seen.ready) {
            let text = if seen.ready {
                format!("the node controller calls {name} Ready")
            } else {
                format!("the node controller calls {name} NotReady: nothing was heard of it")
            };
            self.saw(What::Ready(name, seen.ready), text);
        }
    }

    fn saw_job(&mut self, job: &Job) {
        let status = job.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let ended = conditions
            .iter()
            .find(|one| one.status == "True" && ["Complete", "Failed"].contains(&&*one.type_));
        let Some(ended) = ended else { return };
        if self.done.insert(job.uid().unwrap_or_default()) {
            let how = if ended.type_ == "Complete" { "has succeeded" } else { "has failed" };
            let node = job.annotations().get(names::NODE_NAME_ANNOTATION).map_or("?", String::as_str);
            let task = job.labels().get(names::TYPE_LABEL).map_or("?", String::as_str);
            self.saw(What::Other, format!("the {task} Job on {node} {how}"));
        }
    }

    fn saw(&mut self, what: What, text: String) {
        self.entries.push(Entry { at: Instant::now(), who: "cluster".into(), what, text, because: None });
    }
}

impl Seen {
    fn of(node: &Node) -> Self {
        let conditions =
            node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let annotation = |name: &str| node.annotations().get(name).cloned();
        Seen {
            ready: conditions.iter().any(|one| one.type_ == "Ready" && one.status == "True"),
            cordoned: node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default(),
            role: node.labels().contains_key(names::ROLE_LABEL),
            label: node.labels().get(names::FLOATING_IP_LABEL).cloned(),
            setup: annotation(names::SETUP_ANNOTATION),
            client: annotation(names::CLIENT_ANNOTATION).is_some(),
            pending: annotation(names::PENDING_ANNOTATION),
        }
    }
}

/// How long after `cause` it happened; zero for what the clocks put before it.
pub(crate) fn after(cause: Instant, at: Instant) -> Duration {
    at.saturating_duration_since(cause)
}

fn lock(cluster: &Mutex<Cluster>) -> MutexGuard<'_, Cluster> {
    cluster.lock().unwrap_or_else(PoisonError::into_inner)
}
