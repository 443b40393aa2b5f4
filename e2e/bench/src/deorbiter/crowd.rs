//! Two hundred Deorbits at once: how long until all are complete, and in how much memory.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use common::api::deorbit::Phase;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{DeleteParams, ListParams};

use super::provisioner::Provisioner;
use super::stage::{Stage, metadata};
use crate::machine::{Memory, peak_rss, sockets};
use crate::process::{STEADY, stop, until_ready};
use crate::report::{Bench, count, mebibytes, milliseconds};

/// Clusters that are deleted in one night.
pub(crate) const DEORBITS: usize = 200;
/// Claims of the cluster that is the target of all Deorbits. Each Deorbit records all of them.
const CLAIMS: u32 = 40;
/// Requests at the same time.
const CONCURRENCY: usize = 16;
/// Far longer than it takes.
const TIMEOUT: Duration = Duration::from_secs(900);
/// Between two lists of all Deorbits.
const POLL: Duration = Duration::from_millis(500);

pub(crate) async fn measure(stage: &Stage, bench: &mut Bench) -> Result<()> {
    let env = &stage.env;
    let origin = stage.project.volume("origin", metadata()).await?;
    let ids = stage.openstack.copy_volume(&origin, CLAIMS)?;
    let provisioner = Provisioner::start(&env.client, &env.namespace, &stage.openstack);
    provisioner.fill(&ids).await?;
    provisioner.work();
    let kubeconfig = env.target_kubeconfig()?;
    let all = || stream::iter(0..DEORBITS);
    let (name, target) = (|index| format!("crowd-{index}"), |index| format!("target-{index}"));
    let secret = async |index: usize| env.secret(&target(index), "value", &kubeconfig).await;
    all().map(secret).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;

    let (deorbiter, _) = until_ready(&stage.direct()).await?;
    let began = Instant::now();
    let create = async |index: usize| stage.deorbit(&name(index), &target(index)).await;
    all().map(create).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
    let mut open = 0;
    loop {
        open = open.max(sockets(deorbiter.pid())?);
        let now = env.deorbits().list(&ListParams::default()).await?.items;
        let phases: Vec<Phase> = now
            .iter()
            .map(|one| one.status.as_ref().map(|status| status.phase).unwrap_or_default())
            .collect();
        let failed = phases.iter().any(|phase| phase.is_final() && *phase != Phase::Succeeded);
        ensure!(!failed, "a Deorbit failed: {phases:?}");
        if phases.len() == DEORBITS && phases.iter().all(|phase| *phase == Phase::Succeeded) {
            break;
        }
        ensure!(began.elapsed() < TIMEOUT, "not all are complete after {TIMEOUT:?}: {phases:?}");
        tokio::time::sleep(POLL).await;
    }
    let took = began.elapsed();
    tokio::time::sleep(STEADY).await;
    let (after, peak) = (Memory::of(deorbiter.pid())?, peak_rss(deorbiter.pid())?);
    let delete =
        async |index: usize| env.deorbits().delete(&name(index), &DeleteParams::default()).await.map(drop);
    all().map(delete).buffer_unordered(CONCURRENCY).try_collect::<()>().await?;
    // deorbiter removes their finalizers.
    let began = Instant::now();
    while !env.deorbits().list(&ListParams::default()).await?.items.is_empty() {
        ensure!(began.elapsed() < TIMEOUT, "not all are deleted after {TIMEOUT:?}");
        tokio::time::sleep(POLL).await;
    }
    stop(&deorbiter).await?;
    env.unblocked().await?;

    let among = format!("{DEORBITS} Deorbits");
    bench.row(format!("{among} at once → all Complete"), "", milliseconds([took])).means(format!(
        "With the default of 10 workers; a kubeconfig and credentials each, all for one cluster of {CLAIMS} claims and one \
         project: two cores do the work of {DEORBITS} API servers and clouds"
    ));
    bench
        .row(format!("Peak memory (RSS), {among}"), "", mebibytes([peak]))
        .means("The most that this process ever had");
    bench
        .row(format!("Memory after them (RSS), {among}"), "", mebibytes([after.rss]))
        .means("10 s after the last one was Complete");
    bench
        .row(format!("Sockets, {among}"), "", count([open as f64]))
        .means("The most that were open at a poll, each half second");
    Ok(())
}
