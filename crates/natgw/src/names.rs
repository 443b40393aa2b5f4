//! All names that natgw writes to objects of the cluster.
//!
//! Names that a user may choose (the floating-IP label, the setup annotation, the role label) are here as defaults;
//! [`crate::config::Config`] holds the ones in force.

use sha2::{Digest, Sha256};

/// Program name, field manager prefix, Lease name.
pub const PROGRAM: &str = "natgw";
/// Field manager of natgw's writes, and the `managed-by` of its Jobs.
pub const MANAGER: &str = "natgw.perimeter.dev";

/// Default of `floatingIPLabel`: the public floating IP assigned to a Node, IPv4 (a label value cannot hold a colon).
pub const FLOATING_IP_LABEL: &str = "natgw.perimeter.dev/floating-ip";
/// Default of `setupAnnotation`: the floating IP for which the Node has been set up.
pub const SETUP_ANNOTATION: &str = "natgw.perimeter.dev/nat-gateway";
/// Default of `roleLabel`: on the primary, with an empty value, so that `kubectl get nodes` shows the role.
pub const ROLE_LABEL: &str = "node-role.kubernetes.io/nat-gateway";

/// Node annotation: the first address of the network, the next hop of the default route of the client setup.
pub const CLIENT_ANNOTATION: &str = "natgw.perimeter.dev/client";
/// Node annotation: `status.nodeInfo.bootID` at the time of the last successful setup. Addresses and packet filter rules
/// are kernel state: after a reboot the setup annotation would be wrong without it.
pub const BOOT_ID_ANNOTATION: &str = "natgw.perimeter.dev/setup-boot-id";
/// Node annotation: the Node's private address at the time of the last successful setup. A server that was attached to the network again
/// with another address has another interface too, which the rules and routes of that setup do not name.
pub const PRIVATE_IP_ANNOTATION: &str = "natgw.perimeter.dev/setup-private-ip";
/// Node annotation: hash of the script, the environment variables and, for a gateway, the network's range of the last successful
/// setup.
pub const SETUP_HASH_ANNOTATION: &str = "natgw.perimeter.dev/setup-hash";
/// Node annotation: `<job type>:<ip>`, written before a Job is created and removed with its success. While it is there,
/// what the Node's kernel holds is unknown.
pub const PENDING_ANNOTATION: &str = "natgw.perimeter.dev/pending";
/// Node annotation: how many Jobs in a row have failed for what `pending` names.
pub const FAILURES_ANNOTATION: &str = "natgw.perimeter.dev/failures";
/// Node annotation: RFC 3339 time before which the failed Job is not tried again.
pub const RETRY_AFTER_ANNOTATION: &str = "natgw.perimeter.dev/retry-after";
/// Node annotation, set to `true` by a person: forget what is known about this Node without running a teardown Job.
pub const FORGET_ANNOTATION: &str = "natgw.perimeter.dev/forget";

/// All of natgw's annotations on Nodes that have a fixed name.
pub const NODE_ANNOTATIONS: [&str; 8] = [
    CLIENT_ANNOTATION,
    BOOT_ID_ANNOTATION,
    PRIVATE_IP_ANNOTATION,
    SETUP_HASH_ANNOTATION,
    PENDING_ANNOTATION,
    FAILURES_ANNOTATION,
    RETRY_AFTER_ANNOTATION,
    FORGET_ANNOTATION,
];

/// Job label: `setup`, `teardown`, `client-setup`, `client-teardown`, `verify`.
pub const TYPE_LABEL: &str = "natgw.perimeter.dev/type";
/// Job label: a hash of the Node's name, which may be longer than a label value.
pub const NODE_LABEL: &str = "natgw.perimeter.dev/node";
/// Job label: the IP that the Job is for.
pub const IP_LABEL: &str = "natgw.perimeter.dev/ip";
/// Job label: a hash of the Node's UID and boot ID, of the script, its environment and the network's range, and in a setup of the Node's
/// private address; a Job of another generation says nothing about this kernel, or has run another setup.
pub const GENERATION_LABEL: &str = "natgw.perimeter.dev/generation";
/// Job annotation: the Node's name in full.
pub const NODE_NAME_ANNOTATION: &str = "natgw.perimeter.dev/node-name";
/// Job annotation: 1 for the first try, one more after each failed Job.
pub const ATTEMPT_ANNOTATION: &str = "natgw.perimeter.dev/attempt";

/// Environment variables that natgw sets itself.
pub const OWN_ENV: [&str; 6] =
    ["FLOATING_IP", "JOB_TYPE", "NODE_NAME", "PRIVATE_IP", "NETWORK_CIDR", "NETWORK_GATEWAY"];

/// Ten hex digits: enough to tell Jobs of one namespace apart, short enough for any name built with them.
#[must_use]
pub fn short_hash<'a>(parts: impl IntoIterator<Item = &'a str>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    hasher.finalize().iter().take(5).map(|byte| format!("{byte:02x}")).collect()
}
