//! apinetlet: maps the networking API of one cluster (onmetal-api, ironcore) onto the network control plane of another
//! (onmetal-api-net, ironcore-net).
//!
//! ```text
//!   source cluster: networking, ipam        apinet cluster: core
//!   Network ─────────────────────────────▶ Network
//!   VirtualIP ───────────────────────────▶ IP
//!   NATGateway ──────────────────────────▶ NATGateway, NATGatewayAutoscaler
//!   LoadBalancer, LoadBalancerRouting ───▶ LoadBalancer, LoadBalancerRouting
//!   NetworkPolicy ───────────────────────▶ NetworkPolicy, NetworkPolicyRule
//!   NetworkInterface ─ providerID, claim ─▶ NetworkInterface (the MachinePool creates it)
//! ```
//!
//! * [`names`]: the names of the two flavors. [`config`]: the settings of the mapping.
//! * [`api`]: the kinds of both clusters.
//! * [`provider_id`], [`origin`]: how an object of one cluster names its counterpart in the other.
//! * [`mod@plan`]: what to write, for each kind. [`mapping`]: what a plan reads.
//! * [`clusters`], [`caches`]: the clients and the watched objects of both clusters.
//! * [`controller`]: which change concerns which source object. [`problems`]: which cannot be mapped. [`apply`]: executes the plan. [`garbage`]: deletes what has
//!   no source object any more. [`identity`]: the mark of the source cluster.
//! * [`args`], [`connection`], [`zap`], [`command`]: the command line. [`dry_run`]: prints the plan. [`metrics_server`]: the metrics server of the Go program.

pub mod api;
pub mod apply;
pub mod args;
pub mod caches;
pub mod clusters;
pub mod command;
pub mod config;
pub mod connection;
pub mod controller;
pub mod dry_run;
pub mod error;
pub mod garbage;
pub mod identity;
pub mod mapping;
pub mod metrics_server;
pub mod names;
pub mod origin;
pub mod plan;
pub mod problems;
pub mod provider_id;
pub mod zap;
