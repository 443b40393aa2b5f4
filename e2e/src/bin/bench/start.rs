//! Start to ready, and idle memory.

use std::time::Duration;

use anyhow::Result;

use crate::figures::Figures;
use crate::machine::Memory;
use crate::report::Report;
use crate::stage::{Stage, stop, until_ready};

/// Starts for each number of Nodes.
const STARTS: usize = 7;
/// So many of them stay for a while, for their memory.
const STAYING: usize = 3;
/// From ready to the look at the memory: caches are filled, the first walk is made, buffers of the start are returned.
pub(crate) const STEADY: Duration = Duration::from_secs(10);

/// Starts natgw several times on the stage as it is.
///
/// # Errors
/// natgw fails.
pub(crate) async fn measure(stage: &Stage, report: &mut Report) -> Result<()> {
    let nodes = stage.nodes.len();
    let launch = stage.natgw(false)?;
    let (mut ready, mut memory) = (Vec::new(), Vec::new());
    for start in 0..STARTS {
        let (natgw, took) = until_ready(&launch).await?;
        ready.push(took);
        if start < STAYING {
            tokio::time::sleep(STEADY).await;
            memory.push(Memory::of(natgw.pid())?);
        }
        stop(&natgw).await?;
    }
    report.row(
        format!("Start to ready, {nodes} Nodes"),
        "≤ 500 ms",
        Figures::milliseconds(ready)?,
        "From the start of the process to the first 200 of /readyz (caches filled), straight to the API server over TLS",
    );
    report.row(
        format!("Idle memory (RSS), {nodes} Nodes"),
        "≤ 8 MiB",
        Figures::bytes(memory.iter().map(|one| one.rss))?,
        format!("10 s after ready, with the pages of the program file that were touched ({STAYING} processes, one after another)"),
    );
    report.row(
        format!("Idle memory (PSS), {nodes} Nodes"),
        "",
        Figures::bytes(memory.iter().map(|one| one.pss))?,
        "The same, with pages that other processes use too counted in part",
    );
    report.row(
        format!("Idle memory (anonymous), {nodes} Nodes"),
        "",
        Figures::bytes(memory.iter().map(|one| one.anonymous))?,
        "The part that is natgw's data, heap and stacks, and cannot be given back",
    );
    Ok(())
}
