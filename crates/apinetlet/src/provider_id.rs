//! Provider IDs: the spec of a source object names its counterpart in the apinet cluster with them.
//!
//! The format is that of `provider.go` in onmetal-api-net: a prefix and four parts, joined with `/`. MachinePool implementations
//! parse the ID of a Network and write that of a NetworkInterface.

use std::fmt;

use common::validation::is_dns_subdomain;

use crate::names::Flavor;

/// Why a provider ID cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidProviderId {
    /// It has not four parts.
    #[error("provider ID {0:?} is not {1}namespace/name/{2}/uid")]
    Parts(String, &'static str, &'static str),
    /// The node of a NetworkInterface is no DNS subdomain.
    #[error("node {0:?} of a provider ID is no DNS subdomain")]
    Node(String),
}

/// The provider ID of a Network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkId {
    /// Namespace of the apinet Network.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its VXLAN network identifier, in decimal.
    pub id: String,
    /// Its UID.
    pub uid: String,
}

/// The provider ID of a NetworkInterface. A parsed one borrows its parts: a load balancer has thousands of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceId<T = String> {
    /// Namespace of the apinet NetworkInterface.
    pub namespace: T,
    /// Its name.
    pub name: T,
    /// The apinet Node that it is on.
    pub node: T,
    /// Its UID.
    pub uid: T,
}

impl NetworkId {
    /// Parses an ID. As in the Go programs, the prefix may be missing.
    ///
    /// # Errors
    /// It has not four parts, as one with a foreign prefix.
    pub fn parse(flavor: Flavor, text: &str) -> Result<NetworkId, InvalidProviderId> {
        let [namespace, name, id, uid] = parts(flavor, text, "id")?.map(str::to_owned);
        Ok(NetworkId { namespace, name, id, uid })
    }

    /// With the prefix of the flavor.
    pub fn display(&self, flavor: Flavor) -> impl fmt::Display {
        let NetworkId { namespace, name, id, uid } = self;
        format!("{}{namespace}/{name}/{id}/{uid}", flavor.names().provider_id)
    }
}

impl<'a> InterfaceId<&'a str> {
    /// Parses an ID. As in the Go programs, the prefix may be missing.
    ///
    /// # Errors
    /// It has not four parts, or its node is no DNS subdomain.
    pub fn parse(flavor: Flavor, text: &'a str) -> Result<InterfaceId<&'a str>, InvalidProviderId> {
        let [namespace, name, node, uid] = parts(flavor, text, "node")?;
        if !is_dns_subdomain(node) {
            return Err(InvalidProviderId::Node(node.to_owned()));
        }
        Ok(InterfaceId { namespace, name, node, uid })
    }
}

impl<T: fmt::Display> InterfaceId<T> {
    /// With the prefix of the flavor.
    pub fn display(&self, flavor: Flavor) -> impl fmt::Display {
        let InterfaceId { namespace, name, node, uid } = self;
        format!("{}{namespace}/{name}/{node}/{uid}", flavor.names().provider_id)
    }
}

fn parts<'a>(flavor: Flavor, text: &'a str, third: &'static str) -> Result<[&'a str; 4], InvalidProviderId> {
    let prefix = flavor.names().provider_id;
    let mut parts = text.strip_prefix(prefix).unwrap_or(text).split('/');
    match (parts.next(), parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(first), Some(second), Some(third), Some(fourth), None) => Ok([first, second, third, fourth]),
        _ => Err(InvalidProviderId::Parts(text.to_owned(), prefix, third)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    const UID: &str = "2c24a85c-b55d-44b8-bf6e-1872ecfef5db";

    #[test]
    fn ids_are_those_of_upstreams_own_test() {
        let text = format!("onmetal-api-net://namespace/name/node.dns.subdomain/{UID}");
        let id = InterfaceId::parse(Flavor::Onmetal, &text).unwrap();
        assert_eq!((id.name, id.node), ("name", "node.dns.subdomain"));
        assert_eq!(id.display(Flavor::Onmetal).to_string(), text);
        let text = format!("onmetal-api-net://namespace/name/foo/{UID}");
        let id = NetworkId::parse(Flavor::Onmetal, &text).unwrap();
        assert_eq!((id.id.as_str(), id.uid.as_str()), ("foo", UID));
        assert_eq!(id.display(Flavor::Onmetal).to_string(), text);
    }

    #[test]
    fn the_prefix_may_be_missing_and_a_foreign_one_is_refused() {
        assert!(NetworkId::parse(Flavor::Ironcore, "a/b/c/d").is_ok());
        let error = NetworkId::parse(Flavor::Ironcore, "onmetal-api-net://a/b/c/d").unwrap_err();
        assert_eq!(
            error.to_string(),
            "provider ID \"onmetal-api-net://a/b/c/d\" is not ironcore-net://namespace/name/id/uid"
        );
        for wrong in ["", "a/b/c", "a/b/c/d/e"] {
            assert!(NetworkId::parse(Flavor::Ironcore, wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_node_is_a_dns_subdomain() {
        let parse = |node: &str| InterfaceId::parse(Flavor::Ironcore, &format!("a/b/{node}/d")).map(drop);
        assert_eq!(parse("node-1.example.com"), Ok(()));
        for node in ["", "Node", "a..b"] {
            assert_eq!(parse(node), Err(InvalidProviderId::Node(node.to_owned())));
        }
    }

    proptest! {
        #[test]
        fn each_valid_id_survives_both_directions(
            parts in proptest::collection::vec("[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", 4..=4),
            ironcore in any::<bool>(),
        ) {
            let flavor = if ironcore { Flavor::Ironcore } else { Flavor::Onmetal };
            let text = format!("{}{}", flavor.names().provider_id, parts.join("/"));
            prop_assert_eq!(NetworkId::parse(flavor, &text).unwrap().display(flavor).to_string(), text.clone());
            if let Ok(id) = InterfaceId::parse(flavor, &text) {
                prop_assert_eq!(id.display(flavor).to_string(), text);
            }
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,60}") {
            let _ = InterfaceId::parse(Flavor::Onmetal, &text);
            let _ = NetworkId::parse(Flavor::Ironcore, &text);
        }
    }
}
