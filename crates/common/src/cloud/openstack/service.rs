//! The services that are used.

use std::fmt;

/// A service of OpenStack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Service {
    /// Neutron.
    Network,
    /// Nova.
    Compute,
    /// Cinder.
    BlockStorage,
    /// Octavia.
    LoadBalancer,
    /// Keystone: the one of the login, whatever the catalogue lists.
    Identity,
}

impl Service {
    /// Those that are read from the catalogue.
    pub(super) const ALL: [Service; 4] =
        [Service::Network, Service::Compute, Service::BlockStorage, Service::LoadBalancer];

    /// The types under which a catalogue may list it, the official one first (OpenStack's service types authority).
    #[must_use]
    pub fn types(self) -> &'static [&'static str] {
        match self {
            Service::Network => &["network"],
            Service::Compute => &["compute"],
            Service::BlockStorage => &["block-storage", "volumev3", "block-store", "volume", "volumev2"],
            Service::LoadBalancer => &["load-balancer"],
            Service::Identity => &["identity"],
        }
    }

    /// The official type: the metric label, and the name in messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.types().first().copied().unwrap_or_default()
    }

    /// The base URL of the API, from a URL of the catalogue with or without a version. Prefixes are kept. None for a version that is not
    /// supported.
    #[must_use]
    pub(super) fn base(self, url: &str) -> Option<String> {
        let url = url.trim_end_matches('/');
        let path = url.splitn(4, '/').nth(3).unwrap_or_default();
        let has = |segment: &str| path.split('/').any(|part| part == segment);
        let ends = |end: &str| format!("/{path}").ends_with(end);
        match self {
            Service::Network if ends("/v2.0") => Some(url.to_owned()),
            Service::Network => Some(format!("{url}/v2.0")),
            Service::Compute if has("v2.1") => Some(url.to_owned()),
            // The legacy API has no microversions, and without them servers of an unreachable cell are missing from lists.
            Service::Compute if has("v2") => None,
            Service::Compute => Some(format!("{url}/v2.1")),
            Service::BlockStorage if has("v3") => Some(url.to_owned()),
            Service::BlockStorage if has("v1") || has("v2") => None,
            Service::BlockStorage => Some(format!("{url}/v3")),
            Service::LoadBalancer if ends("/lbaas") => Some(url.to_owned()),
            Service::LoadBalancer if ends("/v2.0") || ends("/v2") => Some(format!("{url}/lbaas")),
            Service::LoadBalancer => Some(format!("{url}/v2.0/lbaas")),
            // Its URL is the one of the login.
            Service::Identity => Some(url.to_owned()),
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_added_unless_it_is_there() {
        use Service::{BlockStorage, Compute, LoadBalancer, Network};
        for (service, url, base) in [
            (Network, "https://a:9696", Some("https://a:9696/v2.0")),
            (Network, "https://a:9696/", Some("https://a:9696/v2.0")),
            (Network, "https://a/networking/v2.0/", Some("https://a/networking/v2.0")),
            (Network, "https://v2.0", Some("https://v2.0/v2.0")),
            (Compute, "https://a/compute/v2.1", Some("https://a/compute/v2.1")),
            (Compute, "https://a:8774/v2.1/0123abc", Some("https://a:8774/v2.1/0123abc")),
            (Compute, "https://a:8774", Some("https://a:8774/v2.1")),
            (Compute, "https://a:8774/v2/0123abc", None),
            (BlockStorage, "https://a/volume/v3", Some("https://a/volume/v3")),
            (BlockStorage, "https://a:8776/v3/0123abc", Some("https://a:8776/v3/0123abc")),
            (BlockStorage, "https://a:8776/v2/0123abc", None),
            (BlockStorage, "https://a/volume/", Some("https://a/volume/v3")),
            (LoadBalancer, "https://a:9876", Some("https://a:9876/v2.0/lbaas")),
            (LoadBalancer, "https://a/load-balancer/v2", Some("https://a/load-balancer/v2/lbaas")),
            (LoadBalancer, "https://a/v2.0/", Some("https://a/v2.0/lbaas")),
            (LoadBalancer, "https://a/v2/lbaas", Some("https://a/v2/lbaas")),
        ] {
            assert_eq!(service.base(url).as_deref(), base, "{service} {url}");
        }
    }
}
