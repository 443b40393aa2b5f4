//! The law of the fault tests, for natgw: each scenario, stopped at each write, and with each fault at each call, comes to the
//! end that it has undisturbed, and a witness sees no forbidden state at any time in between.
//!
//! `make test` kills at every write and puts a slice of the faults in the way, another one each day; `make sweep` all of them.

mod disturbance;
mod machines;
mod proofs;
mod scenario;
mod sight;
mod stage;
mod sweep;
mod tally;
mod witness;
