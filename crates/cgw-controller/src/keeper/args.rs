//! Command lines of `cgw keeper`, `cgw keeper-guard` and `cgw keeper-check`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use common::args::duration;
use common::command::PlanArgs;

use crate::args::ProcessArgs;
use crate::names;

/// Runs keepalived on a gateway node and notifies the controller
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub process: ProcessArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub plan: PlanArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub keeper: KeeperArgs,
}

/// The virtual router on this node.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Keeper")]
pub struct KeeperArgs {
    /// Configuration of the virtual router: a YAML file, read again when it changes
    #[arg(long, env = "PERIMETER_CONFIG", value_name = "FILE")]
    pub config: PathBuf,
    /// Name of the Node
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub node_name: String,
    /// Main address of the node (status.hostIP of the Pod)
    #[arg(long, env = "HOST_IP", value_name = "IP")]
    pub node_ip: IpAddr,
    /// URL of the controller, as `https://cgw-controller.cgw-controller.svc`
    #[arg(long, env = "PERIMETER_CONTROLLER_URL", value_name = "URL")]
    pub controller_url: String,
    /// CA certificates of the controller, as PEM; read again when they change
    #[arg(long, env = "PERIMETER_CONTROLLER_CA", value_name = "FILE")]
    pub controller_ca: PathBuf,
    /// Projected ServiceAccount token with the audience cgw-controller.perimeter.dev; read again for each notification
    #[arg(long, env = "PERIMETER_TOKEN_FILE", value_name = "FILE", hide_env_values = true)]
    pub token_file: PathBuf,
    /// Store Service of the running keepers, in the namespace of the program
    #[arg(long, env = "PERIMETER_HOSTS_SERVICE", value_name = "NAME", default_value = names::HOSTS)]
    pub hosts_service: String,
    /// Folder of this keeper only, shared with its keeper-guard; an emptyDir in memory
    #[arg(long, env = "PERIMETER_RUN_DIR", value_name = "FOLDER", default_value = "/run/cgw")]
    pub run_dir: PathBuf,
    /// The program keepalived
    #[arg(long, env = "PERIMETER_KEEPALIVED", value_name = "FILE", default_value = "/usr/sbin/keepalived")]
    pub keepalived: PathBuf,
}

/// The heartbeat of a keeper, for its guard and for keepalived's check script.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Keeper")]
pub struct HeartbeatArgs {
    /// Folder of the keeper
    #[arg(long, env = "PERIMETER_RUN_DIR", value_name = "FOLDER", default_value = "/run/cgw")]
    pub run_dir: PathBuf,
    /// Age of the keeper's heartbeat after which the node must not carry the VIPs; for keeper-guard at least 500ms
    #[arg(long, env = "PERIMETER_HEARTBEAT_TIMEOUT", value_name = "DURATION", default_value = "1s",
        value_parser = duration::parse)]
    pub heartbeat_timeout: Duration,
}
