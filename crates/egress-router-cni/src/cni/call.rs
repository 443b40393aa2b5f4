//! One call of the plugin: what the runtime says through the environment.

use std::path::PathBuf;

use super::args::Args;

/// `CNI_COMMAND`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// ADD
    Add,
    /// DEL
    Del,
    /// CHECK
    Check,
    /// STATUS
    Status,
    /// GC
    Gc,
    /// VERSION
    Version,
}

/// The environment, validated as the verb demands it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `CNI_COMMAND`.
    pub command: Command,
    /// `CNI_CONTAINERID`; empty where the verb needs none.
    pub container_id: String,
    /// `CNI_NETNS`: a path. DEL may come without.
    pub netns: Option<PathBuf>,
    /// `CNI_IFNAME`; empty where the verb needs none.
    pub ifname: String,
    /// `CNI_ARGS`.
    pub args: Args,
    /// `CNI_NETNS_OVERRIDE` is true: the plugin's own namespace is allowed as the pod's.
    pub netns_override: bool,
}
