//! What starts a Deorbit, on a real API server and with the rights of the manifests: a binding to a kind like Kubernikus's
//! Kluster, and Cluster API's runtime hook, called over TLS as Cluster API calls it.
//!
//! The clusters that are deorbited are the control plane itself, empty of anything in a cloud: a Deorbit is complete in
//! seconds, or never where its kubeconfig is missing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "deorbiter_triggers/binding.rs"]
mod binding;
#[path = "deorbiter_triggers/crashes.rs"]
mod crashes;
#[path = "deorbiter_triggers/hook.rs"]
mod hook;
#[path = "deorbiter_triggers/rights.rs"]
mod rights;
#[path = "deorbiter_triggers/world.rs"]
mod world;
