//! `podIP`: the addresses of each pod, by name or `prefix*`.

use std::collections::BTreeMap;

use super::ip::Ip;

/// Keys as they are written; a `*` only at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodIp(pub BTreeMap<String, Ip>);
