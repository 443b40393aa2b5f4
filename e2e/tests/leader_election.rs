//! Leader election against what is real: `common::leader` through the fault proxy to a real API server, client-go itself
//! (kube-controller-manager) on the other side of the same Lease, and two natgw processes of which one acts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "leader_election/acts.rs"]
mod acts;
#[path = "leader_election/chaos.rs"]
mod chaos;
#[path = "leader_election/client_go.rs"]
mod client_go;
#[path = "leader_election/contender.rs"]
mod contender;
#[path = "leader_election/contenders.rs"]
mod contenders;
#[path = "leader_election/history.rs"]
mod history;
#[path = "leader_election/processes.rs"]
mod processes;
#[path = "leader_election/sampler.rs"]
mod sampler;
