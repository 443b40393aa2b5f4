//! The catalogue of a token: the endpoints of the services.

use std::collections::BTreeSet;

use ::http::Uri;
use serde::Deserialize;

use super::service::Service;
use crate::cloud::or_empty;

/// The interface of an endpoint: the operator may have one for each kind of client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interface {
    Public,
    Internal,
    Admin,
}

impl Interface {
    /// Parses `public`, or `publicURL` as in Keystone v2.
    pub fn parse(word: &str) -> Option<Interface> {
        match word.strip_suffix("URL").unwrap_or(word).to_ascii_lowercase().as_str() {
            "public" => Some(Interface::Public),
            "internal" => Some(Interface::Internal),
            "admin" => Some(Interface::Admin),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Interface::Public => "public",
            Interface::Internal => "internal",
            Interface::Admin => "admin",
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Catalog(Vec<Entry>);

/// A service of the catalogue. A missing field does not fail the login, because the service may be an unused one.
#[derive(Clone, Debug, Deserialize)]
struct Entry {
    #[serde(rename = "type", default, deserialize_with = "or_empty")]
    kind: String,
    #[serde(default, deserialize_with = "or_empty")]
    endpoints: Vec<Offer>,
}

#[derive(Clone, Debug, Deserialize)]
struct Offer {
    #[serde(default, deserialize_with = "or_empty")]
    interface: String,
    #[serde(default, deserialize_with = "or_empty")]
    url: String,
    #[serde(default)]
    region: Option<String>,
    #[serde(default)]
    region_id: Option<String>,
}

impl Offer {
    fn region(&self) -> &str {
        self.region_id.as_deref().or(self.region.as_deref()).unwrap_or("no region")
    }

    fn has_region(&self) -> bool {
        self.region_id.is_some() || self.region.is_some()
    }

    fn is_in(&self, region: &str) -> bool {
        [&self.region, &self.region_id].into_iter().any(|name| name.as_deref() == Some(region))
    }

    fn base(&self, service: Service, project: &str) -> Option<String> {
        base(service, &self.url, project)
    }
}

/// Base URL of the service's API for the project. It fills in the project ID where an operator left a placeholder in an
/// endpoint: Keystone does this too, but a proxy or a replacement of Keystone may not. None if the URL cannot be used.
pub(super) fn base(service: Service, url: &str, project: &str) -> Option<String> {
    const PROJECT: [&str; 4] = ["%(project_id)s", "%(tenant_id)s", "$(project_id)s", "$(tenant_id)s"];
    let url = PROJECT.iter().fold(url.to_owned(), |url, open| url.replace(open, project));
    let whole = !url.is_empty() && !url.contains("%(") && !url.contains("$(");
    whole.then(|| service.base(&url)).flatten()
}

/// Whether a URL's host means something on its own site only, where each site may have one of that name: OpenStack that runs in
/// Kubernetes names its inner endpoints after its Services.
fn is_local(url: &str) -> bool {
    let url = url.parse::<Uri>().ok();
    let host = url.as_ref().and_then(Uri::host).unwrap_or_default();
    host == "localhost" || [".cluster.local", ".svc"].iter().any(|end| host.ends_with(end))
}

impl Catalog {
    /// Base URL of the service's API. Without a region there must be only one choice: in the wrong region none of our
    /// resources are found, and they would seem to be gone.
    ///
    /// The error says what the catalogue has instead.
    pub fn choose(
        &self,
        service: Service,
        interface: Interface,
        region: Option<&str>,
        project: &str,
    ) -> Result<String, String> {
        for kind in service.types() {
            let mut found: Vec<(String, &Offer)> = self
                .offers(kind)
                .filter(|offer| Interface::parse(&offer.interface) == Some(interface))
                .filter(|offer| region.is_none_or(|region| offer.is_in(region)))
                .filter_map(|offer| Some((offer.base(service, project)?, offer)))
                .collect();
            let mut bases = BTreeSet::new();
            found.retain(|(base, _)| bases.insert(base.clone()));
            match found.as_slice() {
                [] => {}
                [(base, _)] => return Ok(base.clone()),
                [(base, _), ..] if region.is_some() => return Ok(base.clone()),
                many => {
                    let regions: Vec<&str> = many.iter().map(|(_, offer)| offer.region()).collect();
                    return Err(format!(
                        "the catalogue has {service} more than once (regions {}): name the region",
                        regions.join(", ")
                    ));
                }
            }
        }
        let selected = region.map_or_else(String::new, |region| format!(" in region \"{region}\""));
        Err(format!(
            "the catalogue has no {} endpoint of {service}{selected} that can be used; it has {}",
            interface.word(),
            self.found(service)
        ))
    }

    /// Whether the catalogue lists the service, in any version and for any kind of client.
    pub fn lists(&self, service: Service, region: Option<&str>) -> bool {
        self.offers_of(service, region).next().is_some()
    }

    /// Whether the catalogue lists the service, but only in versions that are not supported any more, for any kind of client.
    pub fn is_outdated(&self, service: Service, region: Option<&str>) -> bool {
        self.lists(service, region)
            && self.offers_of(service, region).all(|offer| service.base(&offer.url).is_none())
    }

    /// Whether servers of another region's Nova may have ports in our Neutron: the catalogue has a Nova there, and no Neutron of that
    /// region's own. One Neutron with two URLs is two, as far as the catalogue says. A Nova without a region is none of another one.
    ///
    /// `nova` and `neutron`: the regions in which these are ours; unless one is named, any may be it. `url`: where the login says that
    /// Neutron is.
    pub fn shares_neutron(&self, nova: Option<&str>, neutron: Option<&str>, url: Option<&str>) -> bool {
        let base = |service: Service, url: &str| service.base(url).unwrap_or_else(|| url.to_owned());
        let all = |service: Service, region: Option<&str>| -> BTreeSet<String> {
            self.offers_of(service, region).map(|offer| base(service, &offer.url)).collect()
        };
        let placed = || self.offers_of(Service::Compute, None).filter(|offer| offer.has_region());
        if placed().map(Offer::region).collect::<BTreeSet<&str>>().len() < 2 {
            return false;
        }
        let novas = nova.map(|region| all(Service::Compute, Some(region))).unwrap_or_default();
        let mut neutrons = all(Service::Network, neutron);
        neutrons.extend(url.map(|url| base(Service::Network, url)));
        placed().filter(|offer| !novas.contains(&base(Service::Compute, &offer.url))).any(|offer| {
            let theirs = all(Service::Network, Some(offer.region()));
            theirs.is_empty() || theirs.intersection(&neutrons).any(|url| !is_local(url))
        })
    }

    fn offers_of(&self, service: Service, region: Option<&str>) -> impl Iterator<Item = &Offer> {
        let all = service.types().iter().flat_map(move |kind| self.offers(kind));
        all.filter(move |offer| region.is_none_or(|region| offer.is_in(region)))
    }

    fn offers(&self, kind: &str) -> impl Iterator<Item = &Offer> {
        self.0.iter().filter(move |entry| entry.kind == kind).flat_map(|entry| &entry.endpoints)
    }

    /// The endpoints of the service, else the types in the catalogue.
    fn found(&self, service: Service) -> String {
        let offers = service.types().iter().flat_map(|kind| {
            self.offers(kind)
                .map(move |offer| format!("{kind} {} {} {}", offer.interface, offer.region(), offer.url))
        });
        let mut found: Vec<String> = offers.collect();
        if found.is_empty() {
            found = self.0.iter().map(|entry| entry.kind.clone()).filter(|kind| !kind.is_empty()).collect();
            found.sort();
            found.dedup();
        }
        match found.is_empty() {
            true => "nothing".to_owned(),
            false => found.join(", "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn catalog() -> Catalog {
        serde_json::from_value(json!([
            {"type": "network", "name": "neutron", "endpoints": [
                {"id": "1", "interface": "internal", "region": "A", "region_id": "A", "url": "http://10.0.0.1:9696"},
                {"id": "2", "interface": "public", "region": "A", "region_id": "A", "url": "https://a/net"},
                {"id": "3", "interface": "public", "region": "old B", "region_id": "B", "url": "https://b/net/v2.0"},
            ]},
            {"type": "volumev2", "endpoints": [{"interface": "public", "region": "A", "url": "https://a/v2/p"}]},
            {"type": "volumev3", "endpoints": [{"interface": "publicURL", "region": "A", "url": "https://a/v3/p"}]},
            {"type": "compute", "endpoints": [
                {"interface": "public", "region": "A", "url": "https://a/v2.1"},
                {"interface": "public", "region": "A", "url": "https://a/v2.1/"},
            ]},
            {"type": "image", "endpoints": []},
            {"type": "load-balancer", "endpoints": []},
            {"type": "object-store", "endpoints": [{"interface": null, "region": null, "url": null}, {}]},
            {"type": "dns", "endpoints": null},
            {"type": null},
        ]))
        .unwrap()
    }

    #[test]
    fn type_interface_and_region_decide() {
        use Interface::{Admin, Internal, Public};
        use Service::{BlockStorage, Compute, LoadBalancer, Network};
        for (service, interface, region, url) in [
            (Network, Public, Some("A"), Ok("https://a/net/v2.0")),
            (Network, Public, Some("B"), Ok("https://b/net/v2.0")),
            (Network, Public, Some("old B"), Ok("https://b/net/v2.0")),
            (Network, Internal, None, Ok("http://10.0.0.1:9696/v2.0")),
            (Network, Public, None, Err("more than once (regions A, B): name the region")),
            (
                Network,
                Admin,
                None,
                Err(
                    "has no admin endpoint of network that can be used; it has network internal A http://10.0.0.1:9696",
                ),
            ),
            (Network, Public, Some("C"), Err("in region \"C\"")),
            (BlockStorage, Public, Some("A"), Ok("https://a/v3/p")),
            (Compute, Public, None, Ok("https://a/v2.1")),
            (
                LoadBalancer,
                Public,
                None,
                Err("it has compute, dns, image, load-balancer, network, object-store, volumev2, volumev3"),
            ),
        ] {
            match (catalog().choose(service, interface, region, "0123abc"), url) {
                (Ok(found), Ok(selected)) => assert_eq!(found, selected),
                (Err(why), Err(selected)) => assert!(why.contains(selected), "{why}"),
                (found, selected) => {
                    panic!("{service} {interface:?} {region:?}: {found:?} instead of {selected:?}")
                }
            }
        }
        let lists = |service, region| catalog().lists(service, region);
        assert!(lists(Network, None) && lists(Network, Some("B")) && !lists(Network, Some("C")));
        assert!(!lists(LoadBalancer, None), "a type without endpoints is no service");
    }

    #[test]
    fn a_service_is_outdated_if_no_client_can_have_a_version_that_is_spoken() {
        let of = |urls: &[(&str, &str, &str)]| {
            let endpoints = urls.iter().map(
                |(interface, region, url)| json!({"interface": interface, "region": region, "url": url}),
            );
            let endpoints: Vec<_> = endpoints.collect();
            let catalog = json!([{"type": "compute", "endpoints": endpoints}]);
            serde_json::from_value::<Catalog>(catalog).unwrap()
        };
        let outdated = |urls: &[(&str, &str, &str)]| of(urls).is_outdated(Service::Compute, Some("A"));
        assert!(outdated(&[("public", "A", "https://a/v2/0123abc"), ("internal", "A", "http://b:8774/v2")]));
        assert!(outdated(&[
            ("public", "A", "https://a/v2/%(tenant_id)s"),
            ("public", "B", "https://b/v2.1")
        ]));
        for other in ["https://a/v2.1", "https://a:8774", "https://%(host)s/v2.1", ""] {
            let urls = [("public", "A", "https://a/v2"), ("internal", "A", other)];
            assert!(!outdated(&urls), "{other} may be one that is spoken");
        }
        assert!(!outdated(&[("public", "B", "https://b/v2")]), "none is not an old one");
    }

    #[test]
    fn another_region_s_nova_shares_our_neutron_unless_there_is_one_for_it_alone() {
        let read = |offers: &[(&str, &str, &str)]| {
            let entry = |(kind, region, url): &(&str, &str, &str)| {
                let endpoint = json!({"interface": "public", "region": region, "url": url});
                json!({"type": kind, "endpoints": [endpoint]})
            };
            let catalog: Vec<_> = offers.iter().map(entry).collect();
            serde_json::from_value::<Catalog>(json!(catalog)).unwrap()
        };
        let ours = [("network", "A", "https://a/net"), ("compute", "A", "https://a/nova")];
        let (nova, neutron) = (("compute", "B", "https://b/nova"), ("network", "B", "https://b/net"));
        for (theirs, url, shares) in [
            (&[][..], None, false),
            (&[nova, neutron][..], None, false),
            (&[neutron][..], None, false),
            (&[("compute", "B", "https://a/nova/v2.1/")][..], None, false),
            (&[nova][..], None, true),
            (&[("compute", "B", "https://b/v2/0123abc")][..], None, true),
            (&[nova, ("network", "B", "https://a/net/v2.0/")][..], None, true),
            (&[nova, neutron][..], Some("https://b/net/"), true),
        ] {
            let catalog = read(&[&ours[..], theirs].concat());
            assert_eq!(catalog.shares_neutron(Some("A"), Some("A"), url), shares, "{theirs:?} {url:?}");
        }
        let inner = |region| ("network", region, "http://neutron-server.openstack.svc.cluster.local:9696");
        let one_name = read(&[&ours[..], &[nova, neutron, inner("A"), inner("B")]].concat());
        assert!(!one_name.shares_neutron(Some("A"), Some("A"), None), "each has one of that name");
        let catalog = json!([
            {"type": "network", "endpoints": [{"interface": "public", "region": "A", "url": "https://a/net"}]},
            {"type": "compute", "endpoints": [
                {"interface": "public", "region": "A", "url": "https://a/nova"},
                {"interface": "internal", "url": "http://10.0.0.1:8774/v2.1"},
            ]},
        ]);
        let nowhere = serde_json::from_value::<Catalog>(catalog).unwrap();
        assert!(!nowhere.shares_neutron(Some("A"), Some("A"), None), "one that has no region is ours");
        let both = read(&[&ours[..], &[nova, neutron]].concat());
        assert!(both.shares_neutron(None, None, None), "it is not known which is ours");
        assert!(both.shares_neutron(Some("B"), Some("A"), None), "that of A may have ports beside B's");
        assert!(!read(&ours).shares_neutron(None, None, None));
    }

    #[test]
    fn what_an_operator_left_open_is_filled_in_or_the_url_is_not_used() {
        let of = |url: &str| {
            let endpoints = json!([{"interface": "public", "region": "A", "url": url}]);
            let catalog = json!([{"type": "volumev3", "endpoints": endpoints}]);
            let catalog: Catalog = serde_json::from_value(catalog).unwrap();
            catalog.choose(Service::BlockStorage, Interface::Public, None, "0123abc")
        };
        for open in ["%(project_id)s", "%(tenant_id)s", "$(project_id)s", "$(tenant_id)s"] {
            assert_eq!(of(&format!("https://a/v3/{open}")).unwrap(), "https://a/v3/0123abc");
        }
        for unknown in ["https://a/v3/$(user_id)s", "https://%(host)s/v3"] {
            let why = of(unknown).unwrap_err();
            assert!(why.contains("that can be used; it has") && why.contains(unknown), "{why}");
        }
    }
}
