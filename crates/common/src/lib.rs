//! What two or more Perimeter controllers share.
//!
//! A controller is three rooms in a row, and data walks through them once, in one direction:
//!
//! ```text
//!   observe  the only reader: caches and cloud lists -> a Snapshot (plain data, taken at one time)
//!   plan     pure: no IO, no clock, no client
//!   apply    the only writer: runs the Plan's steps in order, stops at the first failure
//! ```
//!
//! This crate is what stands around that walk. Start-up goes down this list, shut-down goes up it:
//!
//! ```text
//!   args -> telemetry -> client -> admin -> leader -> controller -> drain
//! ```
//!
//! | feature   | modules |
//! |-----------|---------|
//! | (none)    | [`plan`], [`names`], [`conditions`] |
//! | `runtime` | [`runtime`], [`args`], [`config`], [`client`], [`admin`], [`telemetry`], [`metrics`], [`readiness`], [`shutdown`], [`watch`], [`events`], [`causes`], [`leader`], [`k8s`] |
//! | `cloud`   | [`cloud`]: HTTP under every cloud client |
//! | `hcloud`  | [`cloud::hcloud`]: Hetzner Cloud |
//! | `api`     | [`api`]: our custom resources |
//! | `openstack` | [`cloud::openstack`]: Keystone, Neutron, Nova, Cinder, Octavia |
//! | `routes`  | [`routes`]: a router's routes, and which of them lead to nobody any more |

pub mod conditions;
pub mod names;
pub mod plan;

#[cfg(feature = "api")]
pub mod api;

#[cfg(feature = "runtime")]
pub mod admin;
#[cfg(feature = "runtime")]
pub mod args;
#[cfg(feature = "runtime")]
pub mod causes;
#[cfg(feature = "runtime")]
pub mod client;
#[cfg(feature = "runtime")]
pub mod config;
#[cfg(feature = "runtime")]
pub mod events;
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
pub mod shutdown;
#[cfg(feature = "runtime")]
pub mod telemetry;
#[cfg(feature = "runtime")]
pub mod watch;

#[cfg(feature = "cloud")]
pub mod cloud;

#[cfg(feature = "routes")]
pub mod routes;
