//! How a table differs from the one that was asked for.

use std::collections::BTreeMap;

use super::expression::Expression;
use super::found;
use super::ruleset::{Chain, Ruleset};
use super::set::Set;
use crate::netlink::message::{Message, NESTED, attributes};

/// A table as it is found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    /// None: there is no such table.
    pub table: Option<found::Table>,
    /// Its chains.
    pub chains: Vec<found::Chain>,
    /// Its rules, each chain's in its order.
    pub rules: Vec<found::Rule>,
    /// Its sets, those without a name among them.
    pub sets: Vec<(found::Set, Vec<found::Element>)>,
}

/// NF_ACCEPT.
const ACCEPT: u32 = 1;

/// One sentence for each difference; none: as it was built. Attributes that the kernel adds are no difference.
#[must_use]
pub fn differences(wanted: &Ruleset, found: &Found) -> Vec<String> {
    let name = &wanted.table;
    let Some(table) = &found.table else { return vec![format!("table {name} is missing")] };
    let mut said = Vec::new();
    if table.flags & 1 != 0 {
        said.push(format!("table {name} is dormant"));
    }
    for chain in &wanted.chains {
        match found.chains.iter().find(|other| other.name == chain.name) {
            None => said.push(format!("chain {} is missing", chain.name)),
            Some(other) => said.extend(hooked(chain, other)),
        }
        let rules: Vec<_> = found.rules.iter().filter(|rule| rule.chain == chain.name).collect();
        said.extend(ruled(chain, &rules));
    }
    let foreign =
        found.chains.iter().filter(|chain| wanted.chains.iter().all(|ours| ours.name != chain.name));
    said.extend(foreign.map(|chain| format!("chain {} is not ours", chain.name)));
    for set in &wanted.sets {
        match found.sets.iter().find(|(other, _)| other.name == set.name) {
            None => said.push(format!("set {} is missing", set.name)),
            Some((other, elements)) => said.extend(filled(set, other, elements)),
        }
    }
    let foreign = found.sets.iter().filter(|(set, _)| wanted.sets.iter().all(|ours| ours.name != set.name));
    said.extend(foreign.map(|(set, _)| format!("set {} is not ours", set.name)));
    said
}

/// Hook, priority, type and policy.
fn hooked(wanted: &Chain, found: &found::Chain) -> Option<String> {
    let name = wanted.name;
    let same = match wanted.base {
        None => found.hook.is_none(),
        Some(base) => {
            found.hook == Some((base.hook.number(), base.priority))
                && found.kind.as_deref() == Some(base.kind.name())
        }
    };
    if !same {
        return Some(format!("chain {name} has another type, hook or priority"));
    }
    let policy = found.policy.unwrap_or(ACCEPT);
    (policy != ACCEPT).then(|| format!("chain {name} has the policy drop"))
}

/// Rules, in order.
fn ruled(wanted: &Chain, found: &[&found::Rule]) -> Vec<String> {
    let name = wanted.name;
    let mut said = Vec::new();
    let mut rest = found.iter().copied().zip(1_usize..).peekable();
    for rule in &wanted.rules {
        let expressions = encoded(&rule.expressions);
        let is = |other: &found::Rule| {
            other.comment == rule.comment && same_expressions(&other.expressions, &expressions)
        };
        let missing = || format!("chain {name}: the rule \"{}\" is missing or out of place", rule.comment);
        // If it comes later, what is before it does not belong there; if it does not come, what is here may be the next one.
        if !rest.clone().any(|(other, _)| is(other)) {
            let changed = rest.next_if(|(other, _)| other.comment == rule.comment);
            said.push(match changed {
                Some(_) => format!("chain {name}: the rule \"{}\" is not as it was built", rule.comment),
                None => missing(),
            });
            continue;
        }
        while let Some((other, place)) = rest.next_if(|(other, _)| !is(other)) {
            said.push(strange(name, other, place));
        }
        rest.next();
    }
    said.extend(rest.map(|(other, place)| strange(name, other, place)));
    said
}

fn strange(chain: &str, rule: &found::Rule, place: usize) -> String {
    let names: Vec<_> = rule.expressions.iter().map(|expression| expression.name.as_str()).collect();
    let what = if rule.comment.is_empty() { names.join(" ") } else { format!("\"{}\"", rule.comment) };
    format!("chain {chain}: rule {place} ({what}) is not ours")
}

/// Kind and elements.
fn filled(wanted: &Set, found: &found::Set, elements: &[found::Element]) -> Option<String> {
    let name = wanted.name;
    if found.flags != wanted.flags() || found.key_length != wanted.key.length() {
        return Some(format!("set {name} is of another type"));
    }
    // What each bound counts for: one of ours, one of the kernel's.
    let mut counted: BTreeMap<(&[u8], bool), (u32, u32)> = BTreeMap::new();
    for element in &wanted.elements {
        counted.entry((&element.key, element.end)).or_default().0 += 1;
    }
    for element in elements {
        counted.entry((&element.key, element.end())).or_default().1 += 1;
    }
    let missing = counted.values().filter(|(ours, theirs)| ours > theirs).count();
    let more = counted.values().filter(|(ours, theirs)| ours < theirs).count();
    (missing > 0 || more > 0)
        .then(|| format!("set {name}: {missing} elements are missing, {more} are not ours"))
}

/// The expressions as they would be read, were they found as they are sent.
fn encoded(expressions: &[Expression]) -> Vec<found::Expression> {
    let mut message = Message::new(0, 0, &[]);
    expressions.iter().for_each(|expression| expression.write(&mut message));
    let elements = attributes(message.body()).filter_map(Result::ok);
    elements.filter_map(|element| found::Expression::read(element).ok()).collect()
}

fn same_expressions(found: &[found::Expression], wanted: &[found::Expression]) -> bool {
    found.len() == wanted.len()
        && found
            .iter()
            .zip(wanted)
            .all(|(found, wanted)| found.name == wanted.name && holds(&found.data, &wanted.data))
}

/// Each attribute of `wanted` is in `found`, with the same payload, or with one that holds what it nests.
fn holds(found: &[u8], wanted: &[u8]) -> bool {
    attributes(wanted).filter_map(Result::ok).all(|wanted| {
        let mut same_kind =
            attributes(found).filter_map(Result::ok).filter(|found| found.kind == wanted.kind);
        if wanted.raw_kind & NESTED == 0 {
            same_kind.any(|found| found.payload == wanted.payload)
        } else {
            same_kind.any(|found| holds(found.payload, wanted.payload))
        }
    })
}
