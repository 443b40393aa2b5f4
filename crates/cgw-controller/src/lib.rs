//! cgw-controller: the VIP of a Service is the address that its clients use and the address that its pods leave with.
//!
//! ```text
//!   POST /vip ──────▶ controller ── binds, hosts, providers (annotations of three store Services)
//!                       ▲    │
//!      master_notify    │    └────── annotations of the tenant's Service: vip, node-ip, tun-mac, tun-id, epoch
//!                       │                                  │
//!   keepalived ── keeper (gateway nodes)                   ▼
//!                                        agent (every node): observe ── plan ── driver vxlan or ovs
//! ```
//!
//! * [`names`], [`api`]: names and formats that the roles exchange, without IO.
//! * [`controller`]: the HTTP API, the stores, and the annotations of the tenants' Services.
//! * [`keeper`]: keepalived on a gateway node: configuration, supervision, status, notification.
//! * [`agent`]: the datapath of a node.
//! * [`ctl`]: the command line of an administrator.
//! * [`monitor`]: notifications of the kernel, for keeper and agent. [`args`], [`command`]: the command line of the program.

pub mod agent;
pub mod api;
pub mod args;
pub mod command;
pub mod controller;
pub mod ctl;
pub mod keeper;
pub mod monitor;
pub mod names;
