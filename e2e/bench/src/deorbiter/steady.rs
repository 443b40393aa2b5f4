//! deorbiter's requests while nothing changes, and while it waits for volumes that are stuck.

use std::time::Duration;

use anyhow::{Result, ensure};
use common::api::deorbit::Phase;
use e2e::deorbiter::Driver;
use e2e::openstack::Part;
use e2e::program::Program;
use e2e::wait::TIMEOUT;

use super::stage::{COUNTED_TARGET, Stage, metadata};
use crate::machine::processor_time;
use crate::process::{Requests, STEADY, stop, until_ready, writes};
use crate::report::{Bench, an_hour, milliseconds};

/// The time without a change after which deorbiter polls at its longest interval. Until then it polls less and less
/// often.
const CALM: Duration = Duration::from_secs(300);
const WINDOW: Duration = Duration::from_secs(60);
/// Volumes that Cinder does not delete.
const STUCK: usize = 3;
/// The Deorbit.
const NAME: &str = "steady";

/// Two windows: while Cinder's worker is stopped, and after the end.
pub(crate) async fn measure(stage: &Stage, bench: &mut Bench) -> Result<()> {
    for index in 0..STUCK {
        let volume = stage.project.volume("stuck", metadata()).await?;
        stage.env.claim(&format!("stuck-{index}"), &volume, "Delete").await?;
    }
    let _driver = Driver::cinder(stage.env.client.clone(), &stage.project);
    let hung = stage.openstack.pause(Part::CinderVolume)?;
    let (deorbiter, _) = until_ready(&stage.counted()).await?;
    stage.deorbit(NAME, COUNTED_TARGET).await?;
    stage.until(NAME, Phase::Verifying, TIMEOUT).await?;
    tokio::time::sleep(CALM).await;
    window(stage, &deorbiter, "while volumes have been stuck for five minutes", bench).await?;
    let status = stage.env.status(NAME).await?;
    ensure!(status.phase == Phase::Verifying && status.remaining > 0, "nothing was stuck: {status:?}");
    drop(hung);
    stage.until(NAME, Phase::Succeeded, TIMEOUT).await?;
    window(stage, &deorbiter, "after Complete", bench).await?;
    stage.delete(NAME).await?;
    stop(&deorbiter).await
}

async fn window(stage: &Stage, deorbiter: &Program, what: &str, bench: &mut Bench) -> Result<()> {
    tokio::time::sleep(STEADY).await;
    let cloud = async || {
        anyhow::Ok(deorbiter.metrics().await?.sum("cloud_api_requests_total", &[]).unwrap_or_default())
    };
    let (before, used) = (cloud().await?, processor_time(deorbiter.pid())?);
    stage.management.clear_requests();
    stage.target.clear_requests();
    tokio::time::sleep(WINDOW).await;
    let management = Requests::through(&stage.management);
    let target = Requests::through(&stage.target);
    let used = processor_time(deorbiter.pid())? - used;
    let cloud = cloud().await? - before;
    management.ensure_leader()?;
    let requests: Vec<_> = management.all.iter().chain(&target.all).collect();
    let writes: Vec<_> = writes(requests.iter().copied()).collect();
    let (reads, seconds) = (requests.len() - writes.len(), WINDOW.as_secs());
    bench.row(format!("Writes {what}, an hour"), "0", an_hour(writes.len() as f64, WINDOW)).means(format!(
        "{} in {seconds} s, to both API servers, Events included, except for the Lease ({} writes); to OpenStack it writes \
         only with `orphanPolicy: Delete`",
        writes.len(),
        management.lease
    ));
    bench
        .row(format!("Reads {what}, an hour"), "", an_hour(reads as f64 + cloud, WINDOW))
        .means(format!("{reads} of the API servers and {cloud} of OpenStack in {seconds} s, extrapolated"));
    let (used, an_hour) = (used.as_secs_f64() * 1e3, used * 3600 / u32::try_from(seconds)?);
    bench
        .row(format!("Processor time {what}, an hour"), "", milliseconds([an_hour]))
        .means(format!("{used:.0} ms in {seconds} s, extrapolated, with the renewals of the Lease"));
    for write in &writes {
        bench.note(format!("A write {what}: {} {}", write.method, write.path));
    }
    Ok(())
}
