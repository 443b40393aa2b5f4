//! natgw, on a real control plane with hollow Nodes and a stand-in for Hetzner's API.

mod crowd;
mod moves;
mod stage;
mod steady;
mod walk;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::control_plane::ControlPlane;

use self::stage::Stage;
use crate::Part;
use crate::report::Report;
use crate::run::Run;
use crate::start;

/// Few Nodes and many: a network of Hetzner's takes 100 servers.
const FEW: usize = 5;
const MANY: usize = 100;
/// A real cluster's timeout with its Nodes: hollow kubelets beat as seldom as real ones here.
const GRACE: Duration = Duration::from_secs(40);
/// What can be measured alone.
pub(crate) const PARTS: [Part; 5] = [Part::Walk, Part::Start, Part::Moves, Part::Steady, Part::Crowd];

/// Measures, all or only some parts.
///
/// # Errors
/// Whatever could not be started; natgw fails, or does not do what it should.
pub(crate) async fn measure(
    program: Option<&Path>,
    wanted: impl Fn(Part) -> bool,
    report: &mut Report,
) -> Result<()> {
    let (run, binary) = Run::begin(program, "natgw", report)?;
    if wanted(Part::Walk) {
        run.say("observe and plan, 100 and 1000 Nodes");
        walk::measure(report).await?;
    }
    run.say("control plane");
    let control_plane = ControlPlane::builder().grace(GRACE).start().await.context("control plane")?;
    let mut stage = Stage::on(control_plane.clone(), &binary).await?;
    let (start, moves) = (wanted(Part::Start), wanted(Part::Moves));
    if start || moves {
        stage.grow(FEW).await?;
    }
    if start {
        run.say("5 Nodes: start, idle memory");
        start::measure(&stage.natgw(false)?, "natgw", "5 Nodes", report).await?;
    }
    if moves {
        run.say("5 Nodes: label, cordon, NotReady");
        moves::measure(&stage, 0, report).await?;
    }
    if start || moves {
        stage.grow(MANY).await?;
    }
    if start {
        run.say("100 Nodes: start, idle memory");
        start::measure(&stage.natgw(false)?, "natgw", "100 Nodes", report).await?;
    }

    // The steady state counts and takes no time: beside other work, the whole takes two minutes less.
    let steady = async {
        if !wanted(Part::Steady) {
            return Ok(None);
        }
        run.say("steady state for two minutes, and what follows beside it");
        steady::count(control_plane.clone(), &binary).await.map(Some)
    };
    let rest = async {
        if moves {
            run.say("100 Nodes: label, cordon, NotReady");
            moves::measure(&stage, FEW, report).await?;
        }
        if wanted(Part::Crowd) {
            run.say("5000 Nodes: gathering");
            // They have no kubelet, and shall not be taken for lost meanwhile.
            let crowded = ControlPlane::builder().grace(crowd::GRACE).start().await;
            let crowded = crowded.context("second control plane")?;
            crowd::gather(&crowded).await?;
            run.say("5000 Nodes: memory");
            crowd::measure(&crowded, &binary, report).await?;
        }
        anyhow::Ok(())
    };
    let (steady, ()) = tokio::try_join!(steady, rest)?;
    if let Some(steady) = steady {
        steady.report(report)?;
    }
    let kubernetes = control_plane.client().apiserver_version().await?.git_version;
    let env = format!(
        "Kubernetes {kubernetes} (etcd without fsync), Hetzner stand-in with route actions of {} s",
        stage::ACTION.as_secs()
    );
    run.end(&binary, &env, report)
}
