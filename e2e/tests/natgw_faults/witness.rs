//! Sees everything at all times, and remembers what must never be.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use e2e::hollow_node::Outcome;
use e2e::natgw::{Gateway, TestEnv};
use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, ResourceExt as _};
use natgw::names;
use tokio::task::JoinSet;

/// How long a Job works on its machine: whoever does not wait for its end is seen.
const WORK: Duration = Duration::from_millis(300);
/// When the kernel is set up, from the Job's begin: before the pod's end, which the node times by a clock that it read a
/// moment earlier.
const EFFECT: Duration = Duration::from_millis(200);

/// What is true of the machines, whatever anybody's annotation says.
#[derive(Default)]
struct Truth {
    /// The floating IP that each machine's kernel translates to and since when, by its address in the network.
    kernels: BTreeMap<Ipv4Addr, (String, Instant)>,
    /// How often each Job type has run on each machine.
    runs: BTreeMap<(Ipv4Addr, String), usize>,
    route: Option<Ipv4Addr>,
    /// Names of the Nodes with the role label.
    roles: BTreeMap<String, bool>,
    broken: Vec<String>,
}

/// Watches the cloud's route, the Nodes, and what Jobs do on the machines.
pub struct Witness {
    truth: Arc<Mutex<Truth>>,
    _watch: JoinSet<()>,
}

impl Witness {
    /// Looks from now on.
    pub fn of(env: &TestEnv) -> Witness {
        let truth = Arc::new(Mutex::new(Truth::default()));
        let (network, seen) = (env.network, truth.clone());
        env.hetzner.forbid("the default route points to a machine that is not set up", move |cloud| {
            let mut truth = seen.lock().unwrap();
            truth.route = cloud.networks.get(&network).and_then(|network| network.default_gateway());
            truth.route.is_some_and(|gateway| truth.kernel(gateway).is_none())
        });
        let nodes = Api::<Node>::all(env.client.clone());
        let ours = watcher::Config::default().labels(&format!("env={}", env.namespace));
        let (seen, role) = (truth.clone(), env.role_label());
        let mut watch = JoinSet::new();
        watch.spawn(async move {
            let events = watcher(nodes, ours).default_backoff().touched_objects();
            let mut events = std::pin::pin!(events);
            loop {
                // An error is mended by the watcher's next try.
                if let Ok(Some(node)) = events.try_next().await {
                    seen.lock().unwrap().node(&node, &role);
                }
            }
        });
        Witness { truth, _watch: watch }
    }

    /// Lets it see the Jobs of this machine, which all succeed.
    pub fn observe(&self, gateway: &Gateway) {
        let (truth, ip) = (self.truth.clone(), gateway.private_ip);
        gateway.node.on_pod(move |pod| {
            truth.lock().unwrap().job(ip, pod);
            Outcome::Succeed(WORK)
        });
    }

    /// What the machine's kernel translates to.
    pub fn kernel(&self, gateway: &Gateway) -> Option<String> {
        self.truth().kernel(gateway.private_ip).map(str::to_owned)
    }

    /// How often Jobs of each type have run on the machine.
    pub fn runs(&self, gateway: &Gateway) -> BTreeMap<String, usize> {
        let truth = self.truth();
        let of_node = truth.runs.iter().filter(|((ip, _), _)| *ip == gateway.private_ip);
        of_node.map(|((_, kind), count)| (kind.clone(), *count)).collect()
    }

    /// Nothing forbidden was ever seen.
    pub fn assert_unbroken(&self, env: &TestEnv, scenario: &str) {
        let broken = self.truth().broken.clone();
        let violations: Vec<String> = env.hetzner.violations().into_iter().map(|(_, name)| name).collect();
        assert!(broken.is_empty() && violations.is_empty(), "{scenario}: {broken:?} {violations:?}");
    }

    fn truth(&self) -> MutexGuard<'_, Truth> {
        self.truth.lock().unwrap()
    }
}

impl Truth {
    fn kernel(&self, ip: Ipv4Addr) -> Option<&str> {
        let (translates_to, since) = self.kernels.get(&ip)?;
        (*since <= Instant::now()).then_some(translates_to)
    }

    fn job(&mut self, ip: Ipv4Addr, pod: &Pod) {
        let kind = pod.labels()[names::TYPE_LABEL].clone();
        *self.runs.entry((ip, kind.clone())).or_default() += 1;
        if kind == "setup" {
            // Done once is done, also while it is done again.
            let translates_to = pod.labels()[names::IP_LABEL].clone();
            if self.kernel(ip) != Some(&translates_to) {
                self.kernels.insert(ip, (translates_to, Instant::now() + EFFECT));
            }
        } else {
            self.kernels.remove(&ip);
            if self.route == Some(ip) {
                self.broken.push(format!("{ip} is torn down while the route points to it"));
            }
        }
    }

    fn node(&mut self, node: &Node, role: &str) {
        let name = node.name_any();
        self.roles.insert(name.clone(), node.labels().contains_key(role));
        if self.roles.values().filter(|role| **role).count() > 2 {
            self.broken
                .push(format!("more than the old and the new primary have the role label: {:?}", self.roles));
        }
        let annotations = node.annotations();
        // While a Job is pending, the annotation tells what was, and nobody relies on it.
        if annotations.contains_key(names::PENDING_ANNOTATION) {
            return;
        }
        let Some(said) = annotations.get(names::SETUP_ANNOTATION) else { return };
        let ip = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
        let ip =
            ip.filter(|address| address.type_ == "InternalIP").find_map(|each| each.address.parse().ok());
        let kernel = ip.and_then(|ip| self.kernel(ip));
        if kernel != Some(said) {
            self.broken.push(format!("the annotation of {name} says {said}, its kernel {kernel:?}"));
        }
    }
}
