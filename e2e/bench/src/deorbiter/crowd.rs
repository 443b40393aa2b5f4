//! Two hundred Deorbits at once: how long until all are over, and in how much memory.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use common::api::deorbit::Phase;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::{DeleteParams, ListParams};

use super::provisioner::Provisioner;
use super::stage::{Stage, metadata};
use crate::figures::{Figures, Unit};
use crate::machine::{Memory, peak_rss, sockets};
use crate::process::{STEADY, stop, until_ready};
use crate::report::Report;

/// Clusters that die in one night.
pub(crate) const DEORBITS: usize = 200;
/// Claims of the cluster that all of them lead to; each Deorbit has each of them recorded.
const CLAIMS: u32 = 40;
/// Requests at the same time.
const AT_ONCE: usize = 16;
/// Far longer than it takes.
const WITHIN: Duration = Duration::from_secs(900);

/// All of them, once.
///
/// # Errors
/// deorbiter fails, or one of them does not come to its end.
pub(crate) async fn measure(stage: &Stage, report: &mut Report) -> Result<()> {
    let env = &stage.env;
    let origin = stage.project.volume("origin", metadata()).await?;
    let ids = stage.openstack.copy_volume(&origin, CLAIMS)?;
    let provisioner = Provisioner::start(&env.client, &env.namespace, &stage.openstack);
    provisioner.fill(&ids).await?;
    provisioner.work();
    let kubeconfig = env.target_kubeconfig()?;
    let all = || stream::iter(0..DEORBITS);
    let secret = async |index: usize| env.secret(&format!("target-{index}"), "value", &kubeconfig).await;
    all().map(secret).buffer_unordered(AT_ONCE).try_collect::<()>().await?;

    let (deorbiter, _) = until_ready(&stage.direct()).await?;
    let began = Instant::now();
    let create =
        async |index: usize| stage.deorbit(&format!("crowd-{index}"), &format!("target-{index}")).await;
    all().map(create).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let mut most = 0;
    loop {
        most = most.max(sockets(deorbiter.pid())?);
        let now = env.deorbits().list(&ListParams::default()).await?.items;
        let phases: Vec<Phase> = now
            .iter()
            .map(|one| one.status.as_ref().map(|status| status.phase).unwrap_or_default())
            .collect();
        ensure!(
            phases.iter().all(|phase| !phase.is_final() || *phase == Phase::Complete),
            "one of them ended otherwise: {phases:?}"
        );
        if phases.iter().filter(|phase| **phase == Phase::Complete).count() == DEORBITS {
            break;
        }
        ensure!(began.elapsed() < WITHIN, "not all are complete after {WITHIN:?}: {phases:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let took = began.elapsed();
    tokio::time::sleep(STEADY).await;
    let (after, peak) = (Memory::of(deorbiter.pid())?, peak_rss(deorbiter.pid())?);
    let delete = async |index: usize| {
        let name = format!("crowd-{index}");
        env.deorbits().delete(&name, &DeleteParams::default()).await.map(drop)
    };
    all().map(delete).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    // deorbiter lets them go, one after the other.
    let began = Instant::now();
    while !env.deorbits().list(&ListParams::default()).await?.items.is_empty() {
        ensure!(began.elapsed() < WITHIN, "not all are gone after {WITHIN:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    stop(&deorbiter).await?;
    env.thawed().await?;

    let among = format!("{DEORBITS} Deorbits");
    report.row(
        format!("{among} at once → all Complete"),
        "",
        Figures::milliseconds([took])?,
        format!(
            "With the default of 10 workers; a kubeconfig and a login each, all to one cluster of {CLAIMS} claims and one \
             project: two cores do the work of {DEORBITS} API servers and clouds"
        ),
    );
    report.row(
        format!("Peak memory (RSS), {among}"),
        "",
        Figures::bytes([peak])?,
        "The most that this process ever had",
    );
    report.row(
        format!("Memory after them (RSS), {among}"),
        "",
        Figures::bytes([after.rss])?,
        "10 s after the last one was Complete",
    );
    report.row(
        format!("Sockets, {among}"),
        "",
        Figures::new(Unit::Count, [most as f64])?,
        "The most that were open at a look, each half second",
    );
    Ok(())
}
