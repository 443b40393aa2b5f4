//! cgw-controller with driver vxlan on a cluster of real nodes, as a user installs it: its own images and manifests, kubelets and kube-proxy,
//! keepalived. Hosts outside count each packet by its source.
//!
//! Two gateway nodes and two workers. Packets of pods leave with the address of their node, as most CNI plugins do it, so a bound pod's packet
//! that is not translated is visible outside. Needs root.

mod env;
mod failover;
mod faults;
mod lifecycle;
mod metrics;
mod paths;
mod removal;
mod steady;
mod story;
