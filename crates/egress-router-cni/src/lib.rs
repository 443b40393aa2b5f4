//! egress-router: a CNI plugin that gives a pod a static, cluster-external egress interface.
//!
//! One call is one reconciliation, and data passes through its stages once:
//!
//! ```text
//!   environment ─┐         ┌─ host, pod (netlink)                               ┌─ links, addresses, routes, rules
//!                ├─ cni ── observe ── config ── plan ── [Step] ── apply ────────┼─ sysctls
//!   stdin ───────┘         └─ ConfigMap, EC2 (pure)                  └─ rollback    └─ one nf_tables table
//! ```
//!
//! Everything is read, validated and decided before the pod is changed. A journal has all that undoes the steps. When a step fails, the
//! steps before it are rolled back.
//!
//! * [`program`]: dispatches the operation. [`verb`]: one file for each operation: add, del, check, status, gc.
//! * [`cni`]: the protocol: call, versions, results, errors. [`config`]: the network configuration and the node's settings.
//! * [`observe`]: reads the state of the node and the pod. [`mod@plan`]: the steps, as plain data. [`apply`]: the only writer.
//!   [`firewall`]: an attachment's nf_tables table.
//! * [`common::netlink`]: links, addresses, routes and rules. [`nftables`]: one complete table. [`sys`]: system calls; the only unsafe
//!   code of this crate.
//! * [`kubernetes`]: reads one ConfigMap. [`aws`]: an Elastic IP for the pod. [`http`]: the client of both.
//! * [`record`]: files on the node, with the journal of each attachment. [`lock`]: locks on it.
//! * [`log`]: the log file, as the original had it. [`install`]: installs the program on a node.

pub mod apply;
pub mod aws;
pub mod cni;
pub mod config;
pub mod firewall;
pub mod http;
pub mod install;
pub mod kubernetes;
pub mod lock;
pub mod log;
pub mod names;
pub mod nftables;
pub mod observe;
pub mod plan;
pub mod program;
pub mod record;
pub mod sys;
pub mod verb;
