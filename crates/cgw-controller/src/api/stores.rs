//! Entries of the three stores. Each entry is one annotation of a store Service, so writers of different entries never conflict.

use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, SocketAddr},
};

use common::cache::ObjectKey;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::address::{TunId, Vip, VipRange, key_of_ip};
use crate::names::{BIND_PREFIX, HOST_PREFIX, PROVIDER_PREFIX};

/// The most bytes of all annotations of an object (`TotalAnnotationSizeLimitB` in k8s.io/apimachinery/pkg/api/validation).
pub const ANNOTATIONS_MAX: usize = 256 * 1024;

/// Version of the entries' format. Entries of another version are not read and not removed.
pub const VERSION: u8 = 1;

/// Entry of the store `hosts`: a keeper that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// 1.
    pub v: u8,
    /// Main address of the node.
    pub ip: IpAddr,
    /// Port of the status server.
    pub port: u16,
    /// Name of the Node.
    pub node: String,
    /// Virtual router ID (VRRP).
    pub vrid: u8,
    /// VIPs of the virtual router.
    pub vips: Vec<VipRange>,
    /// Unique for each start of the keeper, so that the entry of a predecessor is not removed by mistake.
    pub boot: String,
}

impl Host {
    /// Key of the annotation.
    #[must_use]
    pub fn key(&self) -> String {
        format!("{HOST_PREFIX}{}-{}", key_of_ip(self.ip), self.port)
    }

    /// Address of the status server.
    #[must_use]
    pub fn status(&self) -> SocketAddr {
        SocketAddr::new(self.ip, self.port)
    }

    /// Whether this virtual router serves the VIP.
    #[must_use]
    pub fn serves(&self, vip: Vip) -> bool {
        self.vips.iter().any(|range| range.contains(vip))
    }
}

/// Entry of the store `binds`: the first binding of a VIP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    /// 1.
    pub v: u8,
    /// A whole namespace, or one Service.
    #[serde(flatten)]
    pub owner: Owner,
    /// The binding's number.
    #[serde(rename = "tunId")]
    pub tun_id: TunId,
    /// An unbind has begun. No Service joins any more, and the record is removed once no Service carries the VIP. Services that
    /// still carry the VIP are bound until their annotations are removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unbinding: bool,
}

/// The object that a VIP is bound to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "scope", rename_all = "lowercase")]
pub enum Owner {
    /// Every Service of the namespace may join.
    Namespace {
        /// Its name.
        namespace: String,
    },
    /// Only this Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        service: String,
    },
}

impl Owner {
    /// The namespace, in both cases.
    #[must_use]
    pub fn namespace(&self) -> &str {
        let (Owner::Namespace { namespace } | Owner::Service { namespace, .. }) = self;
        namespace
    }

    /// Whether the Service may carry the VIP.
    #[must_use]
    pub fn admits(&self, key: &ObjectKey) -> bool {
        match self {
            Owner::Namespace { namespace } => namespace == key.namespace(),
            Owner::Service { namespace, service } => namespace == key.namespace() && service == key.name(),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Namespace { namespace } => write!(f, "namespace {namespace}"),
            Owner::Service { namespace, service } => write!(f, "Service {namespace}/{service}"),
        }
    }
}

impl Bind {
    /// Key of the annotation.
    #[must_use]
    pub fn key(vip: Vip) -> String {
        format!("{BIND_PREFIX}{}", vip.key())
    }
}

/// Entry of the store `providers`: the status servers that serve a VIP. A cache of `hosts`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provider {
    /// 1.
    pub v: u8,
    /// Addresses of the status servers, sorted.
    pub endpoints: Vec<SocketAddr>,
    /// `resourceVersion` of the store `hosts` that this was made from.
    #[serde(rename = "hostsVersion")]
    pub hosts_version: String,
}

impl Provider {
    /// Key of the annotation.
    #[must_use]
    pub fn key(vip: Vip) -> String {
        format!("{PROVIDER_PREFIX}{}", vip.key())
    }

    /// Reads the value of the annotation. None: it has another format.
    #[must_use]
    pub fn read(value: &str) -> Option<Provider> {
        serde_json::from_str(value).ok().filter(|provider: &Provider| provider.v == VERSION)
    }
}

/// Why an annotation of a store is no entry. The entry is reported and has no effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("annotation {key}: {error}")]
pub struct EntryError {
    /// The key.
    pub key: String,
    /// The reason.
    pub error: String,
}

type Annotations = BTreeMap<String, String>;

