//! Start to ready, and idle memory.

use anyhow::Result;
use e2e::program::Launch;

use crate::figures::Figures;
use crate::machine::Memory;
use crate::process::{STEADY, stop, until_ready};
use crate::report::Report;

/// Starts for each stage.
const STARTS: usize = 7;
/// So many of them stay for a while, for their memory.
const STAYING: usize = 3;

/// Starts a controller several times; `among` says what it finds, such as "5 Nodes".
///
/// # Errors
/// It fails.
pub(crate) async fn measure(controller: &Launch, name: &str, among: &str, report: &mut Report) -> Result<()> {
    let (mut ready, mut memory) = (Vec::new(), Vec::new());
    for start in 0..STARTS {
        let (program, took) = until_ready(controller).await?;
        ready.push(took);
        if start < STAYING {
            tokio::time::sleep(STEADY).await;
            memory.push(Memory::of(program.pid())?);
        }
        stop(&program).await?;
    }
    report.row(
        format!("Start to ready, {among}"),
        "≤ 500 ms",
        Figures::milliseconds(ready)?,
        "From the start of the process to the first 200 of /readyz (caches filled), straight to the API server over TLS",
    );
    report.row(
        format!("Idle memory (RSS), {among}"),
        "≤ 8 MiB",
        Figures::bytes(memory.iter().map(|one| one.rss))?,
        format!("10 s after ready, with the pages of the program file that were touched ({STAYING} processes, one after another)"),
    );
    report.row(
        format!("Idle memory (PSS), {among}"),
        "",
        Figures::bytes(memory.iter().map(|one| one.pss))?,
        "The same, with pages that other processes use too counted in part",
    );
    report.row(
        format!("Idle memory (anonymous), {among}"),
        "",
        Figures::bytes(memory.iter().map(|one| one.anonymous))?,
        format!("The part that is {name}'s data, heap and stacks, and cannot be given back"),
    );
    Ok(())
}
