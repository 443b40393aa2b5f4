//! The law of the fault tests, for natgw: each scenario, stopped at each write, and with each fault at each call, comes to the
//! end that it has undisturbed, and a invariants sees no forbidden state at any time in between.
//!
//! `make test` kills at every write and puts a slice of the faults in the way, another one each day; `make sweep` all of them.

mod disturbance;
mod invariants;
mod machines;
mod observed;
mod proofs;
mod scenario;
mod summary;
mod sweep;
mod sweep_env;
