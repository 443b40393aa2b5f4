//! `--dry-run`: the next steps for each source object, and what is garbage. Nothing is written.

use std::time::Duration;

use anyhow::Context as _;
use common::command::{self, Output};
use common::runtime::Runtime;

use crate::api::network_policy::SourceNetworkPolicy;
use crate::api::source;
use crate::apply::Apply;
use crate::caches::Caches;
use crate::clusters::{ApiNet, Source};
use crate::config::Config;
use crate::error::Error;
use crate::mapping::Mapping;
use crate::plan::Plan;
use crate::{garbage, identity};

/// For the first lists of all kinds.
const SYNC_TIMEOUT: Duration = Duration::from_secs(60);

/// Prints the plan. Steps that depend on the response to these, as an ID that is allocated, follow in the next plan of a run.
///
/// # Errors
/// A cluster does not respond, or the apinet namespace has objects of another source cluster.
pub async fn run(
    runtime: &Runtime,
    config: Config,
    source: Source,
    apinet: ApiNet,
    output: Output,
) -> anyhow::Result<()> {
    let caches = Caches::start(runtime, &config, &source, &apinet);
    tokio::time::timeout(SYNC_TIMEOUT, caches.synced()).await.with_context(|| {
        format!("not all kinds were listed within {} s; the log lines name the cause", SYNC_TIMEOUT.as_secs())
    })?;
    let config = identity::read(runtime, &caches, config).await?;
    let apply = Apply { config, source, apinet, caches };
    let mut plan = Plan::default();
    add::<source::Network>(&apply, &mut plan).await?;
    add::<source::NetworkInterface>(&apply, &mut plan).await?;
    add::<source::VirtualIp>(&apply, &mut plan).await?;
    add::<source::LoadBalancer>(&apply, &mut plan).await?;
    add::<source::NatGateway>(&apply, &mut plan).await?;
    add::<SourceNetworkPolicy>(&apply, &mut plan).await?;
    command::print(&output.plan(&plan));
    Ok(())
}

async fn add<M: Mapping>(apply: &Apply, plan: &mut Plan) -> Result<(), Error> {
    let Apply { config, caches, .. } = apply;
    let Some(cache) = M::sources(caches) else { return Ok(()) };
    for object in cache.objects() {
        let Plan { steps, problems } = std::sync::Arc::unwrap_or_clone(object).plan(config, caches);
        plan.steps.extend(steps);
        plan.problems.extend(problems);
    }
    plan.steps.extend(garbage::steps::<M>(apply).await?);
    Ok(())
}
