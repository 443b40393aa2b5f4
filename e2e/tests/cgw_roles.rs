//! The roles of cgw-controller beside each other, each with the permissions of its manifests: a real API server, and a gateway node that is
//! a network namespace with the real keepalived and the driver vxlan. The story runs once, and several tests read what it recorded.
//!
//! keepalived has to be root on its node, and is the Debian package of this name.

mod env;
mod rights;
pub mod story;
