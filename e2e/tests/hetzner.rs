//! The Hetzner stand-in refuses what the real API refuses, takes the time that it takes, and is accepted by Hetzner's
//! own Python client.

mod client;
mod faults;
mod floating_ips;
mod protocol;
mod python;
mod routes;
mod servers;
