//! A complete nf_tables table, and the batches that create or change it.

use std::collections::{BTreeMap, BTreeSet};

use common::netlink::nftables::{Batch, Chain, Element, Family, Rule, Set};

/// Name of the table, of family ip.
pub const NAME: &str = "cgw";

/// The content of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Chains, which are created before the first rule.
    pub chains: Vec<Chain>,
    /// Rules in order of evaluation, each with its chain.
    pub rules: Vec<(String, Rule)>,
    /// Sets and maps.
    pub sets: Vec<Set>,
    /// Elements of each set, by its name.
    pub elements: BTreeMap<String, BTreeSet<Element>>,
}

impl Table {
    /// Adds a chain with its rules.
    pub fn chain(&mut self, chain: Chain, rules: impl IntoIterator<Item = Rule>) {
        self.rules.extend(rules.into_iter().map(|rule| (chain.name.clone(), rule)));
        self.chains.push(chain);
    }

    /// Adds a set or map with its elements.
    pub fn set(&mut self, set: Set, elements: impl IntoIterator<Item = Element>) {
        self.elements.insert(set.name.clone(), elements.into_iter().collect());
        self.sets.push(set);
    }

    /// Whether the other table differs in elements only.
    #[must_use]
    pub fn has_structure_of(&self, other: &Table) -> bool {
        self.chains == other.chains && self.rules == other.rules && self.sets == other.sets
    }

    /// Replaces an existing table.
    #[must_use]
    pub fn replace(&self) -> Batch {
        let mut batch = Batch::new(Family::Ipv4, NAME).replace_table();
        for chain in &self.chains {
            batch = batch.add_chain(chain);
        }
        for set in &self.sets {
            batch = batch.add_set(set);
            if let Some(elements) = self.elements.get(&set.name).filter(|elements| !elements.is_empty()) {
                let elements: Vec<_> = elements.iter().cloned().collect();
                batch = batch.add_elements(&set.name, &elements);
            }
        }
        for (chain, rule) in &self.rules {
            batch = batch.add_rule(chain, rule);
        }
        batch
    }

    /// Changes `old`, which has the same structure, into this one.
    #[must_use]
    pub fn update(&self, old: &Table) -> Batch {
        let mut batch = Batch::new(Family::Ipv4, NAME);
        for set in &self.sets {
            let (Some(new), Some(old)) = (self.elements.get(&set.name), old.elements.get(&set.name)) else {
                continue;
            };
            if new == old {
                continue;
            }
            if set.interval && set.key.len() == 1 {
                // Bounds of ranges depend on each other.
                let elements: Vec<_> = new.iter().cloned().collect();
                batch = batch.flush_set(&set.name).add_elements(&set.name, &elements);
                continue;
            }
            let removed: Vec<_> = old.difference(new).cloned().collect();
            let added: Vec<_> = new.difference(old).cloned().collect();
            batch = batch.delete_elements(&set.name, &removed).add_elements(&set.name, &added);
        }
        batch
    }
}
