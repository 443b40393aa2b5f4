//! `cloud::openstack` against a small OpenStack that accepts exactly what the real one accepts and records everything else:
//! logins and their renewal, lists in pages, routes, every call's method and path, errors and their messages,
//! TLS trust. Leaks of secrets are tested in `openstack_secrets.rs`.
#![cfg(feature = "openstack")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "openstack/calls.rs"]
mod calls;
#[path = "openstack/errors.rs"]
mod errors;
#[path = "openstack/lists.rs"]
mod lists;
#[path = "openstack/login.rs"]
mod login;
#[cfg(feature = "routes")]
#[path = "openstack/neighbourhood.rs"]
mod neighbourhood;
#[cfg(feature = "routes")]
#[path = "openstack/removals.rs"]
mod removals;
#[path = "openstack/rights.rs"]
mod rights;
#[path = "openstack/routes.rs"]
mod routes;
#[path = "openstack/site.rs"]
mod site;
#[path = "openstack/tls.rs"]
mod tls;
