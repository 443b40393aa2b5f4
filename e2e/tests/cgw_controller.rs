//! `cgw controller` with a real control plane: its own ServiceAccount and RBAC, TLS, tokens of TokenRequest, and stand-ins for the status
//! servers of two keepers. Each test uses a control plane alone, because annotations of all Services of a cluster count.

mod bindings;
mod crashes;
mod env;
mod faults;
mod gateways;
mod lost;
mod openapi;
mod requests;