/// The entries with this prefix. `parse` gets the rest of the key, and the value.
fn entries<T>(
    annotations: &Annotations,
    prefix: &str,
    parse: impl Fn(&str, &str) -> Result<T, String>,
) -> (Vec<T>, Vec<EntryError>) {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for (key, value) in annotations.iter().filter(|(_, value)| !value.is_empty()) {
        let Some(rest) = key.strip_prefix(prefix) else { continue };
        match parse(rest, value) {
            Ok(entry) => good.push(entry),
            Err(error) => bad.push(EntryError { key: key.clone(), error }),
        }
    }
    (good, bad)
}

fn json<T: DeserializeOwned>(value: &str) -> Result<T, String> {
    serde_json::from_str(value).map_err(|error| error.to_string())
}

fn version(v: u8) -> Result<(), String> {
    if v == VERSION { Ok(()) } else { Err(format!("version {v} is not supported, {VERSION} is")) }
}

/// The running keepers. An entry whose key does not match its address is refused: a keeper writes only its own.
#[must_use]
pub fn hosts(annotations: &Annotations) -> (Vec<Host>, Vec<EntryError>) {
    entries(annotations, HOST_PREFIX, |rest, value| {
        let host: Host = json(value)?;
        version(host.v)?;
        if host.key().strip_prefix(HOST_PREFIX) != Some(rest) {
            return Err(format!("the entry is for {}", host.status()));
        }
        Ok(host)
    })
}

/// The bindings by VIP.
#[must_use]
pub fn binds(annotations: &Annotations) -> (BTreeMap<Vip, Bind>, Vec<EntryError>) {
    let (list, errors) = entries(annotations, BIND_PREFIX, |rest, value| {
        let vip = Vip::of_key(rest).map_err(|error| error.to_string())?;
        let bind: Bind = json(value)?;
        version(bind.v)?;
        Ok((vip, bind))
    });
    (list.into_iter().collect(), errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(entries: &[(&str, &str)]) -> Annotations {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn entries_are_read_and_others_are_reported() {
        let host = r#"{"v":1,"ip":"192.168.50.21","port":63051,"node":"g1","vrid":51,"vips":["192.168.50.201","192.168.50.202-192.168.50.210"],"boot":"6b1c"}"#;
        let newer = host.replace(r#""v":1"#, r#""v":2"#);
        let (good, bad) = hosts(&annotations(&[
            ("cgw-controller.perimeter.dev/host.192.168.50.21-63051", host),
            ("cgw-controller.perimeter.dev/host.192.168.50.22-63051", host),
            ("cgw-controller.perimeter.dev/host.192.168.50.23-63051", "no"),
            ("cgw-controller.perimeter.dev/host.192.168.50.24-63051", ""),
            ("cgw-controller.perimeter.dev/host.192.168.50.25-63051", newer.as_str()),
            ("other", "x"),
        ]));
        let invalid: Vec<_> = bad.iter().filter_map(|error| error.key.strip_prefix(HOST_PREFIX)).collect();
        assert_eq!(invalid, ["192.168.50.22-63051", "192.168.50.23-63051", "192.168.50.25-63051"]);
        assert_eq!(good.len(), 1);
        let vip = |text: &str| text.parse::<Vip>().unwrap();
        assert!(good[0].serves(vip("192.168.50.205")) && !good[0].serves(vip("192.168.50.20")));

        let bind = r#"{"v":1,"scope":"service","namespace":"b","service":"s","tunId":"0x0000aabb"}"#;
        let (good, bad) = binds(&annotations(&[
            ("cgw-controller.perimeter.dev/bind.192.168.50.202", bind),
            ("cgw-controller.perimeter.dev/bind.x", bind),
            (
                "cgw-controller.perimeter.dev/bind.192.168.50.203",
                r#"{"v":2,"scope":"namespace","namespace":"a","tunId":"0x1"}"#,
            ),
        ]));
        assert_eq!((good.len(), bad.len()), (1, 2), "{bad:?}");
        let owner = &good[&vip("192.168.50.202")].owner;
        let admits = |namespace, name| owner.admits(&ObjectKey::new(namespace, name));
        assert!(admits("b", "s") && !admits("b", "t") && !admits("a", "s"));
        assert_eq!(serde_json::to_string(&good[&vip("192.168.50.202")]).unwrap(), bind);
        let unbinding = Bind { unbinding: true, ..good[&vip("192.168.50.202")].clone() };
        let text = serde_json::to_string(&unbinding).unwrap();
        assert_eq!(serde_json::from_str::<Bind>(&text).unwrap(), unbinding);
    }
}
