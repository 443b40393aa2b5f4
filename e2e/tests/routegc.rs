//! routegc with a real kube-apiserver and a real Neutron. `hazards` has the rulings R1 to R14 (docs/routegc.md), `router` R15,
//! `promises` the rest of the documented behaviour. Every reconciliation is its own process, so every test also tests restarts.

mod flags;
mod hazards;
mod nodes;
mod promises;
mod race;
mod router;
mod schema;
