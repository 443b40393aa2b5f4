use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::agent::datapath::{Datapath, VipRoute};
use crate::agent::vxlan::Config;
use crate::agent::vxlan::observe::{ObservedDevice, route_of, rule_of};
use crate::agent::vxlan::plan::table::Table;
use crate::agent::vxlan::plan::{TABLES, plan, ruleset, table_of};
use crate::agent::vxlan::sample;

const INDEX: u32 = 7;

/// The model of a kernel: the observed objects, and the datapath that the nf_tables table was made for.
#[derive(Clone, Debug, Default)]
struct Model {
    observed: Observed,
    table: Option<Datapath>,
}

/// The fate of a packet of a pod to the outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Dropped,
    /// To a gateway, which translates it or drops it.
    Tunnel(Ipv4Addr),
    /// From this node with a VIP.
    Vip(Ipv4Addr),
    /// From this node with another address.
    Node,
}

impl Model {
    fn execute(&mut self, operation: &Operation) {
        let observed = &mut self.observed;
        match operation {
            Operation::DeleteDevice(_) => {
                observed.device = None;
                observed.neighbours.clear();
                observed.forwarding.clear();
                observed.routes.retain(|_, (_, next)| !matches!(next, Some(Next::Via(_))));
            }
            Operation::CreateDevice(device) => {
                assert_eq!(observed.device, None);
                observed.device = Some(ObservedDevice {
                    index: INDEX,
                    device: Some(device.clone()),
                    is_plain: true,
                    up: false,
                    addressed: false,
                    settings: BTreeMap::new(),
                });
            }
            Operation::SetNeighbour(address, mac) => {
                observed.neighbours.insert(*address, Some(*mac));
            }
            Operation::DeleteNeighbour(address) => assert!(observed.neighbours.remove(address).is_some()),
            Operation::SetForwarding(mac, node) => {
                observed.forwarding.insert(*mac, Some(*node));
            }
            Operation::DeleteForwarding(mac, _) => assert!(observed.forwarding.remove(mac).is_some()),
            Operation::SetRoute(key, next) => {
                if let Next::Via(node) = next {
                    assert!(
                        observed.device.as_ref().is_some_and(|device| device.up),
                        "a route without its link"
                    );
                    assert!(observed.neighbours.contains_key(node), "a route without its neighbour");
                }
                observed.routes.insert(*key, (route_of(*key, *next, INDEX), Some(*next)));
            }
            Operation::DeleteRoute(key) => assert!(observed.routes.remove(key).is_some()),
            Operation::AddRule(lookup) => observed.rules.push((rule_of(*lookup), Some(*lookup))),
            Operation::DeleteRule(rule) => observed.rules.retain(|(found, _)| found != rule.as_ref()),
            Operation::SetMtu(mtu) => self.device().device.as_mut().unwrap().mtu = *mtu,
            Operation::SetSetting(name, value) => {
                self.device().settings.insert(name, *value);
            }
            Operation::AddAddress => self.device().addressed = true,
            Operation::SetUp => self.device().up = true,
        }
    }

    fn device(&mut self) -> &mut ObservedDevice {
        self.observed.device.as_mut().unwrap()
    }

    /// As the table's chains and the policy rules treat the first packet of a connection.
    fn fate(&self, pod: Ipv4Addr) -> Fate {
        let Some(table) = &self.table else { return Fate::Node };
        let pods = table.bound_pods();
        let Some(bound) = pods.get(&pod).filter(|bound| bound.node == table.node.ip) else {
            return if table.unbound_pods.contains(&pod) { Fate::Node } else { Fate::Dropped };
        };
        let number = table_of(bound.path.tun_id);
        let selected = self.observed.rules.iter().any(|(_, lookup)| {
            lookup.is_some_and(|lookup| lookup.table == number && lookup.mark == number - TABLES)
        });
        let route = self.observed.routes.get(&(number, Ipv4Net::default())).and_then(|(_, next)| *next);
        match route.filter(|_| selected) {
            Some(Next::Via(node)) => Fate::Tunnel(node),
            Some(Next::Blackhole) => Fate::Dropped,
            // The guard accepts the pod's VIP only, and only candidates translate.
            Some(Next::Throw) | None if table.node.candidate => Fate::Vip(bound.vip),
            Some(Next::Throw) | None => Fate::Dropped,
        }
    }
}

fn kernel(datapath: &Datapath) -> Kernel {
    plan(datapath, &Config::default(), 1500)
}

/// Executes the changes to `desired`, and calls `check` after each.
fn execute(model: &mut Model, desired: &Datapath, mut check: impl FnMut(&Model)) {
    let changes = difference(&kernel(desired), &model.observed);
    for operation in &changes.before {
        model.execute(operation);
        check(model);
    }
    model.table = Some(desired.clone());
    check(model);
    for operation in &changes.after {
        model.execute(operation);
        check(model);
    }
    assert_eq!(difference(&kernel(desired), &model.observed), Changes::default());
}

/// Lists of the sources of a port.
fn lists() -> [Option<Vec<Ipv4Net>>; 4] {
    let nets = |texts: &[&str]| Some(texts.iter().map(|text| text.parse().unwrap()).collect());
    [None, nets(&[]), nets(&["10.0.0.0/8", "192.0.2.0/24"]), nets(&["10.244.0.0/16"])]
}

