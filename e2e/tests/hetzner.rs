//! The Hetzner stand-in refuses what the real API refuses, takes as long as the real API, and works with Hetzner's own Python
//! client.

mod client;
mod faults;
mod floating_ips;
mod protocol;
mod python;
mod routes;
mod servers;
