//! The settings file as a user writes it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use kube::core::Duration as GoDuration;
use serde::Deserialize;

use crate::names;
use crate::selector::{self, Selector};

/// The settings file as a user writes it. Unknown fields are refused.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// Name or numeric ID of the Hetzner Cloud network whose default route natgw owns.
    pub network: NetworkName,
    /// The Nodes that natgw manages; all if it is not set.
    #[serde(default, deserialize_with = "selector::deserialize")]
    pub node_selector: Selector,
    /// Node label that holds the floating IP assigned to the Node.
    #[serde(default = "default_floating_ip_label", rename = "floatingIPLabel")]
    pub floating_ip_label: String,
    /// Node annotation that holds the floating IP for which the Node has been set up.
    #[serde(default = "default_setup_annotation")]
    pub setup_annotation: String,
    /// Label of the primary.
    #[serde(default = "default_role_label")]
    pub role_label: String,
    /// Whether a default route that points to no Node of this cluster is changed.
    #[serde(default = "yes")]
    pub adopt_foreign_route: bool,
    /// Whether a route to a Node that is no gateway is kept or removed while there is no candidate.
    #[serde(default)]
    pub on_no_candidate: OnNoCandidate,
    /// Floating-IP labels made by natgw itself.
    #[serde(default, rename = "floatingIPs")]
    pub floating_ips: FloatingIPs,
    /// Jobs that give the other Nodes their default route.
    #[serde(default)]
    pub clients: Clients,
    /// Probes of the gateways.
    #[serde(default)]
    pub health_check: HealthCheck,
    /// Jobs that compare the gateways with their setup.
    #[serde(default)]
    pub verification: Verification,
    /// How Jobs are made.
    #[serde(default)]
    pub jobs: Jobs,
    /// The cloud.
    #[serde(default)]
    pub hetzner: Hetzner,
}

/// A network by name or by ID. A name that consists of digits only is taken for an ID.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum NetworkName {
    /// Network ID.
    Id(u64),
    /// Network name, unique in its project.
    Name(String),
}

/// The action on a route to a Node that is no gateway, while there is no candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OnNoCandidate {
    /// It stays, and a Warning reports it.
    #[default]
    Keep,
    /// It is removed, if it points to a Node that bears natgw's marks: no traffic rather than traffic to nowhere.
    Remove,
}

/// Floating-IP labels made by natgw itself, from the cloud's own data.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FloatingIPs {
    /// Whether natgw writes and removes the floating-IP label.
    pub label: bool,
    /// Hetzner label selector of the floating IPs that count; all of them if empty.
    pub selector: String,
}

/// Jobs that give the other Nodes their default route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Clients {
    /// Whether they are run.
    pub enabled: bool,
}

/// Probes of the gateways over the private network, by the leader.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HealthCheck {
    /// Whether they are made.
    pub enabled: bool,
    /// How often each gateway is probed, as `1s`.
    pub interval: GoDuration,
    /// The number of probes in a row without a response that make a gateway unavailable.
    pub failures: u32,
    /// TCP port of the gateways' private addresses. A refused connection is a response too.
    pub port: u16,
    /// The third reference, as `10.0.0.9:22`: while it does not respond, the leader may be cut off itself. The API server if it is
    /// not set.
    pub target: Option<SocketAddr>,
}

impl Default for HealthCheck {
    fn default() -> Self {
        HealthCheck {
            // Until a real network has shown over a longer time that no move is made without need.
            enabled: false,
            interval: Duration::from_secs(1).into(),
            failures: 3,
            // The kubelet's: it is open on every Node.
            port: 10250,
            target: None,
        }
    }
}

/// Jobs that compare the gateways with their setup, and find a flushed ruleset.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Verification {
    /// Whether they are run.
    pub enabled: bool,
    /// How long after the end of its last Job a gateway is verified, as `10m`.
    pub interval: GoDuration,
}

impl Default for Verification {
    fn default() -> Self {
        Verification {
            // Each verification is a privileged pod.
            enabled: false,
            // Six pods an hour on each gateway.
            interval: Duration::from_secs(600).into(),
        }
    }
}

/// How Jobs are made.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Jobs {
    /// Image of the Job's container. It needs `/bin/chroot`; everything else is the Node's own.
    pub image: String,
    /// How long a finished Job is kept: `ttlSecondsAfterFinished` of the Jobs, as `1h`.
    pub ttl_after_finished: GoDuration,
    /// More environment variables for every script, by name.
    pub env: BTreeMap<String, String>,
    /// The script, run by the Node's bash, that makes a Node a gateway for `FLOATING_IP`.
    pub setup_script: String,
    /// The script that removes what the setup script made.
    pub teardown_script: String,
    /// The script that gives a Node its default route into the network.
    pub client_setup_script: String,
    /// The script that removes this route.
    pub client_teardown_script: String,
    /// The script that compares the Node with what the setup script makes, changes nothing, and exits with 5 if they differ.
    pub verify_script: String,
}

impl Default for Jobs {
    fn default() -> Self {
        Jobs {
            image: "busybox:stable".into(),
            // An hour leaves time to read the logs.
            ttl_after_finished: Duration::from_secs(3600).into(),
            env: BTreeMap::new(),
            setup_script: include_str!("../../scripts/setup.sh").into(),
            teardown_script: include_str!("../../scripts/teardown.sh").into(),
            client_setup_script: include_str!("../../scripts/client-setup.sh").into(),
            client_teardown_script: include_str!("../../scripts/client-teardown.sh").into(),
            // One script knows the rules. It reads JOB_TYPE.
            verify_script: include_str!("../../scripts/setup.sh").into(),
        }
    }
}

/// The cloud.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Hetzner {
    /// Base URL of the API.
    pub endpoint: String,
    /// How often the network and the floating IPs are listed in steady state, as `30s`. Up to 10 % are added at random, so
    /// that the clusters of one project do not poll at the same time. 30 s are about 230 requests an hour, of the project's
    /// 3,600.
    pub poll_interval: GoDuration,
}

impl Default for Hetzner {
    fn default() -> Self {
        Hetzner {
            endpoint: "https://api.hetzner.cloud/v1".into(),
            poll_interval: Duration::from_secs(30).into(),
        }
    }
}

fn default_floating_ip_label() -> String {
    names::FLOATING_IP_LABEL.into()
}
fn default_setup_annotation() -> String {
    names::SETUP_ANNOTATION.into()
}
fn default_role_label() -> String {
    names::ROLE_LABEL.into()
}
fn yes() -> bool {
    true
}
