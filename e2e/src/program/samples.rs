//! Metrics in Prometheus' text format.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

/// The samples of one scrape.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<Sample>);

#[derive(Debug, Clone)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Samples {
    /// Reads the text format.
    ///
    /// # Errors
    /// Names the line that is not a sample.
    pub fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let samples: Result<Vec<_>> =
            lines.map(|line| sample(line).with_context(|| format!("not a metric: {line}"))).collect();
        Ok(Self(samples?))
    }

    /// The sum of the samples of this name that have all these labels; `None` if there is none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let has = |sample: &&Sample| {
            sample.name == name
                && labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|v| v == value))
        };
        self.0.iter().filter(has).map(|sample| sample.value).reduce(|sum, value| sum + value)
    }

    /// Every sample: name, labels, value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &BTreeMap<String, String>, f64)> {
        self.0.iter().map(|sample| (sample.name.as_str(), &sample.labels, sample.value))
    }

    /// Every name, once.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.0.iter().map(|sample| sample.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(mut inside) = rest.strip_prefix('{') {
        loop {
            inside = inside.trim_start_matches([',', ' ']);
            if let Some(after) = inside.strip_prefix('}') {
                rest = after;
                break;
            }
            let (key, after) = inside.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.insert(key.to_owned(), value);
            inside = after;
        }
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// A value up to its closing quote, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    loop {
        match chars.next()? {
            (at, '"') => return Some((value, text.get(at + 1..)?)),
            (_, '\\') => match chars.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            (_, other) => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_by_label() {
        let text = "# HELP a x\n# TYPE a counter\na{x=\"1\",y=\"say \\\"}, hi\\\"\"} 2\na{x=\"1\",y=\"b\",} 3 1700000000\na{x=\"2\"} 4\nb 1.5e3\n";
        let samples = Samples::parse(text).unwrap();
        assert_eq!(samples.sum("a", &[("x", "1")]), Some(5.0));
        assert_eq!(samples.sum("a", &[("y", "say \"}, hi\"")]), Some(2.0));
        assert_eq!(samples.sum("a", &[]), Some(9.0));
        assert_eq!(samples.sum("b", &[]), Some(1500.0));
        assert_eq!(samples.sum("a", &[("x", "3")]), None);
        assert_eq!(samples.names(), ["a", "b"]);
        assert!(Samples::parse("a{x=\"1} 2").is_err());
    }
}
