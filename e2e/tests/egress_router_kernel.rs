//! egress-router on a stock Debian kernel, under emulation: ipvlan in each of its modes, the same firewall and macvlan on an
//! older kernel, and an Elastic IP from its association to the packet.
//!
//! All tests of this file run in one machine, which takes seconds to boot: [`machine::inside`].

mod aws;
mod env;
mod kinds;
mod machine;

// The simulated EC2 of the crate's tests, without faults.
#[allow(dead_code)]
#[path = "../../crates/egress-router-cni/tests/aws/ec2.rs"]
mod ec2;
#[allow(dead_code)]
#[path = "../../crates/egress-router-cni/tests/aws/gate.rs"]
mod gate;
#[allow(dead_code)]
#[path = "../../crates/egress-router-cni/tests/aws/http.rs"]
mod http;
#[allow(dead_code)]
#[path = "../../crates/egress-router-cni/tests/aws/metadata.rs"]
mod metadata;
