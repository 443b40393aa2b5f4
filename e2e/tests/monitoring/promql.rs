//! The metrics and labels that a PromQL expression names. promtool checks the syntax.

use std::collections::{BTreeMap, BTreeSet};

/// The metrics and labels that one expression names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Metrics, each with the labels that it is selected by.
    pub selected: Vec<(String, BTreeMap<String, String>)>,
    /// Labels in `by (...)` and `on (...)`.
    pub grouped: BTreeSet<String>,
}

const OPERATORS: [&str; 7] = ["and", "or", "unless", "bool", "offset", "inf", "nan"];
const GROUPINGS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];

pub fn names(expression: &str) -> Names {
    let mut names = Names::default();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        if first.is_ascii_digit() {
            // A number or a duration.
            rest = rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.');
        } else if is_word(first) {
            let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            rest = after.trim_start();
            if GROUPINGS.contains(&word) {
                let (inside, after) = rest.strip_prefix('(').unwrap().split_once(')').unwrap();
                names.grouped.extend(inside.split(',').map(|label| label.trim().to_owned()));
                rest = after;
            } else if rest.starts_with('(') || rest.starts_with("by (") || OPERATORS.contains(&word) {
                // A function, an aggregation or an operator.
            } else {
                let (labels, after) = match rest.strip_prefix('{') {
                    Some(inside) => matchers(inside),
                    None => (BTreeMap::new(), rest),
                };
                names.selected.push((word.to_owned(), labels));
                rest = after;
            }
        } else if first == '[' {
            rest = rest.split_once(']').unwrap().1;
        } else {
            rest = rest.strip_prefix(first).unwrap();
        }
        rest = rest.trim_start();
    }
    names
}

/// Splits at the closing brace. Values do not contain quotes.
fn matchers(mut rest: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(after) = rest.strip_prefix('}') {
            return (labels, after);
        }
        let (key, after) = rest.split_once('"').unwrap();
        let (value, after) = after.split_once('"').unwrap();
        let name = key.trim().trim_end_matches(['=', '~', '!']).trim();
        // A negative matcher does not require the label.
        if !key.contains('!') {
            labels.insert(name.to_owned(), value.to_owned());
        }
        rest = after;
    }
}

#[test]
fn metrics_labels_and_groupings_are_distinguished_from_functions() {
    let found = names(
        "histogram_quantile(0.99, sum by (le, verb) (rate(a_bucket{x=\"y z\", n=~\"$v\"}[$__rate_interval]))) * 60 \
         unless on (job) b{y!~\"z\"} == 0 and max(c{}) > 1.5e3",
    );
    let labels = BTreeMap::from([("x".to_owned(), "y z".to_owned()), ("n".to_owned(), "$v".to_owned())]);
    let none = BTreeMap::new;
    assert_eq!(
        found.selected,
        [("a_bucket".to_owned(), labels), ("b".to_owned(), none()), ("c".to_owned(), none())]
    );
    assert_eq!(found.grouped, ["job", "le", "verb"].map(str::to_owned).into());
}
