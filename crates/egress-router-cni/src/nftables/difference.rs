//! The differences between an existing table and the desired one.

use std::collections::BTreeMap;

use common::netlink::message::{Message, NESTED, attributes};

use super::expression::Expression;
use super::observed;
use super::ruleset::{Chain, Ruleset};
use super::set::Set;

/// An existing table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// None: there is no such table.
    pub table: Option<observed::Table>,
    /// Its chains.
    pub chains: Vec<observed::Chain>,
    /// Its rules, in order within each chain.
    pub rules: Vec<observed::Rule>,
    /// Its sets, including anonymous ones.
    pub sets: Vec<(observed::Set, Vec<observed::Element>)>,
}

/// NF_ACCEPT.
const ACCEPT: u32 = 1;

/// One sentence for each difference; empty if equal. Attributes that the kernel adds are ignored.
#[must_use]
pub fn differences(desired: &Ruleset, found: &Observed) -> Vec<String> {
    let name = &desired.table;
    let Some(table) = &found.table else { return vec![format!("table {name} is missing")] };
    let mut problems = Vec::new();
    if table.flags & 1 != 0 {
        problems.push(format!("table {name} is dormant"));
    }
    for chain in &desired.chains {
        match found.chains.iter().find(|other| other.name == chain.name) {
            None => problems.push(format!("chain {} is missing", chain.name)),
            Some(other) => problems.extend(hooked(chain, other)),
        }
        let rules: Vec<_> = found.rules.iter().filter(|rule| rule.chain == chain.name).collect();
        problems.extend(ruled(chain, &rules));
    }
    let foreign =
        found.chains.iter().filter(|chain| desired.chains.iter().all(|ours| ours.name != chain.name));
    problems.extend(foreign.map(|chain| format!("chain {} is unexpected", chain.name)));
    for set in &desired.sets {
        match found.sets.iter().find(|(other, _)| other.name == set.name) {
            None => problems.push(format!("set {} is missing", set.name)),
            Some((other, elements)) => problems.extend(filled(set, other, elements)),
        }
    }
    let foreign = found.sets.iter().filter(|(set, _)| desired.sets.iter().all(|ours| ours.name != set.name));
    problems.extend(foreign.map(|(set, _)| format!("set {} is unexpected", set.name)));
    problems
}

/// Hook, priority, type and policy.
fn hooked(desired: &Chain, found: &observed::Chain) -> Option<String> {
    let name = desired.name;
    let same = match desired.base {
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
fn ruled(desired: &Chain, found: &[&observed::Rule]) -> Vec<String> {
    let name = desired.name;
    let mut problems = Vec::new();
    let mut rest = found.iter().copied().zip(1_usize..).peekable();
    for rule in &desired.rules {
        let expressions = encoded(&rule.expressions);
        let is = |other: &observed::Rule| {
            other.comment == rule.comment && same_expressions(&other.expressions, &expressions)
        };
        let missing = || format!("chain {name}: the rule \"{}\" is missing or out of place", rule.comment);
        // If the desired rule comes later, the rules before it are foreign; if it does not, it is missing and this may be the next one.
        if !rest.clone().any(|(other, _)| is(other)) {
            let changed = rest.next_if(|(other, _)| other.comment == rule.comment);
            problems.push(match changed {
                Some(_) => format!("chain {name}: the rule \"{}\" was modified", rule.comment),
                None => missing(),
            });
            continue;
        }
        while let Some((other, place)) = rest.next_if(|(other, _)| !is(other)) {
            problems.push(foreign_rule(name, other, place));
        }
        rest.next();
    }
    problems.extend(rest.map(|(other, place)| foreign_rule(name, other, place)));
    problems
}

fn foreign_rule(chain: &str, rule: &observed::Rule, place: usize) -> String {
    let names: Vec<_> = rule.expressions.iter().map(|expression| expression.name.as_str()).collect();
    let what = if rule.comment.is_empty() { names.join(" ") } else { format!("\"{}\"", rule.comment) };
    format!("chain {chain}: rule {place} ({what}) is unexpected")
}

/// Kind and elements.
fn filled(desired: &Set, found: &observed::Set, elements: &[observed::Element]) -> Option<String> {
    let name = desired.name;
    if found.flags != desired.flags() || found.key_length != desired.key.length() {
        return Some(format!("set {name} is of another type"));
    }
    // Bounds that are only desired, and bounds that only the kernel has.
    let mut counted: BTreeMap<(&[u8], bool), (u32, u32)> = BTreeMap::new();
    for element in &desired.elements {
        counted.entry((&element.key, element.end)).or_default().0 += 1;
    }
    for element in elements {
        counted.entry((&element.key, element.end())).or_default().1 += 1;
    }
    let missing = counted.values().filter(|(ours, theirs)| ours > theirs).count();
    let more = counted.values().filter(|(ours, theirs)| ours < theirs).count();
    (missing > 0 || more > 0)
        .then(|| format!("set {name}: {missing} elements are missing, {more} are unexpected"))
}

/// The desired expressions in the format of observed ones.
fn encoded(expressions: &[Expression]) -> Vec<observed::Expression> {
    let mut message = Message::new(0, 0, &[]);
    expressions.iter().for_each(|expression| expression.write(&mut message));
    let elements = attributes(message.body()).filter_map(Result::ok);
    elements.filter_map(|element| observed::Expression::read(element).ok()).collect()
}

fn same_expressions(found: &[observed::Expression], desired: &[observed::Expression]) -> bool {
    found.len() == desired.len()
        && found
            .iter()
            .zip(desired)
            .all(|(found, desired)| found.name == desired.name && holds(&found.data, &desired.data))
}

/// Whether each attribute of `desired` is in `found`, with the same payload or, if nested, with the same attributes in it.
fn holds(found: &[u8], desired: &[u8]) -> bool {
    attributes(desired).filter_map(Result::ok).all(|desired| {
        let mut same_kind =
            attributes(found).filter_map(Result::ok).filter(|found| found.kind == desired.kind);
        if desired.raw_kind & NESTED == 0 {
            same_kind.any(|found| found.payload == desired.payload)
        } else {
            same_kind.any(|found| holds(found.payload, desired.payload))
        }
    })
}
