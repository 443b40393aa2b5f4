//! The metrics of two replicas of a controller: a healthy leader after some failures, and a standby.

use std::collections::BTreeMap;

use apinetlet::api::source;
use e2e::fault_proxy::{Fault, Matcher, Reply};
use e2e::natgw::{TestEnv, wait_for};
use e2e::program::{Program, Samples};
use serde_json::json;
use tokio::sync::OnceCell;

use crate::apinetlet::environment as apinetlet_environment;
use crate::cgw_roles::story;

/// The responses of `/metrics`.
pub struct Scrape {
    pub leader: String,
    pub standby: String,
}

/// One series as it arrives in Prometheus: the labels of the target are there, too.
#[derive(Clone)]
pub struct Series {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

impl Series {
    /// Whether `metric` names it: `natgw_primary`, or `natgw_nodes{state="candidate"}`.
    pub fn is(&self, metric: &str) -> bool {
        let with = |(key, value): (&String, &String)| format!("{}{{{key}={value:?}}}", self.name) == metric;
        self.name == metric || self.labels.iter().any(with)
    }
}

/// Labels that prometheus-operator gives to what a PodMonitor finds.
pub const TARGET: [&str; 6] = ["job", "namespace", "pod", "container", "endpoint", "instance"];

pub async fn natgw() -> &'static Scrape {
    static SCRAPE: OnceCell<Scrape> = OnceCell::const_new();
    SCRAPE.get_or_init(scrape).await
}

async fn scrape() -> Scrape {
    let env = TestEnv::start().await.unwrap();
    // One failure of each kind, so that its counters exist.
    env.api_proxy.rule(Matcher::watches().times(1), Fault::Reject(Reply::internal()));
    env.api_proxy
        .rule(Matcher::any().verb("patch").resource("nodes").times(1), Fault::Reject(Reply::internal()));
    let first = env.node(Some("198.51.100.1")).await.unwrap();
    let second = env.node(Some("198.51.100.2")).await.unwrap();
    let leader = env.natgw("").unwrap().start().unwrap();
    let leads = [("name", "natgw")];
    env.wait_for_metric(&leader, "leader_election_master_status", &leads, 1.0).await.unwrap();
    let standby = env.natgw("").unwrap().name("standby").start().unwrap();
    env.wait_for_setup(&first, "198.51.100.1").await.unwrap();
    env.wait_for_setup(&second, "198.51.100.2").await.unwrap();
    for metric in ["natgw_primary", "natgw_route_in_place"] {
        env.wait_for_metric(&leader, metric, &[], 1.0).await.unwrap();
    }
    env.wait_for_metric(&leader, "natgw_nodes", &[("state", "candidate")], 2.0).await.unwrap();
    env.wait_for_metric(&standby, "leader_election_master_status", &leads, 0.0).await.unwrap();
    let text = async |program: &e2e::program::Program| program.get("/metrics").await.unwrap().1;
    Scrape { leader: text(&leader).await, standby: text(&standby).await }
}

pub async fn routegc() -> &'static Scrape {
    static SCRAPE: OnceCell<Scrape> = OnceCell::const_new();
    SCRAPE.get_or_init(scrape_routegc).await
}

async fn scrape_routegc() -> Scrape {
    let env = e2e::routegc::TestEnv::start().await.unwrap();
    env.openstack.set_network_quota(&env.project, "router_route", 20).await.unwrap();
    env.populate(1, 1).await.unwrap();
    env.policy("prod", json!({ "safety": { "confirmations": 1, "minAge": "0s" } })).await.unwrap();
    // One failure, so that its counters exist.
    env.policy("lost", json!({ "routerID": "nowhere" })).await.unwrap();
    let leader = env.routegc().unwrap().start().unwrap();
    env.wait_for_reason("prod", "NoOrphans").await.unwrap();
    env.wait_for_reason("lost", "!RouterNotFound").await.unwrap();
    // They are set after the status is written.
    wait_for("the metrics of a reconciliation", || async {
        Ok(leader.metrics().await?.sum("routegc_last_success_timestamp_seconds", &[]) > Some(0.0))
    })
    .await
    .unwrap();
    let standby = env.routegc().unwrap().name("standby").start().unwrap();
    of_both(&leader, &standby).await
}

