//! An Elastic IP for a pod, with the instance metadata service and EC2.
//!
//! The administrator allocates and releases the Elastic IP. This module associates it with the pod's node, and disassociates it. VPC
//! drops frames of unknown hardware addresses, so the pod's interface is an ipvlan on the
//! device of a network interface of the node, with a secondary private address that EC2 maps to the Elastic IP.
//!
//! | call | when | IAM permission |
//! |---|---|---|
//! | DescribeAddresses | ADD; DEL after a killed ADD | `ec2:DescribeAddresses` |
//! | DescribeNetworkInterfaces | ADD; DEL after a killed ADD | `ec2:DescribeNetworkInterfaces` |
//! | AssignPrivateIpAddresses | ADD | `ec2:AssignPrivateIpAddresses` |
//! | AssociateAddress | ADD | `ec2:AssociateAddress` |
//! | DisassociateAddress | DEL, failed ADD | `ec2:DisassociateAddress` |
//! | UnassignPrivateIpAddresses | DEL, failed ADD | `ec2:UnassignPrivateIpAddresses` |
//!
//! An address that was moved away is never moved back. Only ADD associates, once. A retry after a lost response first reads the current
//! association. DEL, GC and the rollback of a failed ADD disassociate by the ID of the association that the attachment made, which ends
//! when the address moves.
//!
//! [`acquire`](mod@acquire) and [`release`](mod@release) are the two operations; [`state`] is their record. Below them:
//! [`ec2`] ([`signature`], [`credentials`]), [`metadata`]; [`crate::http`].

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::cni::{self, Code};
use crate::config::settings::{Platform, Settings};

pub mod acquire;
pub mod choose;
pub mod cloud;
pub mod credentials;
pub mod ec2;
pub mod error;
pub mod metadata;
pub mod platform;
pub mod release;
pub mod signature;
pub mod state;

pub use acquire::{Request, acquire};
pub use cloud::Cloud;
pub use release::release;
pub use state::{Journal, Stage, State};

use crate::http::Network;

/// Time limit of all AWS requests of a call: runtimes wait for minutes, and throttling ends within seconds.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// The platform: `settings.platform`, or the detected one; never `Auto`. `sys_root` is the path of `/sys`.
#[must_use]
pub fn platform(settings: &Settings, sys_root: &Path) -> Platform {
    // The metadata service has no certificate.
    let network = Network::new();
    let cloud = Cloud::new(&network, &settings.aws, &environment);
    platform::platform(&network, cloud.metadata_endpoint(), settings, sys_root)
}

/// Calls `work` with access to AWS over the network.
///
/// # Errors
///
/// Code 4: `AWS_CA_BUNDLE` names no file with certificates; and those of `work`.
pub fn over_network<T>(
    settings: &Settings,
    work: impl FnOnce(&Cloud<'_>) -> Result<T, cni::Error>,
) -> Result<T, cni::Error> {
    let network = network()?;
    work(&Cloud::new(&network, &settings.aws, &environment))
}

/// STATUS: whether the metadata service responds and has credentials. EC2 gets no request, because runtimes call STATUS every few seconds
/// and EC2 has a rate limit.
///
/// # Errors
///
/// 50: what is missing.
pub fn ready(cloud: &Cloud<'_>, deadline: Instant) -> Result<(), cni::Error> {
    let metadata = cloud.metadata(deadline);
    let all = metadata.instance().and_then(|_| cloud.ec2(&metadata, deadline).map(drop));
    all.map_err(|error| cni::Error { code: Code::NotAvailable, ..error })
}

/// With `AWS_CA_BUNDLE`, for a proxy that intercepts TLS, or a private region with its own certificates.
fn network() -> Result<Network, cni::Error> {
    let Some(file) = environment("AWS_CA_BUNDLE").filter(|file| !file.is_empty()) else {
        return Ok(Network::new());
    };
    let refuse = |why: String| {
        cni::Error::new(Code::InvalidEnvironment, format!("AWS_CA_BUNDLE ({}) {why}", file.display()))
    };
    let bundle = std::fs::read(&file).map_err(|error| refuse("cannot be read".into()).details(error))?;
    Network::trusting(&bundle).ok_or_else(|| refuse("holds no certificate".into()))
}

fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}
