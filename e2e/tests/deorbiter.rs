//! deorbiter on a real control plane and against real OpenStack services. Tests that begin with `d` and a number are about a
//! defect of the original, numbered as in the project's notes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "deorbiter/cloud.rs"]
mod cloud;
#[path = "deorbiter/cluster.rs"]
mod cluster;
#[path = "deorbiter/refusals.rs"]
mod refusals;
#[path = "deorbiter/rights.rs"]
mod rights;
