//! The kinds of both clusters, as far as this program reads and writes them.
//!
//! The group of a kind depends on the [`Flavor`], so that is the dynamic type of all of them. The aggregated
//! API servers of upstream are Go programs, and their JSON is read as it is: `null` where a list is empty, empty objects, and `""`
//! where a required enum has no value. Addresses and prefixes stay text, because this program copies them, and Go accepts more than
//! Rust's parser (a zone, for example).

pub mod apinet;
pub mod network_policy;
pub mod source;

use std::collections::BTreeMap;
use std::fmt;

use common::k8s::or_default;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Resource;
use kube::core::{DynamicResourceScope, Selector, SelectorExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::names::Flavor;

/// All kinds of both clusters have this version.
pub(crate) const VERSION: &str = "v1alpha1";

/// `IPv4` or `IPv6`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum IpFamily {
    /// IPv4
    IPv4,
    /// IPv6
    IPv6,
}

impl IpFamily {
    /// Of an address or a prefix in text form.
    #[must_use]
    pub fn of(text: &str) -> IpFamily {
        if text.contains(':') { IpFamily::IPv6 } else { IpFamily::IPv4 }
    }

    /// `ipv4` or `ipv6`
    #[must_use]
    pub const fn lowercase(self) -> &'static str {
        match self {
            IpFamily::IPv4 => "ipv4",
            IpFamily::IPv6 => "ipv6",
        }
    }
}

/// A reference to an object of the same namespace. An empty name is no reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LocalRef {
    /// metadata.name
    #[serde(default)]
    pub name: String,
}

/// A reference to one object of the same namespace, which a new object of this name does not inherit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LocalUidRef {
    /// metadata.name
    #[serde(default)]
    pub name: String,
    /// metadata.uid
    #[serde(default)]
    pub uid: String,
}

/// One port, or a range of ports, of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Port {
    /// `TCP`, `UDP` or `SCTP`; TCP if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The first port.
    pub port: i32,
    /// The last port; `port` if missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_port: Option<i32>,
}

/// Whether the labels match. An empty selector matches all labels; an invalid one matches none, and the API server refuses it.
#[must_use]
pub fn selects(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    let none = BTreeMap::new();
    Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels.unwrap_or(&none)))
}

/// A field with its default value is not applied.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// All that caches and requests need.
pub trait ApiKind:
    Resource<DynamicType = Flavor, Scope = DynamicResourceScope>
    + Clone
    + fmt::Debug
    + PartialEq
    + Serialize
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
}

/// A kind of the source cluster.
pub trait SourceKind: ApiKind {}

/// A kind of the apinet cluster.
pub trait ApiNetKind: ApiKind {}

/// A namespaced kind. Its group is a name of the flavor, and tells the cluster.
macro_rules! kind {
    (@cluster networking, $kind:ident) => {
        impl $crate::api::SourceKind for $kind {}
    };
    (@cluster ipam, $kind:ident) => {
        impl $crate::api::SourceKind for $kind {}
    };
    (@cluster apinet, $kind:ident) => {
        impl $crate::api::ApiNetKind for $kind {}
    };
    ($kind:ident, $name:literal, $plural:literal, $group:ident) => {
        $crate::api::kind!(@cluster $group, $kind);

        impl $crate::api::ApiKind for $kind {}

        impl kube::Resource for $kind {
            type DynamicType = $crate::names::Flavor;
            type Scope = kube::core::DynamicResourceScope;

            fn kind(_: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                $name.into()
            }
            fn group(flavor: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                flavor.names().$group.into()
            }
            fn version(_: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                $crate::api::VERSION.into()
            }
            fn plural(_: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
                $plural.into()
            }
            fn meta(&self) -> &kube::core::ObjectMeta {
                &self.metadata
            }
            fn meta_mut(&mut self) -> &mut kube::core::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}
use kind;

#[cfg(test)]
mod tests;
