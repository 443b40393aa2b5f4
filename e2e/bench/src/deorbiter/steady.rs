//! What deorbiter asks of others while nothing happens, and while it waits for something that is stuck.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use common::api::deorbit::Phase;
use e2e::deorbiter::Driver;
use e2e::fault_proxy::Recorded;
use e2e::openstack::Part;
use e2e::program::Program;

use super::stage::{COUNTED_TARGET, Stage, metadata};
use crate::figures::{Figures, Unit};
use crate::machine::processor_time;
use crate::process::{STEADY, stop, until_ready};
use crate::report::Report;

/// Where nothing changes, deorbiter looks less and less often, for so long.
const CALM: Duration = Duration::from_secs(300);
/// How long it is counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Until a run is somewhere.
const WITHIN: Duration = Duration::from_secs(120);
/// Volumes that Cinder does not delete.
const STUCK: usize = 3;
/// The Deorbit.
const NAME: &str = "steady";

/// Two windows: while Cinder's worker stands still, and after the end.
///
/// # Errors
/// deorbiter fails, or the run does not come to its end.
pub(crate) async fn count(stage: &Stage, report: &mut Report) -> Result<()> {
    for index in 0..STUCK {
        let volume = stage.project.volume("stuck", metadata()).await?;
        stage.env.claim(&format!("stuck-{index}"), &volume, "Delete").await?;
    }
    let _driver = Driver::cinder(stage.env.client.clone(), &stage.project);
    let hung = stage.openstack.pause(Part::CinderVolume)?;
    let (deorbiter, _) = until_ready(&stage.counted()).await?;
    stage.deorbit(NAME, COUNTED_TARGET).await?;
    stage.until(NAME, Phase::Verify, WITHIN).await?;
    tokio::time::sleep(CALM).await;
    window(stage, &deorbiter, "while volumes have been stuck for five minutes", report).await?;
    let status = stage.env.status(NAME).await?;
    ensure!(status.phase == Phase::Verify && status.remaining > 0, "nothing was stuck: {status:?}");
    drop(hung);
    stage.until(NAME, Phase::Complete, WITHIN).await?;
    window(stage, &deorbiter, "after Complete", report).await?;
    stage.forget(NAME).await?;
    stop(&deorbiter).await
}

async fn window(stage: &Stage, deorbiter: &Program, what: &str, report: &mut Report) -> Result<()> {
    tokio::time::sleep(STEADY).await;
    let cloud = async || {
        anyhow::Ok(deorbiter.metrics().await?.sum("cloud_api_requests_total", &[]).unwrap_or_default())
    };
    let (before, used) = (cloud().await?, processor_time(deorbiter.pid())?);
    stage.home.clear_requests();
    stage.target.clear_requests();
    tokio::time::sleep(WINDOW).await;
    let (home, target) = (stage.home.requests(), stage.target.requests());
    let used = processor_time(deorbiter.pid())? - used;
    let cloud = cloud().await? - before;
    let (lease, home): (Vec<_>, Vec<_>) = home.into_iter().partition(|one| one.path.contains("/leases/"));
    ensure!(!lease.is_empty(), "deorbiter did not renew its Lease: it was not seen at all");
    let watches = |one: &&Recorded| !one.query.split('&').any(|pair| pair == "watch=true");
    let asked: Vec<_> = home.iter().chain(&target).filter(watches).collect();
    let writes: Vec<_> = asked.iter().filter(|one| one.method != "GET").collect();
    let an_hour = |count: f64| Figures::new(Unit::Count, [count * 3600.0 / WINDOW.as_secs_f64()]);
    let number = |count: usize| -> Result<f64> { Ok(u32::try_from(count).context("too many")?.into()) };
    let seconds = WINDOW.as_secs();
    report.row(
        format!("Writes {what}, an hour"),
        "0",
        an_hour(number(writes.len())?)?,
        format!(
            "{} in {seconds} s, to both API servers, Events included, but for the Lease ({} requests); to OpenStack it writes only \
             with `leftovers: Delete`",
            writes.len(),
            lease.len()
        ),
    );
    report.row(
        format!("Reads {what}, an hour"),
        "",
        an_hour(number(asked.len() - writes.len())? + cloud)?,
        format!(
            "{} of the API servers and {cloud} of OpenStack in {seconds} s, extrapolated",
            asked.len() - writes.len()
        ),
    );
    report.row(
        format!("Processor time {what}, an hour"),
        "",
        Figures::milliseconds([used * 3600 / u32::try_from(seconds)?])?,
        format!(
            "{:.0} ms in {seconds} s, extrapolated; the Lease is renewed meanwhile",
            used.as_secs_f64() * 1e3
        ),
    );
    for write in &writes {
        report.note(format!("A write {what}: {} {}", write.method, write.path));
    }
    Ok(())
}
