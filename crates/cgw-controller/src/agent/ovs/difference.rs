//! The changes that turn the programmed flows and rules into the desired ones. Foreign flows and rules are never changed.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    flow::{COOKIE, COOKIE_MASK, Flow, Key},
    iptables::{Chain, Rules, Step, Table},
};

/// One change of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlowChange {
    /// Adds the flow, or replaces the actions of the driver's flow with this key.
    Add(Flow),
    /// Removes the driver's flow with this key.
    Delete(Key),
}

/// Changes of the bridge. Flows that a foreign flow of the same key hides are not written: the base is never changed.
#[must_use]
pub fn flows(observed: &BTreeSet<Flow>, desired: &BTreeSet<Flow>) -> Vec<FlowChange> {
    let (ours, foreign): (Vec<&Flow>, Vec<&Flow>) = observed.iter().partition(|flow| flow.is_ours());
    let foreign: BTreeSet<&Key> = foreign.into_iter().map(|flow| &flow.key).collect();
    let ours: BTreeMap<&Key, &Flow> = ours.into_iter().map(|flow| (&flow.key, flow)).collect();
    let keys: BTreeSet<&Key> = desired.iter().map(|flow| &flow.key).collect();
    let stale = ours.keys().filter(|key| !keys.contains(*key)).map(|key| FlowChange::Delete((*key).clone()));
    let missing = desired
        .iter()
        .filter(|flow| !foreign.contains(&flow.key) && ours.get(&flow.key) != Some(flow))
        .map(|flow| FlowChange::Add(flow.clone()));
    stale.chain(missing).collect()
}

/// Input of `ovs-ofctl bundle`: the switch takes all changes, or none.
#[must_use]
pub fn bundle(changes: &[FlowChange]) -> String {
    let line = |change: &FlowChange| match change {
        FlowChange::Add(flow) => format!("flow add {flow}\n"),
        FlowChange::Delete(key) => format!("flow delete_strict cookie={COOKIE:#x}/{COOKIE_MASK:#x},{key}\n"),
    };
    changes.iter().map(line).collect()
}

/// Steps of `iptables-restore`. Each jump is the only one of its kind, and stands at position 1 of its chain.
#[must_use]
pub fn rules(observed: &Rules, desired: &Rules) -> Vec<Step> {
    let mut steps = Vec::new();
    for (chain, rules) in &desired.chains {
        if observed.chains.get(chain) != Some(rules) {
            steps.push(Step::Replace(chain.clone(), rules.clone()));
        }
    }
    let parents: BTreeSet<&Chain> = observed.jumps.keys().chain(desired.jumps.keys()).collect();
    for parent in parents {
        let (present, wanting) = (observed.jumps.get(parent), desired.jumps.get(parent));
        if present == wanting {
            continue;
        }
        for (_, rule) in present.into_iter().flatten() {
            steps.push(Step::DeleteJump(parent.clone(), rule.clone()));
        }
        for (_, rule) in wanting.into_iter().flatten().rev() {
            steps.push(Step::InsertJump(parent.clone(), rule.clone()));
        }
    }
    for chain in observed.chains.keys().filter(|chain| !desired.chains.contains_key(*chain)) {
        steps.push(Step::Remove(chain.clone()));
    }
    steps
}

