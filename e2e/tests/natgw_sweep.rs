//! The law of the fault tests, for natgw: each scenario, stopped at each write, and with each fault at each call, comes to the
//! end that it has undisturbed, and a witness sees no forbidden state at any time in between.
//!
//! `make test` kills at every write and puts a slice of the faults in the way, another one each day; `make sweep` all of them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "natgw_sweep/disturbance.rs"]
mod disturbance;
#[path = "natgw_sweep/machines.rs"]
mod machines;
#[path = "natgw_sweep/proofs.rs"]
mod proofs;
#[path = "natgw_sweep/scenario.rs"]
mod scenario;
#[path = "natgw_sweep/sight.rs"]
mod sight;
#[path = "natgw_sweep/stage.rs"]
mod stage;
#[path = "natgw_sweep/sweep.rs"]
mod sweep;
#[path = "natgw_sweep/tally.rs"]
mod tally;
#[path = "natgw_sweep/witness.rs"]
mod witness;
