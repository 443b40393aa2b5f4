//! Clouds: the HTTP client under every cloud client, and the clients themselves.

#[cfg(any(feature = "hcloud", feature = "openstack"))]
mod field;
pub mod http;

#[cfg(feature = "hcloud")]
pub mod hcloud;

#[cfg(feature = "openstack")]
pub mod openstack;