/// The steps in two parts. Each table is a transaction of its own, and nat follows mangle: a pod that the guards admit before nat has its
/// SNAT would leave with the address of the node. So the second part admits the pods that have had no SNAT.
#[must_use]
pub fn guarded(observed: &Rules, steps: &[Step]) -> (Vec<Step>, Vec<Step>) {
    let (guard, snat) = (Chain::ours(Table::Mangle, "GUARD"), Chain::ours(Table::Nat, "SNAT"));
    let is_of = |chain: &Chain, first: &Chain| {
        chain.table == first.table && chain.name.starts_with(first.name.as_str())
    };
    let source = |rule: &String| rule.split_once(" -j ").map(|(source, _)| source.to_owned());
    let present = observed.chains.iter().filter(|(chain, _)| is_of(chain, &guard));
    let present: BTreeSet<&String> = present.flat_map(|(_, rules)| rules).collect();
    let translated = steps.iter().filter_map(|step| match step {
        Step::Replace(chain, rules) if is_of(chain, &snat) => Some(rules.iter().filter_map(source)),
        _ => None,
    });
    let translated: BTreeSet<String> = translated.flatten().collect();
    let admits = |rule: &String| {
        rule.ends_with(" -j RETURN") && source(rule).is_some_and(|source| translated.contains(&source))
    };
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for step in steps {
        let Step::Replace(chain, rules) = step else {
            first.push(step.clone());
            continue;
        };
        let is_kept = |rule: &&String| !is_of(chain, &guard) || !admits(rule) || present.contains(rule);
        let kept: Vec<String> = rules.iter().filter(is_kept).cloned().collect();
        if kept.len() < rules.len() {
            second.push(step.clone());
        }
        first.push(Step::Replace(chain.clone(), kept));
    }
    (first, second)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::agent::ovs::{
        flow::{Action, Match},
        iptables::PREFIX,
    };

    fn flow() -> impl Strategy<Value = Flow> {
        (0..3_u8, 0..3_u16, 1..3_u32, 0..3_u8, any::<bool>()).prop_map(
            |(table, priority, tag, goto, ours)| {
                let mut flow =
                    Flow::new(table, priority, &[Match::Ip, Match::Reg3(tag)], &[Action::Goto(100 + goto)]);
                if !ours {
                    flow.cookie = 0;
                }
                flow
            },
        )
    }

    /// A table holds one flow of a key.
    fn bridge() -> impl Strategy<Value = BTreeSet<Flow>> {
        proptest::collection::vec(flow(), 0..12).prop_map(|flows| {
            let by_key: BTreeMap<Key, Flow> =
                flows.into_iter().map(|flow| (flow.key.clone(), flow)).collect();
            by_key.into_values().collect()
        })
    }

    /// The flows after the switch has taken a bundle.
    fn applied(observed: &BTreeSet<Flow>, changes: &[FlowChange]) -> BTreeSet<Flow> {
        let mut flows: BTreeMap<Key, Flow> =
            observed.iter().map(|flow| (flow.key.clone(), flow.clone())).collect();
        for change in changes {
            match change {
                FlowChange::Add(flow) => {
                    flows.insert(flow.key.clone(), flow.clone());
                }
                FlowChange::Delete(key) => {
                    if flows.get(key).is_some_and(Flow::is_ours) {
                        flows.remove(key);
                    }
                }
            }
        }
        flows.into_values().collect()
    }

    const BUILTIN: [&str; 2] = ["FORWARD", "POSTROUTING"];

    /// All rules of a table, as the kernel has them: builtin chains with foreign rules and jumps, and chains of the driver.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Kernel(BTreeMap<Chain, Vec<String>>);

    impl Kernel {
        fn observed(&self) -> Rules {
            let mut rules = Rules::default();
            for (chain, texts) in &self.0 {
                if chain.name.starts_with(PREFIX) {
                    rules.chains.insert(chain.clone(), texts.clone());
                    continue;
                }
                let jumps: Vec<_> = texts
                    .iter()
                    .enumerate()
                    .filter(|(_, text)| text.contains("-j CGW-"))
                    .map(|(index, text)| (index + 1, text.clone()))
                    .collect();
                if !jumps.is_empty() {
                    rules.jumps.insert(chain.clone(), jumps);
                }
            }
            rules
        }

        fn foreign(&self) -> Vec<(String, Vec<String>)> {
            let builtin = self.0.iter().filter(|(chain, _)| !chain.name.starts_with(PREFIX));
            builtin
                .map(|(chain, texts)| {
                    (
                        chain.to_string(),
                        texts.iter().filter(|text| !text.contains("-j CGW-")).cloned().collect(),
                    )
                })
                .collect()
        }

        /// As `iptables-restore --noflush`; a step that the kernel refuses fails the test.
        fn apply(&mut self, steps: &[Step]) {
            for step in steps {
                match step {
                    Step::Replace(chain, rules) => {
                        self.0.insert(chain.clone(), rules.clone());
                    }
                    Step::DeleteJump(chain, rule) => {
                        let rules = self.0.get_mut(chain).unwrap();
                        let index = rules.iter().position(|text| text == rule).unwrap();
                        rules.remove(index);
                    }
                    Step::InsertJump(chain, rule) => self.0.get_mut(chain).unwrap().insert(0, rule.clone()),
                    Step::Remove(chain) => {
                        self.0.remove(chain).unwrap();
                        let jump = format!("-j {}", chain.name);
                        let referenced = self.0.values().flatten().any(|text| text.ends_with(&jump));
                        assert!(!referenced, "{chain} is referenced");
                    }
                }
            }
        }
    }

    fn kernel() -> impl Strategy<Value = Kernel> {
        let texts = ["-j KUBE-X", "-i tun0 -j CGW-A", "-j CGW-A", "-j CGW-B", "-j ACCEPT"];
        let builtin = || proptest::collection::vec(0..texts.len(), 0..5);
        (builtin(), builtin(), any::<bool>(), any::<bool>()).prop_map(move |(first, second, a, b)| {
            let mut chains = BTreeMap::new();
            for (name, list) in BUILTIN.into_iter().zip([first, second]) {
                let mut list: Vec<String> = list.into_iter().map(|index| texts[index].to_owned()).collect();
                // A jump has a target.
                list.retain(|text| (a || !text.contains("CGW-A")) && (b || !text.contains("CGW-B")));
                chains.insert(Chain { table: Table::Mangle, name: name.into() }, list);
            }
            for (name, present) in [("A", a), ("B", b)] {
                if present {
                    chains.insert(
                        Chain::ours(Table::Mangle, name),
                        vec![format!("-s 10.0.0.{}/32 -j DROP", name.len())],
                    );
                }
            }
            Kernel(chains)
        })
    }

    fn desired_rules() -> impl Strategy<Value = Rules> {
        (any::<bool>(), any::<bool>(), 0..3_usize).prop_map(|(forward, postrouting, count)| {
            let mut rules = Rules::default();
            for (name, chain, present) in [("FORWARD", "A", forward), ("POSTROUTING", "C", postrouting)] {
                if present {
                    let jump = (1, format!("-i tun0 -j CGW-{chain}"));
                    rules.jumps.insert(Chain { table: Table::Mangle, name: name.into() }, vec![jump]);
                    rules.chains.insert(Chain::ours(Table::Mangle, chain), vec!["-j DROP".into(); count]);
                }
            }
            rules
        })
    }

    proptest! {
        #[test]
        fn flows_converge_and_foreign_ones_stay(observed in bridge(), desired in bridge()) {
            let desired: BTreeSet<Flow> = desired.into_iter().filter(Flow::is_ours).collect();
            let after = applied(&observed, &flows(&observed, &desired));
            let foreign = |flows: &BTreeSet<Flow>| flows.iter().filter(|flow| !flow.is_ours()).cloned().collect::<Vec<_>>();
            prop_assert_eq!(foreign(&after), foreign(&observed));
            prop_assert!(after.iter().filter(|flow| flow.is_ours()).all(|flow| desired.contains(flow)));
            prop_assert!(desired.iter().all(|flow| after.iter().any(|other| other.key == flow.key)));
            prop_assert_eq!(flows(&after, &desired), vec![]);
        }

        #[test]
        fn rules_converge_and_foreign_ones_stay(mut kernel in kernel(), desired in desired_rules()) {
            let foreign = kernel.foreign();
            kernel.apply(&rules(&kernel.observed(), &desired));
            prop_assert_eq!(kernel.foreign(), foreign);
            prop_assert_eq!(kernel.observed(), desired.clone());
            prop_assert_eq!(rules(&kernel.observed(), &desired), vec![]);
        }
    }

    #[test]
    fn guards_admit_a_pod_after_nat_translates_it() {
        let guard = |name: &str| Chain::ours(Table::Mangle, name);
        let pods = |addresses: &[&str], target: &str| -> Vec<String> {
            addresses.iter().map(|address| format!("-s {address}/32 -j {target}")).collect()
        };
        let rules = |bound: &[&str], unbound: &[&str]| {
            let mut admitted = pods(&[bound, unbound].concat(), "RETURN");
            admitted.push("-j DROP".to_owned());
            let snat = pods(bound, "SNAT --to-source 192.168.50.201");
            let chains = [(guard("GUARD"), admitted), (Chain::ours(Table::Nat, "SNAT"), snat)];
            Rules { chains: chains.into(), jumps: BTreeMap::new() }
        };
        let old = rules(&["10.128.0.10"], &["10.128.0.30"]);
        let new = rules(&["10.128.0.10", "10.128.0.11", "10.128.0.30"], &["10.128.0.31"]);
        let (first, second) = guarded(&old, &super::rules(&old, &new));
        let mut admitted = pods(&["10.128.0.10", "10.128.0.30", "10.128.0.31"], "RETURN");
        admitted.push("-j DROP".to_owned());
        let snat = Chain::ours(Table::Nat, "SNAT");
        let all = |chain: &Chain| Step::Replace(chain.clone(), new.chains[chain].clone());
        assert_eq!(first, [Step::Replace(guard("GUARD"), admitted), all(&snat)]);
        assert_eq!(second, [all(&guard("GUARD"))]);
        // The chain of a network is new, its pod is not.
        let other = pods(&["10.128.0.10"], "SNAT --to-source 192.168.50.202");
        let part = Rules {
            chains: [(guard("GUARD-0a8000"), pods(&["10.128.0.10"], "RETURN")), (snat, other)].into(),
            jumps: BTreeMap::new(),
        };
        let steps = super::rules(&old, &part);
        assert_eq!(guarded(&old, &steps), (steps, Vec::new()));
        // A pod is not bound any more: mangle is the first table.
        let steps = super::rules(&new, &old);
        assert_eq!(guarded(&new, &steps), (steps, Vec::new()));
    }

    #[test]
    fn bundle_deletes_only_flows_with_the_cookie() {
        let flow = Flow::new(100, 140, &[Match::Ip, Match::Reg3(0xaabb)], &[Action::Drop]);
        assert_eq!(
            bundle(&[FlowChange::Delete(flow.key.clone()), FlowChange::Add(flow)]),
            "flow delete_strict cookie=0xc6e0000000000000/0xfff0000000000000,table=100,priority=140,ip,reg3=0xaabb\n\
             flow add cookie=0xc6e0000000000000,table=100,priority=140,ip,reg3=0xaabb,actions=drop\n"
        );
    }
}
