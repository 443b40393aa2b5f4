//! The undo data of an attachment: its slot, and the state of the pod that DEL restores. [`crate::record::Attachment`] stores it before the
//! first step of ADD.

use std::collections::BTreeMap;

use common::netlink::route::{Device, Route};
use serde::{Deserialize, Serialize};

use crate::observe::Pod;

use super::Family;

/// The undo data.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undo {
    /// See [`crate::names::SLOTS`].
    pub slot: u32,
    /// Greater than that of all earlier attachments of the pod: the newest has the greatest.
    pub order: u32,
    /// The primary interface, for each family that has one.
    pub primary: BTreeMap<Family, Primary>,
    /// Index of the link in the pod, which may be renamed there. None until ADD has completed.
    #[serde(default)]
    pub link: Option<u32>,
    /// Families with addresses.
    pub families: Vec<Family>,
    /// Previous default routes, which DEL of the last attachment restores.
    pub defaults: Vec<Saved>,
    /// Routes through the primary interface that were added to main for attachments.
    pub routes: Vec<Saved>,
    /// Sysctls of the pod that were changed for attachments, in order.
    pub sysctls: Vec<Changed>,
}

/// The primary interface, for one family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Primary {
    /// Its name.
    pub interface: String,
    /// Whether the primary table has a default route.
    pub default: bool,
}

/// A route as the kernel reported it, with all attributes. It has its device's name, because a re-created link has another index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// Without device.
    pub route: Route,
    /// Name of its device.
    pub device: Option<String>,
}

/// A sysctl that was changed for an attachment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// As in [`super::Step::Sysctl`].
    pub name: Vec<String>,
    /// Its new value.
    pub value: String,
    /// Its value before any attachment.
    pub original: String,
}

impl Saved {
    /// Records an observed route.
    #[must_use]
    pub fn of(route: &Route, pod: &Pod) -> Self {
        let device = pod.link_of(route).map(|link| link.name.clone());
        Self { route: Route { device: None, ..route.clone() }, device }
    }

    /// The route to write; none if its device no longer exists.
    #[must_use]
    pub fn route(&self, pod: &Pod) -> Option<Route> {
        let device = match &self.device {
            Some(name) => Some(Device::Index(pod.link_named(name)?.index)),
            None => None,
        };
        Some(Route { device, ..self.route.clone() })
    }

    /// Whether both are the same route. Several routes may have the same destination, TOS and metric.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        super::route::same(&self.route, &other.route) && self.device == other.device
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn saved()(
            to: std::net::IpAddr,
            gateway: Option<std::net::IpAddr>,
            source: Option<std::net::IpAddr>,
            metric: Option<u32>,
            device in proptest::option::of("[a-z0-9.@_-]{1,15}"),
            (table, protocol, scope, kind, tos, flags) in any::<(u32, u8, u8, u8, u8, u32)>(),
            rest in proptest::collection::vec((any::<u16>(), proptest::collection::vec(any::<u8>(), 0..400)), 0..3),
        ) -> Saved {
            let destination = ipnet::IpNet::from(to);
            let route = Route {
                table, destination, gateway, device: None, source, metric, protocol, scope, kind, tos, flags, rest,
            };
            Saved { route, device }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// However long its attributes are: a multipath route has a kilobyte of them.
        #[test]
        fn a_written_route_is_read_unchanged(defaults in proptest::collection::vec(saved(), 0..3), routes in proptest::collection::vec(saved(), 0..3)) {
            let undo = Undo {
                slot: 7,
                order: 2,
                primary: [(Family::V6, Primary { interface: "eth0".into(), default: true })].into(),
                link: Some(3),
                families: Family::ALL.to_vec(),
                defaults,
                routes,
                sysctls: vec![Changed { name: super::super::sysctl::routers("a.b"), value: "0".into(), original: "1".into() }],
            };
            let text = serde_json::to_vec(&undo).unwrap();
            prop_assert_eq!(serde_json::from_slice::<Undo>(&text).unwrap(), undo);
        }
    }
}
