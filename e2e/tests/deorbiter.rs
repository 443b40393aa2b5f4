//! deorbiter on a real control plane and with real OpenStack services. Tests that begin with `d` and a number are about a defect of the
//! original: docs/deorbiter.md lists them.

mod any;
mod cloud;
mod cluster;
mod credential;
mod namespace;
mod refusals;
mod rights;
