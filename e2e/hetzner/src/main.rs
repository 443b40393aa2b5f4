//! The Hetzner stand-in as a program: `hetzner --listen 127.0.0.1:8080 --state project.yaml`.
//!
//! Prints the URL as its only line on standard output, then serves until SIGINT or SIGTERM.

use anyhow::Context;
use clap::Parser;
use e2e::hetzner::{Hetzner, Seed, Settings};
use std::{io::Write, net::SocketAddr, path::PathBuf};
use tokio::signal::unix::{SignalKind, signal};

/// A stand-in for the Hetzner Cloud API.
#[derive(Debug, Parser)]
struct Args {
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, env = "HETZNER_LISTEN", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// YAML file with `networks`, `servers` and `floating_ips` to begin with.
    #[arg(long, env = "HETZNER_STATE")]
    state: Option<PathBuf>,

    /// How long an action runs, for example 50ms.
    #[arg(long, env = "HETZNER_ACTION_DURATION", default_value = "1s")]
    action_duration: jiff::SignedDuration,

    /// Token that may read and write; it opens nothing but this stand-in.
    #[arg(long, env = "HCLOUD_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let seed = match &args.state {
        None => Seed::default(),
        Some(path) => {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
            serde_yaml::from_str(&text).with_context(|| format!("in {}", path.display()))?
        }
    };
    let mut settings = Settings { listen: args.listen, ..Settings::default() };
    settings.action_duration = args.action_duration.try_into().context("--action-duration")?;
    settings.token = args.token.unwrap_or(settings.token);
    let hetzner = Hetzner::start_with(settings).await?;
    hetzner.seed(seed)?;

    let mut out = std::io::stdout();
    writeln!(out, "{}", hetzner.url())?;
    out.flush()?;
    eprintln!("token: {}\nread-only token: {}", hetzner.token(), hetzner.readonly_token());

    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
