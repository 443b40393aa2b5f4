//! The Hetzner stand-in refuses what the real API refuses, and works with Hetzner's own Python client.

mod client;
mod lists;
mod protocol;
mod python;
mod routes;
