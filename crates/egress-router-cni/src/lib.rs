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
//! Everything is read, validated and decided before the pod is changed. When a step fails, the steps before it are rolled back.
//!
//! * [`program`]: which verb is asked for. [`verb`]: one file for each: add, del, check, status, gc, version.
//! * [`cni`]: the protocol: call, versions, results, errors. [`config`]: what a network configuration may say.
//! * [`observe`]: what stands on the node and in the pod. [`mod@plan`]: what shall be done, as plain data. [`apply`]: the only
//!   writer. [`firewall`]: what an attachment's nf_tables table holds, the record of what was there before among it.
//! * [`netlink`]: links, addresses, routes, rules and nf_tables as the kernel speaks of them. [`sys`]: system calls; the only
//!   unsafe code.
//! * [`kubernetes`]: one ConfigMap. [`aws`]: an Elastic IP for the pod. [`record`]: what outlives a call.
//! * [`log`]: the original's log file. [`install`]: how the program gets onto a node.

pub mod apply;
pub mod aws;
pub mod cni;
pub mod config;
pub mod firewall;
pub mod install;
pub mod kubernetes;
pub mod log;
pub mod names;
pub mod netlink;
pub mod observe;
pub mod plan;
pub mod program;
pub mod record;
pub mod sys;
pub mod verb;