/// Variants of a node's datapath: each VIP is bound or not, with one of the routes, each pod has either VIP or none, and a port a list of
/// sources.
fn variants() -> impl Strategy<Value = (Datapath, Datapath)> {
    let one = (0..4_u8, 0..4_u8, 0..3_u8, 0..3_u8, any::<bool>(), 0..4_usize);
    (0..3_u8, one.clone(), one).prop_map(|(node, first, second)| {
        let base = match node {
            0 => sample::worker(),
            1 => sample::gateway(),
            _ => sample::standby(),
        };
        let variant = |(a, b, pod, other, swapped, list): (u8, u8, u8, u8, bool, usize)| {
            let mut datapath = base.clone();
            for (vip, number) in [(sample::A, a), (sample::B, b)] {
                let path = datapath.vips.get_mut(&vip).unwrap();
                path.route = match number {
                    0 => VipRoute::Drop,
                    1 if base.node.candidate => VipRoute::Local,
                    1 | 2 if base.node.ip != sample::G1 => sample::via(sample::G1),
                    _ if base.node.ip != sample::G2 => sample::via(sample::G2),
                    _ => sample::via(sample::G1),
                };
            }
            let own: Vec<_> = [Ipv4Addr::new(10, 244, 8, 1), Ipv4Addr::new(10, 244, 8, 2)].into();
            for (address, number) in own.into_iter().zip([pod, other]) {
                let bound = crate::agent::datapath::BoundPod { name: String::new(), node_ip: base.node.ip };
                match number {
                    0 => drop(datapath.vips.get_mut(&sample::A).unwrap().pods.insert(address, bound)),
                    1 => drop(datapath.vips.get_mut(&sample::B).unwrap().pods.insert(address, bound)),
                    _ => drop(datapath.unbound_pods.insert(address)),
                }
            }
            datapath.vips.get_mut(&sample::A).unwrap().ports[0].sources = lists()[list].clone();
            if swapped {
                datapath.vips.remove(&sample::B);
            }
            datapath
        };
        (variant(first), variant(second))
    })
}

proptest! {
    #[test]
    fn no_prefix_of_the_changes_lets_a_bound_pod_leave_with_a_wrong_address((old, new) in variants()) {
        let mut model = Model::default();
        execute(&mut model, &old, |_| {});
        let allowed = |datapath: &Datapath, pod: Ipv4Addr| {
            let bound = datapath.bound_pods();
            bound.get(&pod).map(|bound| bound.vip)
        };
        execute(&mut model, &new, |model| {
            for pod in [Ipv4Addr::new(10, 244, 8, 1), Ipv4Addr::new(10, 244, 8, 2)] {
                let vips = [allowed(&old, pod), allowed(&new, pod)];
                match model.fate(pod) {
                    Fate::Dropped => {}
                    Fate::Tunnel(node) => assert!([sample::G1, sample::G2].contains(&node)),
                    Fate::Vip(vip) => assert!(vips.contains(&Some(vip))),
                    // Not if it is bound before and after.
                    Fate::Node => assert!(vips.contains(&None), "{pod} left with the node's address"),
                }
            }
        });
        // From any state, also after the first of the changes only: the removal leaves nothing.
        for operation in removal(&model.observed) {
            model.execute(&operation);
        }
        prop_assert_eq!(model.observed, Observed::default());
    }

    #[test]
    fn stopped_changes_are_completed((old, new) in variants(), after in 0..40_usize) {
        let mut model = Model::default();
        execute(&mut model, &old, |_| {});
        let changes = difference(&kernel(&new), &model.observed);
        for operation in changes.before.iter().take(after) {
            model.execute(operation);
        }
        execute(&mut model, &new, |_| {});
    }

    #[test]
    fn an_update_of_elements_gives_the_desired_table((old, new) in variants()) {
        let [old, new] = [old, new].map(|datapath| ruleset::table(&datapath, &Config::default()));
        if old.has_structure_of(&new) {
            prop_assert_eq!(new.update(&old).is_empty(), old == new);
        } else {
            prop_assert_ne!(&old, &new);
            prop_assert_ne!(new, Table::default());
        }
    }
}

#[test]
fn a_changed_list_of_sources_changes_elements_only() {
    for (old, new) in lists().into_iter().flat_map(|old| lists().map(|new| (old.clone(), new))) {
        let [old, new] = [old, new].map(|list| {
            let mut datapath = sample::gateway();
            datapath.vips.get_mut(&sample::A).unwrap().ports[0].sources = list;
            ruleset::table(&datapath, &Config::default())
        });
        assert!(old.has_structure_of(&new));
        assert_eq!(new.update(&old).is_empty(), old == new);
    }
}

#[test]
fn a_changed_gateway_is_the_first_operation() {
    let mut datapath = sample::gateway();
    let mut model = Model::default();
    execute(&mut model, &datapath, |_| {});
    datapath.vips.get_mut(&sample::A).unwrap().route = sample::via(sample::G2);
    let changes = difference(&kernel(&datapath), &model.observed);
    let key = (TABLES | 1, Ipv4Net::default());
    assert_eq!(changes.before, [Operation::SetRoute(key, Next::Via(sample::G2))]);
    assert_eq!(changes.after, []);
}
