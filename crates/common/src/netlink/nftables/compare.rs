//! Compares an existing table with a desired one.

use std::collections::BTreeMap;

use super::chain::Chain;
use super::dump::Dump;
use super::rule::Rule;
use super::set::{Element, Set};
use crate::netlink::message::{Attribute, Message, NESTED, attributes};

impl Dump {
    /// Whether the table has exactly this content. The rules of a chain are in order of evaluation; `elements` is called with the name of each
    /// set. Anonymous sets cannot be compared: a table with them is different.
    pub fn is<'a>(
        &self,
        chains: &[Chain],
        rules: &[(String, Rule)],
        sets: &[Set],
        elements: impl Fn(&str) -> Vec<&'a Element>,
    ) -> bool {
        // NFTA_TABLE_FLAGS: a dormant table has no effect.
        payload(&self.table, 2).iter().all(|byte| *byte == 0)
            && self.has_chains(chains)
            && self.has_rules(rules)
            && self.has_sets(sets, elements)
    }

    fn has_chains(&self, chains: &[Chain]) -> bool {
        let found: BTreeMap<_, _> =
            self.chains.iter().map(|chain| (chain.name.as_str(), &chain.raw)).collect();
        let same = |chain: &Chain| {
            let mut message = Message::new(0, 0, &[]);
            chain.write(&mut message);
            found.get(chain.name.as_str()).is_some_and(|raw| includes(raw, message.body()))
        };
        self.chains.len() == chains.len() && chains.iter().all(same)
    }

    fn has_rules(&self, rules: &[(String, Rule)]) -> bool {
        let mut found: BTreeMap<&str, Vec<&[u8]>> = BTreeMap::new();
        for rule in &self.rules {
            found.entry(&rule.chain).or_default().push(&rule.raw);
        }
        let mut found: BTreeMap<_, _> =
            found.into_iter().map(|(chain, rules)| (chain, rules.into_iter())).collect();
        let mut same = |(chain, rule): &(String, Rule)| {
            let mut message = Message::new(0, 0, &[]);
            rule.write(&mut message);
            let raw = found.get_mut(chain.as_str()).and_then(Iterator::next);
            raw.is_some_and(|raw| {
                // NFTA_RULE_EXPRESSIONS, _USERDATA. The dump has the expressions themselves, without the attribute around them.
                includes_list(raw, payload(message.body(), 4)) && payload(raw, 7) == rule.userdata
            })
        };
        self.rules.len() == rules.len() && rules.iter().all(&mut same)
    }

    fn has_sets<'a>(&self, sets: &[Set], elements: impl Fn(&str) -> Vec<&'a Element>) -> bool {
        let found: BTreeMap<_, _> = self.sets.iter().map(|set| (set.name.as_str(), set)).collect();
        let same = |set: &Set| {
            let mut message = Message::new(0, 0, &[]);
            set.write(&mut message, 0);
            let Some(dump) = found.get(set.name.as_str()) else { return false };
            // NFTA_SET_ID: only in requests.
            if !includes_but(&dump.raw, message.body(), 10) {
                return false;
            }
            let found: Result<Vec<_>, _> = dump.elements.iter().map(|raw| Element::read(raw)).collect();
            // Another program has added an element of a kind that is never desired.
            let Ok(mut found) = found else { return false };
            found.sort_unstable();
            let mut desired = elements(&set.name);
            desired.sort_unstable();
            found.iter().eq(desired)
        };
        self.sets.len() == sets.len() && sets.iter().all(same)
    }
}

/// The payload of the first attribute of this type; empty without one.
fn payload(raw: &[u8], kind: u16) -> &[u8] {
    attributes(raw).of_kind(kind).ok().flatten().map(|attribute| attribute.payload).unwrap_or_default()
}

/// Whether `raw`, the kernel's attributes, has each attribute of `desired`. It may have more.
fn includes(raw: &[u8], desired: &[u8]) -> bool {
    includes_but(raw, desired, u16::MAX)
}

fn includes_but(raw: &[u8], desired: &[u8], omitted: u16) -> bool {
    let mut seen: BTreeMap<u16, usize> = BTreeMap::new();
    attributes(desired).filter_map(Result::ok).filter(|attribute| attribute.kind != omitted).all(
        |attribute| {
            // Kinds occur several times only in lists.
            let place = seen.entry(attribute.kind).or_default();
            let found = attributes(raw)
                .filter_map(Result::ok)
                .filter(|other| other.kind == attribute.kind)
                .nth(*place);
            *place = place.saturating_add(1);
            match found {
                Some(found) => same(&found, &attribute),
                // The kernel omits a number that is zero, such as the flags of a set.
                None => attribute.payload.iter().all(|byte| *byte == 0),
            }
        },
    )
}

/// As [`includes`], and the list in `raw` has no more elements (NFTA_LIST_ELEM with a name inside) than `desired`.
fn includes_list(raw: &[u8], desired: &[u8]) -> bool {
    // Behind the rule's own attributes. NFTA_RULE_TABLE is a text with the same number as a list's element.
    let count = |bytes: &[u8]| attributes(bytes).filter_map(Result::ok).filter(|one| one.kind == 1).count();
    let own = attributes(raw)
        .filter_map(Result::ok)
        .next()
        .map_or(0, |table| table.payload.len().next_multiple_of(4).saturating_add(4));
    let rest = raw.get(own..).unwrap_or_default();
    count(rest) == count(desired) && includes(rest, desired)
}

fn same(found: &Attribute<'_>, desired: &Attribute<'_>) -> bool {
    if desired.raw_kind & NESTED != 0 {
        // Of an expression that counts, the dump has its name only.
        let name = desired.nested().find_map(Result::ok).map(|name| name.payload);
        name == Some(found.payload) || includes(found.payload, desired.payload)
    } else {
        found.payload == desired.payload
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::nftables::dump::SetDump;
    use crate::netlink::nftables::{DataType, Verdict};

    /// The attributes of an element of a verdict map.
    fn element(key: [u8; 4], verdict: u32) -> Vec<u8> {
        let mut message = Message::new(0, 0, &[]);
        // NFTA_SET_ELEM_KEY with NFTA_DATA_VALUE; NFTA_SET_ELEM_DATA with NFTA_DATA_VERDICT and NFTA_VERDICT_CODE.
        message.nest(1, |message| {
            message.attribute(1, &key);
        });
        message.nest(2, |message| {
            message.nest(2, |message| {
                message.be32(1, verdict);
            });
        });
        message.body().to_vec()
    }

    #[test]
    fn an_element_that_cannot_be_read_is_a_difference() {
        let set = Set::verdict_map("services", &[DataType::Ipv4]);
        let mut raw = Message::new(0, 0, &[]);
        set.write(&mut raw, 0);
        let accepted = Element::with_verdict([10, 0, 0, 1], Verdict::Accept);
        let is = |elements: Vec<Vec<u8>>| {
            let dump = SetDump { name: "services".to_owned(), raw: raw.body().to_vec(), elements };
            let dump = Dump { sets: vec![dump], ..Dump::default() };
            dump.is(&[], &[], std::slice::from_ref(&set), |_| vec![&accepted])
        };
        // NF_ACCEPT, and NF_QUEUE of another program.
        assert!(is(vec![element([10, 0, 0, 1], 1)]));
        assert!(!is(vec![element([10, 0, 0, 1], 1), element([10, 0, 0, 2], 3)]));
    }
}
