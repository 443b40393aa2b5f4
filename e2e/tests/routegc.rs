//! routegc against a real kube-apiserver and a real Neutron: each hazard of the original by its number, and what a user is
//! promised. Every pass is a process of its own, so every test is one of restarts too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "routegc/flags.rs"]
mod flags;
#[path = "routegc/hazards.rs"]
mod hazards;
#[path = "routegc/nodes.rs"]
mod nodes;
#[path = "routegc/promises.rs"]
mod promises;
#[path = "routegc/race.rs"]
mod race;
#[path = "routegc/schema.rs"]
mod schema;
