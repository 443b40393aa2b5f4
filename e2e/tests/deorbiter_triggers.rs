//! The triggers that create a Deorbit, on a real API server and with the permissions of the manifests: a binding to a
//! kind like Kubernikus's Kluster, and Cluster API's runtime hook, called over TLS as Cluster API calls it.
//!
//! The clusters that are deorbited are the control plane itself, without anything in a cloud: a Deorbit is complete in seconds, or never
//! where its kubeconfig is missing.

mod binding;
mod crashes;
mod env;
mod hook;
mod identity;
mod kubernikus;
mod machines;
mod rights;
