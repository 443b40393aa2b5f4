//! Clouds: the HTTP client under every cloud client, and the clients themselves.

#[cfg(any(feature = "hcloud", feature = "openstack"))]
use serde::{Deserialize, Deserializer};

pub mod http;

#[cfg(feature = "hcloud")]
pub mod hcloud;

#[cfg(feature = "openstack")]
pub mod openstack;

/// Reads a field that a cloud may send as null: null is an empty text or list, as an absent field is.
#[cfg(any(feature = "hcloud", feature = "openstack"))]
fn or_empty<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}
