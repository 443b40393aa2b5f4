//! RabbitMQ on loopback ports of its own, for the programs of Nova, Cinder and Octavia.

use anyhow::{Context, Result};

use super::site::Site;
use crate::program::{Launch, Program, free_port};

/// Its ports.
#[derive(Debug, Clone, Copy)]
pub(super) struct Broker {
    pub(super) epmd: u16,
    pub(super) amqp: u16,
    distribution: u16,
}

impl Broker {
    pub(super) fn choose() -> Result<Self> {
        Ok(Self { epmd: free_port()?, amqp: free_port()?, distribution: free_port()? })
    }
}

impl Site {
    pub(super) fn broker(&self) -> Result<Broker> {
        self.broker.context("this cloud was started without RabbitMQ: ask for Parts::All")
    }

    pub(super) fn broker_launch(&self) -> Result<Launch> {
        let (ports, home) = (self.broker()?, self.dir.file("rabbit"));
        std::fs::create_dir_all(&home)?;
        // No plugins; the file is required.
        std::fs::write(home.join("enabled_plugins"), "[].\n")?;
        Ok(Program::at("/usr/lib/rabbitmq/bin/rabbitmq-server")
            .env("HOME", &home)
            // The script then executes Erlang, which ends with this process.
            .env("RUNNING_UNDER_SYSTEMD", "1")
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("ERL_EPMD_PORT", ports.epmd.to_string())
            // Names are looked up at epmd, and this cloud has its own.
            .env("RABBITMQ_NODENAME", "lab@localhost")
            .env("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODE_PORT", ports.amqp.to_string())
            .env("RABBITMQ_DIST_PORT", ports.distribution.to_string())
            .env("RABBITMQ_MNESIA_BASE", home.join("mnesia"))
            .env("RABBITMQ_LOG_BASE", home.join("log"))
            .env("RABBITMQ_LOGS", "-")
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", home.join("enabled_plugins"))
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            .env("RABBITMQ_CONFIG_FILE", home.join("none"))
            .env("RABBITMQ_PID_FILE", home.join("pid"))
            // Two schedulers that do not spin while they wait: there are other programs on this machine.
            .env(
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +sbwt none",
            ))
    }
}
