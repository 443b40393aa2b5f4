//! Code that two or more Perimeter controllers share.
//!
//! Every controller runs the same reconcile loop. A reconciliation has three stages:
//!
//! ```text
//!   observe  the only reader: caches and cloud lists -> a Snapshot (plain data, taken at one time)
//!   plan     pure: no IO, no clock, no client
//!   apply    the only writer: executes the actions of the Plan in order; each action is idempotent
//! ```
//!
//! This crate holds what is around that loop. A process starts in this order and shuts down in the reverse one:
//!
//! ```text
//!   args -> telemetry -> cluster -> admin server -> leader election -> controller
//! ```
//!
//! | feature   | modules |
//! |-----------|---------|
//! | (none)    | [`plan`], [`names`], [`backoff`], [`validation`] |
//! | `conditions` | [`conditions`] |
//! | `netlink` | [`netlink`]: links, addresses, routes, rules and nf_tables, without an async runtime |
//! | `isolated` | `netlink::isolated`: network namespaces for tests |
//! | `runtime` | [`runtime`], [`command`], [`args`], [`config`], [`cluster`], [`secret`], [`server`], [`admin`], [`telemetry`], [`metrics`], [`readiness`], [`shutdown`], [`cache`], [`controller`], [`apply`], [`events`], [`executor`], [`leader`], [`k8s`] |
//! | `https`   | TLS and authentication for [`server`] |
//! | `cloud`   | [`cloud`]: HTTP under every cloud client |
//! | `hcloud`  | [`cloud::hcloud`]: Hetzner Cloud |
//! | `api`     | [`api`]: our custom resources |
//! | `openstack` | [`cloud::openstack`]: Keystone, Neutron, Nova, Cinder, Octavia |
//! | `routes`  | [`routes`]: the routes of a router, and which of them are stale |

pub mod backoff;
pub mod names;
pub mod plan;
pub mod validation;

#[cfg(feature = "conditions")]
pub mod conditions;

#[cfg(feature = "netlink")]
pub mod netlink;

#[cfg(feature = "api")]
pub mod api;

#[cfg(feature = "runtime")]
pub mod admin;
#[cfg(feature = "runtime")]
pub mod apply;
#[cfg(feature = "runtime")]
pub mod args;
#[cfg(feature = "runtime")]
pub mod cache;
#[cfg(feature = "runtime")]
pub mod cluster;
#[cfg(feature = "runtime")]
pub mod command;
#[cfg(feature = "runtime")]
pub mod config;
#[cfg(feature = "runtime")]
pub mod controller;
#[cfg(feature = "runtime")]
pub mod events;
#[cfg(feature = "runtime")]
pub mod executor;
#[cfg(feature = "runtime")]
pub mod k8s;
#[cfg(feature = "runtime")]
pub mod leader;
#[cfg(feature = "runtime")]
pub mod metrics;
#[cfg(feature = "runtime")]
pub mod readiness;
#[cfg(feature = "runtime")]
pub mod runtime;
#[cfg(feature = "runtime")]
pub mod secret;
#[cfg(feature = "runtime")]
pub mod server;
#[cfg(feature = "runtime")]
pub mod shutdown;
#[cfg(feature = "runtime")]
pub mod telemetry;

#[cfg(feature = "cloud")]
pub mod cloud;

#[cfg(any(feature = "cloud", feature = "runtime"))]
mod proxy;

#[cfg(feature = "routes")]
pub mod routes;
