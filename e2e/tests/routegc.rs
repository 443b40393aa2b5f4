//! routegc against a real kube-apiserver and a real Neutron: each hazard of the original by its number, and what a user is
//! promised. Every pass is a process of its own, so every test is one of restarts too.

mod flags;
mod hazards;
mod nodes;
mod promises;
mod race;
mod schema;
