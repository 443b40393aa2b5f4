//! `ipConfig`: a ConfigMap that names the addresses, and what it may name (`overrides`).

use super::ip::Ip;

/// Where the ConfigMap is, and what it may say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpConfig {
    /// `namespace`; none: the pod's.
    pub namespace: Option<String>,
    /// `name`.
    pub name: String,
    /// `overrides`; `allowed: None` and empty lists mean that it says nothing of them.
    pub overrides: Option<Ip>,
}
