//! Leader election against what is real: `common::leader` through the fault proxy to a real API server, client-go itself
//! (kube-controller-manager) on the other side of the same Lease, and two natgw processes of which one acts.

mod acts;
mod chaos;
mod client_go;
mod contender;
mod contenders;
mod history;
mod processes;
mod sampler;
