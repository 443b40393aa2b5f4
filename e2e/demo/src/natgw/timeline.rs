//! The events of natgw's demo: natgw's log lines, the cluster's Nodes and Jobs, and the cloud's route, in the order of
//! time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use e2e::hetzner::Hetzner;
use e2e::program::Program;
use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt};
use natgw::names;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::JoinSet;

use super::environment::{Environment, NAMESPACE, NODES};

/// The state of a Node that natgw reads and writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeState {
    pub(super) ready: bool,
    pub(super) cordoned: bool,
    pub(super) role: bool,
    /// The floating-IP label.
    pub(super) label: Option<String>,
    /// The setup annotation.
    pub(super) setup: Option<String>,
    /// It is set up as a client of the gateway.
    pub(super) client: bool,
    /// A Job was started and its result is not recorded yet.
    pub(super) pending: bool,
}

/// The cluster and the cloud as they are now.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) nodes: BTreeMap<String, NodeState>,
    pub(super) route: Option<Ipv4Addr>,
}

/// The kind of an event, where a chapter waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The network's default route changed.
    Route(Option<Ipv4Addr>),
    /// Kubernetes changed a Node's condition Ready.
    Ready(String, bool),
    /// A natgw became the leader.
    Leader,
    /// natgw ran an action of this name.
    Action(String),
    Other,
}

#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) at: Timestamp,
    pub(super) source: String,
    pub(super) what: What,
    pub(super) text: String,
    /// Why natgw did it: the reason, as Events and metrics have it, and the sentence.
    pub(super) because: Option<(String, String)>,
}

pub(super) struct Timeline {
    hetzner: Arc<Hetzner>,
    network: u64,
    /// How many changes of the route were collected.
    routes: usize,
    /// Name, program, and how many of its lines were collected.
    programs: Vec<(String, Arc<Program>, usize)>,
    cluster: Arc<Mutex<Cluster>>,
    _watches: JoinSet<()>,
}

#[derive(Default)]
struct Cluster {
    nodes: BTreeMap<String, NodeState>,
    ended_jobs: BTreeSet<String>,
    events: Vec<Event>,
}

impl Timeline {
    /// Starts the watches.
    pub(super) fn new(env: &Environment) -> Self {
        let (client, cluster) = (env.control_plane.client(), Arc::<Mutex<Cluster>>::default());
        let mut watches = JoinSet::new();
        watches.spawn(follow(Api::all(client.clone()), cluster.clone(), Cluster::apply_node));
        watches.spawn(follow(Api::namespaced(client, NAMESPACE), cluster.clone(), Cluster::apply_job));
        let (hetzner, network) = (env.hetzner.clone(), env.network);
        let routes = hetzner.route_history(network).len();
        Self { hetzner, network, routes, programs: Vec::new(), cluster, _watches: watches }
    }

    /// Collects a program's log from its first line on.
    pub(super) fn add(&mut self, name: &str, program: Arc<Program>) {
        self.programs.push((name.to_owned(), program, 0));
    }

    pub(super) fn state(&self) -> State {
        State { nodes: lock(&self.cluster).nodes.clone(), route: self.hetzner.default_gateway(self.network) }
    }

    /// The events since the last call.
    pub(super) fn collect(&mut self) -> Vec<Event> {
        let mut events = std::mem::take(&mut lock(&self.cluster).events);
        let history = self.hetzner.route_history(self.network);
        events.extend(history.iter().skip(self.routes).map(|change| {
            let text = match change.gateway {
                Some(_) => format!("added the default route of the network to {}", next_hop(change.gateway)),
                None => "deleted the default route of the network".to_owned(),
            };
            let (at, what) = (timestamp(change.at), What::Route(change.gateway));
            Event { at, source: "hetzner".into(), what, text, because: None }
        }));
        self.routes = history.len();
        for (name, program, collected) in &mut self.programs {
            let lines = program.output().lines();
            events.extend(lines.iter().skip(*collected).filter_map(|line| logged(name, line)));
            *collected = lines.len();
        }
        events
    }

    /// The last lines of each program's log.
    pub(super) fn logs(&self, lines: usize) -> Vec<(String, Vec<String>)> {
        let last = |(name, program, _): &(String, Arc<Program>, usize)| {
            let all = program.output().lines();
            (name.clone(), all.iter().skip(all.len().saturating_sub(lines)).cloned().collect())
        };
        self.programs.iter().map(last).collect()
    }
}

