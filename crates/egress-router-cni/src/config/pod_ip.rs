//! `podIP`: the addresses of each pod, by name or `prefix*`.

use std::collections::BTreeMap;

use super::ip::Ip;
use crate::cni::field::Field;
use crate::cni::{Code, Error};

/// Entries by key; a `*` is allowed only at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodIp(pub BTreeMap<String, Ip>);

impl PodIp {
    /// Parses a `podIP`. Every entry must be valid, also those of other pods, so that a mistake is found with the first pod.
    ///
    /// # Errors
    ///
    /// As [`Ip::parse`]; code 7 for a key that cannot match a pod's name, and for an empty dictionary.
    pub fn parse(field: &Field<'_>) -> Result<Self, Error> {
        let mut pods = BTreeMap::new();
        for (key, ip) in field.dict()?.fields() {
            let prefix = key.strip_suffix('*').unwrap_or(key);
            let possible = prefix.len() <= 253
                && prefix.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
                && !prefix.starts_with(['-', '.']);
            if key.is_empty() || !possible {
                return Err(ip.invalid(format_args!(
                    "its key {key:?} matches no pod: it must be a pod's name (lower-case letters, digits, '-', '.'), or the \
                     beginning of one with '*' at the end"
                )));
            }
            pods.insert(key.to_owned(), Ip::parse(&ip)?);
        }
        if pods.is_empty() {
            return Err(field.invalid("it must name at least one pod"));
        }
        Ok(Self(pods))
    }

    /// The entry of `pod`. `path` is that of this `podIP`, for messages.
    ///
    /// # Errors
    ///
    /// Code 4: the pod's name is unknown. Code 7: it has no entry.
    pub fn of_pod(&self, pod: Option<&str>, path: &str) -> Result<&Ip, Error> {
        let pod = pod.ok_or_else(|| {
            let message = format!("CNI_ARGS has no K8S_POD_NAME, which {path} needs");
            Error::new(Code::InvalidEnvironment, message)
        })?;
        self.find(pod).ok_or_else(|| {
            let keys: Vec<_> = self.0.keys().map(String::as_str).collect();
            let message = format!("{path} has no entry for the pod {pod:?}: it has {}", keys.join(", "));
            Error::invalid_config(message)
        })
    }

    /// The entry of this name, otherwise that of the longest prefix; `*` matches every pod.
    fn find(&self, pod: &str) -> Option<&Ip> {
        if let Some(ip) = self.0.get(pod) {
            return Some(ip);
        }
        self.0
            .iter()
            .filter_map(|(key, ip)| Some((key.strip_suffix('*')?, ip)))
            .filter(|(prefix, _)| pod.starts_with(prefix))
            .max_by_key(|(prefix, _)| prefix.len())
            .map(|(_, ip)| ip)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::PodIp;
    use crate::cni::field::Field;
    use crate::cni::{Code, Error};

    fn parse(value: &Value) -> Result<PodIp, Error> {
        PodIp::parse(&Field::new("podIP", value))
    }

    fn found(keys: &[&str], pod: &str) -> Option<String> {
        let entries: serde_json::Map<_, _> = keys
            .iter()
            .enumerate()
            .map(|(index, key)| {
                ((*key).to_owned(), json!({"addresses": [format!("192.0.2.{}/24", index + 1)]}))
            })
            .collect();
        let pods = parse(&Value::Object(entries)).unwrap();
        let ip = pods.find(pod)?;
        pods.0.iter().find(|(_, other)| *other == ip).map(|(key, _)| key.clone())
    }

    #[test]
    fn the_exact_name_precedes_the_longest_prefix_and_the_catch_all() {
        let keys = ["db", "db*", "d*", "*"];
        for (pod, key) in [("db", "db*"), ("db-1", "db*"), ("dx", "d*"), ("web", "*")] {
            let key = if pod == "db" { "db" } else { key };
            assert_eq!(found(&keys, pod).as_deref(), Some(key), "{pod}");
        }
        assert_eq!(found(&["db", "d*"], "web"), None);
        assert_eq!(found(&["alpha-*"], "alpha-").as_deref(), Some("alpha-*"));
        assert_eq!(found(&["alpha-*"], "alpha"), None);
    }

    #[test]
    fn a_key_that_matches_no_pod_is_refused() {
        let ip = json!({"addresses": ["192.0.2.1/24"]});
        for key in ["", "DB", "a*b", "**", "a_b", "-a", "a b", &"a".repeat(254)] {
            let error = parse(&json!({ key: ip })).unwrap_err();
            assert_eq!(error.code, Code::InvalidConfig, "{key:?}");
        }
        assert_eq!(parse(&json!({})).unwrap_err().code, Code::InvalidConfig);
        assert_eq!(parse(&json!([])).unwrap_err().code, Code::Decode);
    }

    #[test]
    fn entries_of_other_pods_must_be_valid() {
        let error =
            parse(&json!({"a": {"addresses": ["192.0.2.1/24"]}, "b": {"addresses": []}})).unwrap_err();
        assert!(error.message.starts_with("podIP.b.addresses"), "{error}");
    }

    proptest! {
        #[test]
        fn the_longest_matching_entry_is_found(
            keys in proptest::collection::btree_set("[ab]{0,3}\\*|[ab]{1,3}", 1..8),
            pod in "[ab]{1,4}",
        ) {
            let keys: Vec<_> = keys.iter().map(String::as_str).collect();
            let matches = |key: &str| key == pod || key.strip_suffix('*').is_some_and(|prefix| pod.starts_with(prefix));
            let rank = |key: &str| if key == pod { usize::MAX } else { key.len() };
            match found(&keys, &pod) {
                Some(key) => {
                    prop_assert!(matches(&key));
                    prop_assert!(keys.iter().filter(|other| matches(other)).all(|other| rank(other) <= rank(&key)));
                }
                None => prop_assert!(!keys.iter().any(|key| matches(key))),
            }
        }
    }
}
