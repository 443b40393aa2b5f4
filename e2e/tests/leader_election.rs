//! Leader election at a real API server: `common::leader` behind the fault proxy, client-go (kube-controller-manager) as the other
//! contender for the same Lease, and two natgw processes of which one acts. Random faults are in `common`'s leader_model.

mod acts;
mod client_go;
mod contender;
mod contenders;
mod history;
mod processes;
mod sampler;
