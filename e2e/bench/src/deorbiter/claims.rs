//! A cluster with thousands of claims: memory, the time of a reconciliation, and what is stored.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use common::api::deorbit::Phase;
use e2e::program::{Program, Samples};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use super::provisioner::Provisioner;
use super::stage::{Stage, metadata};
use crate::machine::{Memory, peak_rss, processor_time};
use crate::process::{STEADY, stop, until_ready};
use crate::report::{Bench, mebibytes, milliseconds};

/// Reconciliations that are measured while all volumes exist.
const RECONCILIATIONS: f64 = 3.0;
/// Far longer than a Deorbit takes: a list of thousands of volumes takes Cinder seconds.
const TIMEOUT: Duration = Duration::from_secs(900);
/// Between two reads of the metrics.
const POLL: Duration = Duration::from_millis(250);

/// A whole Deorbit.
pub(crate) async fn measure(stage: &Stage, claims: u32, bench: &mut Bench) -> Result<()> {
    let number = usize::try_from(claims)?;
    let origin = stage.project.volume("origin", metadata()).await?;
    let openstack = stage.openstack.clone();
    let ids = tokio::task::spawn_blocking(move || openstack.copy_volume(&origin, claims)).await??;
    let provisioner = Provisioner::start(&stage.env.client, &stage.env.namespace, &stage.openstack);
    provisioner.fill(&ids).await?;

    bench.progress(&format!("{claims} claims are bound"));
    let (deorbiter, _) = until_ready(&stage.direct()).await?;
    let name = format!("claims-{claims}");
    let began = Instant::now();
    stage.deorbit(&name, "target").await?;
    stage.until(&name, Phase::Deleting, TIMEOUT).await?;
    let recorded = began.elapsed();
    provisioner.until("Released", number).await?;
    let requested = began.elapsed();
    bench.progress("all claims are deleted");
    let waiting = reconciliations(&deorbiter).await?;
    let memory = Memory::of(deorbiter.pid())?;
    let (object, maps) = stored(stage, &name).await?;
    bench.progress("the driver deletes the volumes");
    provisioner.work();
    stage.until(&name, Phase::Succeeded, TIMEOUT).await?;
    let verified = provisioner.last().context("no volume was deleted")?.elapsed();
    tokio::time::sleep(STEADY).await;
    let (after, peak) = (Memory::of(deorbiter.pid())?, peak_rss(deorbiter.pid())?);
    stage.delete(&name).await?;
    stop(&deorbiter).await?;

    let goal = if claims == 5_000 { "≤ 25 MiB" } else { "" };
    let mut row = |what: &str, goal, figures, meaning: &str| {
        bench.row(format!("{what}, {claims} claims"), goal, figures).means(meaning);
    };
    let until = |what: &str| format!("From the Deorbit's creation until {what}");
    row("To the inventory", "", milliseconds([recorded]), &until("all IDs were recorded"));
    row("To the last deletion", "", milliseconds([requested]), &until("each claim's deletion was requested"));
    let meaning = format!(
        "Mean of {} reconciliations while all volumes exist: {} pages of Cinder's list are most of it",
        waiting.count,
        number.div_ceil(500)
    );
    row("A reconciliation that waits: time", "", milliseconds([waiting.wall]), &meaning);
    let processor = milliseconds([waiting.processor]);
    row("A reconciliation that waits: processor time", "", processor, "The part of it that is deorbiter's");
    row("Memory while it waits (RSS)", goal, mebibytes([memory.rss]), "After these reconciliations");
    let meaning = "The most that this process ever had, from its start to its end";
    row("Peak memory (RSS)", goal, mebibytes([peak]), meaning);
    row("Memory after the run (RSS)", "", mebibytes([after.rss]), "10 s after it was Complete");
    let meaning = "As the API server returns it, in JSON; the limit of etcd is 1.5 MiB";
    row("The Deorbit", "≤ 1.5 MiB", mebibytes([object]), meaning);
    let meaning = format!("{} of them; the limit of the API server is 1 MiB", maps.len());
    row("The largest ConfigMap of records", "≤ 1 MiB", mebibytes(maps), &meaning);
    let meaning = "From the moment the last volumes were deleted in Cinder";
    row("Last volume gone → Complete", "", milliseconds([verified]), meaning);
    Ok(())
}

struct Reconciliations {
    count: f64,
    /// Of one, on average.
    wall: Duration,
    processor: Duration,
}

/// Waits for some reconciliations and measures them.
async fn reconciliations(deorbiter: &Program) -> Result<Reconciliations> {
    let of = |samples: &Samples, what: &str| {
        let name = format!("controller_runtime_reconcile_time_seconds_{what}");
        samples.sum(&name, &[]).unwrap_or_default()
    };
    let until = async |count: f64| -> Result<Samples> {
        let started = Instant::now();
        loop {
            let now = deorbiter.metrics().await?;
            if of(&now, "count") >= count {
                return Ok(now);
            }
            ensure!(started.elapsed() < TIMEOUT, "no further reconciliation");
            tokio::time::sleep(POLL).await;
        }
    };
    // The current one began before the volumes were Released.
    let before = until(of(&deorbiter.metrics().await?, "count") + 1.0).await?;
    let processor = processor_time(deorbiter.pid())?;
    let after = until(of(&before, "count") + RECONCILIATIONS).await?;
    let difference = |what| of(&after, what) - of(&before, what);
    let count = difference("count");
    let wall = Duration::from_secs_f64(difference("sum") / count);
    let processor = (processor_time(deorbiter.pid())? - processor).div_f64(count);
    Ok(Reconciliations { count, wall, processor })
}

/// Bytes of the Deorbit and of each of its ConfigMaps.
async fn stored(stage: &Stage, name: &str) -> Result<(u64, Vec<u64>)> {
    let (client, namespace) = (&stage.env.client, &stage.env.namespace);
    let path = format!("/apis/deorbiter.perimeter.dev/v1alpha1/namespaces/{namespace}/deorbits/{name}");
    let object = client.request_text(http::Request::get(path).body(Vec::new())?).await?;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), namespace).list(&ListParams::default()).await?;
    let of_it = |map: &&ConfigMap| map.owner_references().iter().any(|owner| owner.name == name);
    let size = |map: &ConfigMap| map.data.iter().flatten().map(|(_, text)| text.len() as u64).sum();
    Ok((object.len() as u64, maps.items.iter().filter(of_it).map(size).collect()))
}
