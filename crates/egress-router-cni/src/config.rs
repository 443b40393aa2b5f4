//! What a network configuration may say, and what it means once everything is known.
//!
//! [`network`] is the JSON on standard input; [`settings`] the node's, which only its administrator writes. A pod's `ip`
//! comes from [`ip`] itself, from [`pod_ip`] by its name, or from a ConfigMap ([`ip_config`]).

pub mod destinations;
pub mod interface;
pub mod ip;
pub mod ip_config;
pub mod network;
pub mod overrides;
pub mod pod_ip;
pub mod settings;