async fn follow<K>(api: Api<K>, cluster: Arc<Mutex<Cluster>>, apply: fn(&mut Cluster, K))
where
    K: kube::Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let objects = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
    let mut objects = std::pin::pin!(objects);
    while let Some(object) = objects.next().await {
        // The watch restarts by itself after an error.
        if let Ok(object) = object {
            apply(&mut lock(&cluster), object);
        }
    }
}

impl Cluster {
    fn apply_node(&mut self, node: Node) {
        let (name, state) = (node.name_any(), NodeState::of(&node));
        let before = self.nodes.insert(name.clone(), state.clone());
        if before.is_some_and(|before| before.ready != state.ready) {
            let silent = if state.ready { "" } else { ": its kubelet is silent" };
            let text = format!("{name} is {}{silent}", if state.ready { "Ready" } else { "NotReady" });
            self.happened(What::Ready(name, state.ready), text);
        }
    }

    fn apply_job(&mut self, job: Job) {
        let conditions = job.status.as_ref().and_then(|status| status.conditions.as_deref());
        let mut ended = conditions.unwrap_or_default().iter().filter(|one| one.status == "True");
        let Some(ended) = ended.find(|one| ["Complete", "Failed"].contains(&&*one.type_)) else { return };
        if self.ended_jobs.insert(job.uid().unwrap_or_default()) {
            let node = job.annotations().get(names::NODE_NAME_ANNOTATION).map_or("?", String::as_str);
            let task = job.labels().get(names::TYPE_LABEL).map_or("?", String::as_str);
            let result = if ended.type_ == "Complete" { "succeeded" } else { "failed" };
            self.happened(What::Other, format!("the {task} Job on {node} {result}"));
        }
    }

    fn happened(&mut self, what: What, text: String) {
        self.events.push(Event { at: Timestamp::now(), source: "cluster".into(), what, text, because: None });
    }
}

impl NodeState {
    fn of(node: &Node) -> Self {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
        let is_ready =
            |one: &k8s_openapi::api::core::v1::NodeCondition| one.type_ == "Ready" && one.status == "True";
        let annotation = |name: &str| node.annotations().get(name).cloned();
        Self {
            ready: conditions.unwrap_or_default().iter().any(is_ready),
            cordoned: node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default(),
            role: node.labels().contains_key(names::ROLE_LABEL),
            label: node.labels().get(names::FLOATING_IP_LABEL).cloned(),
            setup: annotation(names::SETUP_ANNOTATION),
            client: annotation(names::CLIENT_ANNOTATION).is_some(),
            pending: annotation(names::PENDING_ANNOTATION).is_some(),
        }
    }
}

/// A line of natgw's JSON log, if it is an action, a warning, an error or a change of the leader.
fn logged(source: &str, line: &str) -> Option<Event> {
    let line: Value = serde_json::from_str(line).ok()?;
    let field = |name: &str| line.get(name).and_then(Value::as_str);
    let (level, message) = (field("level")?, field("msg")?);
    let (what, text, because) = match (level, field("action"), field("because")) {
        ("info", Some(action), Some(because)) => {
            let reason = field("reason").unwrap_or_default();
            let because = Some((reason.to_owned(), because.to_owned()));
            (What::Action(action.to_owned()), message.to_owned(), because)
        }
        ("info", ..) if message == "became leader" => (What::Leader, "is the leader".to_owned(), None),
        ("info", ..) if message == "released the lease" => {
            (What::Other, "released the Lease".to_owned(), None)
        }
        ("warn" | "error", ..) => {
            let error = field("error").map(|error| format!(": {error}")).unwrap_or_default();
            (What::Other, format!("{level}: {message}{error}"), None)
        }
        _ => return None,
    };
    Some(Event { at: field("ts")?.parse().ok()?, source: source.to_owned(), what, text, because })
}

/// The next hop of the default route, with the name of its Node.
pub(super) fn next_hop(route: Option<Ipv4Addr>) -> String {
    let Some(ip) = route else { return "none".to_owned() };
    let node = NODES.iter().find(|(_, address, _)| *address == ip);
    format!("{ip} ({})", node.map_or("no Node", |(name, ..)| name))
}

/// The time of day of a measured moment.
pub(super) fn timestamp(at: Instant) -> Timestamp {
    let now = Timestamp::now();
    now.checked_sub(at.elapsed()).unwrap_or(now)
}

/// How long after `cause` something happened; zero if the clocks put it before.
pub(super) fn after(cause: Timestamp, at: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(cause)).unwrap_or_default()
}

fn lock(cluster: &Mutex<Cluster>) -> MutexGuard<'_, Cluster> {
    cluster.lock().unwrap_or_else(PoisonError::into_inner)
}
