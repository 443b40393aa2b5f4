//! Label selectors: `k=v`, `k==v`, `k!=v`, `k`, `!k`, `k in (a,b)`, `k notin (a,b)`, joined by commas.

use std::collections::BTreeMap;

/// A parsed `label_selector`: all of its terms must match.
#[derive(Debug, PartialEq)]
pub(super) struct Selector(Vec<Term>);

#[derive(Debug, PartialEq)]
enum Term {
    Has(String),
    HasNot(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
}

impl Selector {
    pub fn parse(text: &str) -> Result<Self, String> {
        terms(text).into_iter().map(|term| Term::parse(term.trim())).collect::<Result<_, _>>().map(Self)
    }

    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|term| match term {
            Term::Has(key) => labels.contains_key(key),
            Term::HasNot(key) => !labels.contains_key(key),
            Term::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            // As in Kubernetes: a resource without the key does not have one of the values.
            Term::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
        })
    }
}

/// Splits at the commas that are not inside parentheses.
fn terms(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
    .collect()
}

impl Term {
    fn parse(text: &str) -> Result<Self, String> {
        if let Some(rest) = text.strip_suffix(')') {
            let (head, values) = rest.split_once('(').ok_or_else(|| format!("'(' is missing in '{text}'"))?;
            let values = values.split(',').map(|v| value(v.trim())).collect::<Result<_, _>>()?;
            return match head.split_whitespace().collect::<Vec<_>>()[..] {
                [name, "in"] => Ok(Self::In(key(name)?, values)),
                [name, "notin"] => Ok(Self::NotIn(key(name)?, values)),
                _ => Err(format!("'{text}' is neither 'key in (…)' nor 'key notin (…)'")),
            };
        }
        if let Some((name, expected)) = text.split_once("!=") {
            return Ok(Self::NotIn(key(name.trim())?, vec![value(expected.trim())?]));
        }
        if let Some((name, expected)) = text.split_once("==").or_else(|| text.split_once('=')) {
            return Ok(Self::In(key(name.trim())?, vec![value(expected.trim())?]));
        }
        match text.strip_prefix('!') {
            Some(name) => Ok(Self::HasNot(key(name.trim())?)),
            None => Ok(Self::Has(key(text)?)),
        }
    }
}

/// `prefix/name`, the prefix optional: a DNS subdomain of at most 253 characters.
fn key(text: &str) -> Result<String, String> {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let prefix_fits = prefix.is_none_or(|p| !p.is_empty() && p.len() <= 253 && p.split('.').all(word));
    if prefix_fits && word(name) { Ok(text.to_owned()) } else { Err(format!("'{text}' is not a label key")) }
}

fn value(text: &str) -> Result<String, String> {
    if text.is_empty() || word(text) {
        Ok(text.to_owned())
    } else {
        Err(format!("'{text}' is not a label value"))
    }
}

/// At most 63 characters, alphanumeric at both ends, `-`, `_`, `.` between.
fn word(text: &str) -> bool {
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && ends(text.chars().next())
        && ends(text.chars().next_back())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// Whether the API accepts this label.
pub(super) fn check_label(name: &str, text: &str) -> Result<(), String> {
    if name.starts_with("hetzner.cloud/") {
        return Err(format!("label '{name}': the prefix is reserved"));
    }
    key(name).and_then(|_| value(text)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Selector::parse(selector).unwrap().matches(&labels)
    }

    #[test]
    fn each_form_of_the_documentation_is_applied() {
        let labels = [("env", "prod"), ("example.com/role", "db")];
        for yes in [
            "env=prod",
            "env==prod",
            "env!=dev",
            "env",
            "!tier",
            "env in (dev, prod)",
            "env notin (dev,test)",
            "tier notin (a)",
            "tier!=a",
            "env=prod,example.com/role=db",
            "env in (prod,dev),!tier",
        ] {
            assert!(matches(yes, &labels), "{yes}");
        }
        for no in
            ["env=dev", "env!=prod", "tier", "!env", "env in (dev)", "env notin (prod)", "env=prod,tier"]
        {
            assert!(!matches(no, &labels), "{no}");
        }
        assert!(matches("just-a-key=", &[("just-a-key", "")]));
    }

    #[test]
    fn invalid_selectors_are_refused() {
        for bad in
            ["", "env=pr od", "=x", "env in prod)", "env near (a)", "a,,b", "!", "-a", "a/b/c", "k in (a"]
        {
            assert!(Selector::parse(bad).is_err(), "{bad}");
        }
    }
}