/// When the standby takes part in the election.
async fn of_both(leader: &Program, standby: &Program) -> Scrape {
    wait_for("the standby", || async {
        let metrics = standby.metrics().await?;
        Ok(metrics.iter().any(|(name, _, _)| name == "leader_election_master_status"))
    })
    .await
    .unwrap();
    let text = async |program: &Program| program.get("/metrics").await.unwrap().1;
    Scrape { leader: text(leader).await, standby: text(standby).await }
}

pub async fn apinetlet() -> &'static Scrape {
    static SCRAPE: OnceCell<Scrape> = OnceCell::const_new();
    SCRAPE.get_or_init(scrape_apinetlet).await
}

async fn scrape_apinetlet() -> Scrape {
    let env = apinetlet_environment::TestEnv::new().await;
    // A failure of a watch and a problem, so that their series exist.
    env.source_proxy.rule(Matcher::watches().times(1), Fault::Reject(Reply::internal()));
    let leader = env.start(&["--leader-elect"]).await;
    let gateway = json!({ "type": "Public", "ipFamily": "IPv4", "networkRef": { "name": "absent" } });
    apinetlet_environment::create(&env.source::<source::NatGateway>(), "nat", gateway).await;
    env.network("net").await;
    let networks = env.source::<source::Network>();
    apinetlet_environment::wait(&networks, "net", "Available", |one| one.status.state == "Available").await;
    wait_for("the problem", || async {
        let labels = [("kind", "NATGateway"), ("reason", "NetworkNotFound")];
        let metrics = leader.metrics().await?;
        Ok(metrics.sum("apinetlet_problems", &labels) == Some(1.0)
            && metrics.sum("perimeter_watch_errors_total", &[("api", "main")]) > Some(0.0))
    })
    .await
    .unwrap();
    let standby = env.launch(&["--leader-elect"]).name("standby").start().unwrap();
    of_both(&leader, &standby).await
}

/// All series of cgw-controller's roles, with the labels that its PodMonitors give to them.
pub async fn cgw() -> Vec<Series> {
    let mut all = Vec::new();
    for (role, text) in &story::recording().await.metrics {
        let job = format!("cgw-{role}");
        let mut target = target(&job, "g0");
        target.insert("namespace".to_owned(), "cgw-controller".to_owned());
        target.insert("node".to_owned(), "g0".to_owned());
        if *role == "keeper" {
            target.insert("cgw_controller_perimeter_dev_virtual_router".to_owned(), "51".to_owned());
        }
        all.extend(series(text, &target));
    }
    all
}

fn target(controller: &str, pod: &str) -> BTreeMap<String, String> {
    TARGET
        .iter()
        .map(|label| match *label {
            "job" | "namespace" | "container" => (*label, controller),
            "endpoint" => (*label, "admin"),
            _ => (*label, pod),
        })
        .map(|(label, value)| (label.to_owned(), value.to_owned()))
        .collect()
}

/// Those of one response, and Prometheus' own `up`.
fn series(text: &str, target: &BTreeMap<String, String>) -> Vec<Series> {
    let mut all = vec![Series { name: "up".into(), labels: target.clone(), value: 1.0 }];
    for (name, labels, value) in Samples::parse(text).unwrap().iter() {
        let mut labels = labels.clone();
        labels.extend(target.clone());
        all.push(Series { name: name.to_owned(), labels, value });
    }
    all
}

impl Scrape {
    /// All series of both replicas, pods `leader` and `standby`, and Prometheus' own `up`.
    pub fn series(&self, controller: &str) -> Vec<Series> {
        let replicas = [("leader", &self.leader), ("standby", &self.standby)];
        replicas.iter().flat_map(|(pod, text)| series(text, &target(controller, pod))).collect()
    }
}
