//! A cluster with thousands of claims: memory, the time of a walk, and what is stored.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use common::api::deorbit::Phase;
use e2e::program::{Program, Samples};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use super::provisioner::Provisioner;
use super::stage::{Stage, metadata};
use crate::figures::{Figures, Unit};
use crate::machine::{Memory, peak_rss, processor_time};
use crate::process::{STEADY, stop, until_ready};
use crate::report::Report;
use crate::run::Run;

/// Walks that are looked at while nothing happens.
const WALKS: f64 = 3.0;
/// Far longer than a run takes: Cinder needs seconds for a list of thousands.
const WITHIN: Duration = Duration::from_secs(900);

/// One whole run.
///
/// # Errors
/// deorbiter fails, or does not come to its end.
pub(crate) async fn measure(stage: &Stage, claims: u32, run: &Run, report: &mut Report) -> Result<()> {
    let count = usize::try_from(claims)?;
    let origin = stage.project.volume("origin", metadata()).await?;
    let openstack = stage.openstack.clone();
    let ids = tokio::task::spawn_blocking(move || openstack.copy_volume(&origin, claims)).await??;
    let provisioner = Provisioner::start(&stage.env.client, &stage.env.namespace, &stage.openstack);
    provisioner.fill(&ids).await?;

    run.say(&format!("{claims} claims are bound"));
    let (deorbiter, _) = until_ready(&stage.direct()).await?;
    let name = format!("claims-{claims}");
    let began = Instant::now();
    stage.deorbit(&name, "target").await?;
    stage.until(&name, Phase::Freeze, WITHIN).await?;
    let recorded = began.elapsed();
    stage.until(&name, Phase::Wait, WITHIN).await?;
    let asked = began.elapsed();
    run.say("all deletions are asked for");
    provisioner.until("Released", count).await?;
    let waiting = walks(&deorbiter).await?;
    let memory = Memory::of(deorbiter.pid())?;
    let stored = stored(stage, &name).await?;
    run.say("the driver works");
    provisioner.work();
    stage.until(&name, Phase::Complete, WITHIN).await?;
    let complete = Instant::now();
    let proven = complete - provisioner.last().context("no volume was deleted")?;
    tokio::time::sleep(STEADY).await;
    let (after, peak) = (Memory::of(deorbiter.pid())?, peak_rss(deorbiter.pid())?);
    stage.forget(&name).await?;
    stop(&deorbiter).await?;

    let goal = if claims == 5_000 { "≤ 25 MiB" } else { "" };
    let time = |value: Duration| Figures::milliseconds([value]);
    let mut row = |what: &str, goal, figures, meaning: String| {
        report.row(format!("{what}, {claims} claims"), goal, figures, meaning);
    };
    row(
        "To the inventory",
        "",
        time(recorded)?,
        "From the Deorbit's creation until all IDs were recorded".to_owned(),
    );
    row(
        "To the last deletion",
        "",
        time(asked)?,
        "From the Deorbit's creation until each claim's deletion was asked for".to_owned(),
    );
    row(
        "A walk that waits: time",
        "",
        time(waiting.wall)?,
        format!(
            "Mean of {} walks in which all volumes are still there: {} pages of Cinder's list are most of it",
            waiting.count,
            count.div_ceil(500)
        ),
    );
    row(
        "A walk that waits: processor time",
        "",
        time(waiting.processor)?,
        "The part of it that is deorbiter's".to_owned(),
    );
    row("Memory while it waits (RSS)", goal, Figures::bytes([memory.rss])?, "After these walks".to_owned());
    row(
        "Peak memory (RSS)",
        goal,
        Figures::bytes([peak])?,
        "The most that this process ever had, from its start to its end".to_owned(),
    );
    row(
        "Memory after the run (RSS)",
        "",
        Figures::bytes([after.rss])?,
        "10 s after it was Complete".to_owned(),
    );
    row(
        "The Deorbit",
        "≤ 1.5 MiB",
        Figures::bytes([stored.deorbit])?,
        "As the API server gives it, in JSON; etcd takes 1.5 MiB".to_owned(),
    );
    row(
        "The largest ConfigMap of records",
        "≤ 1 MiB",
        Figures::new(Unit::Mebibytes, stored.maps.iter().map(|bytes| *bytes as f64 / f64::from(1 << 20)))?,
        format!("{} of them; the API server takes 1 MiB", stored.maps.len()),
    );
    row(
        "Last volume gone → Complete",
        "",
        time(proven)?,
        "From the moment the last volumes were deleted in Cinder".to_owned(),
    );
    Ok(())
}

struct Walks {
    count: f64,
    /// Of one, on average.
    wall: Duration,
    processor: Duration,
}

/// Waits for some walks, and takes their time.
async fn walks(deorbiter: &Program) -> Result<Walks> {
    const NAME: &str = "controller_runtime_reconcile_time_seconds";
    let of = |samples: &Samples, what: &str| samples.sum(&format!("{NAME}_{what}"), &[]).unwrap_or_default();
    // The one that runs now began before.
    let first = of(&deorbiter.metrics().await?, "count");
    let until = async |count: f64| -> Result<Samples> {
        let started = Instant::now();
        loop {
            let now = deorbiter.metrics().await?;
            if of(&now, "count") >= count {
                return Ok(now);
            }
            ensure!(started.elapsed() < WITHIN, "it walks no more");
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    };
    let before = until(first + 1.0).await?;
    let processor = processor_time(deorbiter.pid())?;
    let after = until(of(&before, "count") + WALKS).await?;
    let count = of(&after, "count") - of(&before, "count");
    let wall = Duration::from_secs_f64((of(&after, "sum") - of(&before, "sum")) / count);
    let processor = (processor_time(deorbiter.pid())? - processor).div_f64(count);
    Ok(Walks { count, wall, processor })
}

struct Stored {
    /// Bytes.
    deorbit: u64,
    /// Bytes of each.
    maps: Vec<u64>,
}

async fn stored(stage: &Stage, name: &str) -> Result<Stored> {
    let path =
        format!("/apis/deorbiter.perimeter.dev/v1alpha1/namespaces/{}/deorbits/{name}", stage.env.namespace);
    let text = stage.env.client.request_text(http::Request::get(path).body(Vec::new())?).await?;
    let maps = Api::<ConfigMap>::namespaced(stage.env.client.clone(), &stage.env.namespace);
    let maps = maps.list(&ListParams::default()).await?.items;
    let of_it = |map: &&ConfigMap| map.owner_references().iter().any(|owner| owner.name == name);
    let size = |map: &ConfigMap| map.data.iter().flatten().map(|(_, text)| text.len() as u64).sum();
    let maps: Vec<u64> = maps.iter().filter(of_it).map(size).collect();
    ensure!(!maps.is_empty(), "the records of {name} are in no ConfigMap");
    Ok(Stored { deorbit: text.len() as u64, maps })
}
