//! Executes the command line.

use std::process::ExitCode;

use common::command::{self, Work};
use common::runtime::Runtime;

use crate::args::{Args, OwnArgs};
use crate::clusters::{ApiNet, Source};
use crate::config::Config;
use crate::connection::given;
use crate::{controller, dry_run, metrics_server};

/// Parses the command line and runs the controllers.
#[must_use]
pub fn run() -> ExitCode {
    command::main(common::program!(), |args: Args| {
        let Args { own, plan, connection, mut api_net, metrics, zap, mut runtime } = args;
        plan.check()?;
        metrics.check()?;
        connection.check(plan.dry_run)?;
        let config = config(&own)?;
        zap.fill(&mut runtime.log);
        connection.fill(config.flavor, &config.namespace, &mut runtime.client, &mut api_net.client);
        // That of the Go program: the two never act at once.
        let lease = &mut runtime.leader.leader_elect_resource_name;
        lease.take_if(|name| name.is_empty());
        lease.get_or_insert_with(|| config.flavor.names().lease.to_owned());
        let clusters = async move |runtime: &Runtime, config: &Config| {
            let Some(cluster) = runtime.cluster(&api_net).await? else { return anyhow::Ok(None) };
            let namespace = config.watched_namespace.clone();
            let source = Source::new(runtime.client.clone(), config.flavor, namespace);
            anyhow::Ok(Some((source, ApiNet::new(cluster, config.flavor, config.namespace.clone()))))
        };
        let work = if plan.dry_run {
            Work::command(async move |runtime| {
                let Some((source, apinet)) = clusters(&runtime, &config).await? else {
                    anyhow::bail!("a signal ended the dry run before it was connected to the apinet cluster");
                };
                dry_run::run(&runtime, config, source, apinet, plan.output).await
            })
        } else {
            Work::run(async move |runtime| {
                metrics_server::start(&runtime, &metrics).await?;
                let Some((source, apinet)) = clusters(&runtime, &config).await? else { return Ok(()) };
                controller::run(runtime, config, source, apinet).await
            })
        };
        Ok((runtime, work))
    })
}

fn config(own: &OwnArgs) -> anyhow::Result<Config> {
    anyhow::ensure!(
        own.nat_gateway_min_public_ips <= own.nat_gateway_max_public_ips,
        "--nat-gateway-min-public-ips is more than --nat-gateway-max-public-ips"
    );
    let defaults = Config::new(own.flavor, &own.api_net_namespace);
    Ok(Config {
        watched_namespace: given(&own.namespace),
        watch_filter: given(&own.watch_filter),
        source_cluster: given(&own.source_cluster_id),
        adopt_unmarked: own.adopt_unmarked,
        layout: own.source_name_in.unwrap_or(defaults.layout),
        node_affinity: own.is_node_affinity_aware,
        min_public_ips: own.nat_gateway_min_public_ips,
        max_public_ips: own.nat_gateway_max_public_ips,
        interface_status: own.network_interface_status,
        peering_status: !own.disable_network_peering,
        ..defaults
    })
}
