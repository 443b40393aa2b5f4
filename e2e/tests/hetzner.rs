//! The Hetzner stand-in refuses what the real API refuses, takes the time that it takes, and is accepted by Hetzner's
//! own Python client.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "hetzner/client.rs"]
mod client;
#[path = "hetzner/faults.rs"]
mod faults;
#[path = "hetzner/floating_ips.rs"]
mod floating_ips;
#[path = "hetzner/protocol.rs"]
mod protocol;
#[path = "hetzner/python.rs"]
mod python;
#[path = "hetzner/routes.rs"]
mod routes;
#[path = "hetzner/servers.rs"]
mod servers;
