//! Network configurations and the node's settings.
//!
//! [`network`] is the JSON on standard input. [`settings`] are those of the node, which only its administrator writes. A pod's `ip` comes
//! from [`ip`], from [`pod_ip`] by its name, or from a ConfigMap ([`ip_config`]).

pub mod destinations;
pub mod interface;
pub mod ip;
pub mod ip_config;
pub mod network;
pub mod overrides;
pub mod pod_ip;
pub mod settings;
