//! natgw, on a real control plane with simulated Nodes and a simulated Hetzner API.

mod crowd;
mod moves;
mod plan;
mod stage;
mod steady;

use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::control_plane::ControlPlane;

use self::stage::Stage;
use crate::Part;
use crate::process::measure_start;
use crate::report::Bench;

/// A network of Hetzner's takes 100 servers.
const SIZES: [usize; 2] = [5, 100];
/// A cluster's default. The heartbeats of the simulated kubelets are as rare as real ones.
const GRACE: Duration = Duration::from_secs(40);

pub(crate) async fn measure(bench: &mut Bench) -> Result<()> {
    if bench.selects(Part::Plan) {
        bench.progress("observe and plan, 100 and 1000 Nodes");
        plan::measure(bench).await?;
    }
    bench.progress("control plane");
    let control_plane = ControlPlane::builder().grace(GRACE).start().await.context("control plane")?;
    let program = bench.program.clone();
    let mut stage = Stage::on(control_plane.clone(), &program).await?;
    let (start, moves) = (bench.selects(Part::Start), bench.selects(Part::Moves));
    for (index, nodes) in SIZES.into_iter().enumerate().filter(|_| start || moves) {
        stage.grow(nodes).await?;
        let among = format!("{nodes} Nodes");
        if start {
            measure_start(&stage.natgw(false)?, &among, bench).await?;
        }
        if moves && index == 0 {
            bench.progress(&format!("{among}: label, cordon, NotReady"));
            moves::measure(&stage, 0, bench).await?;
        }
    }
    // The steady state is counted during the other parts, which makes the whole two minutes shorter. It takes no processor time.
    let steady = bench.selects(Part::Steady);
    if steady {
        bench.progress("steady state for two minutes, beside the other parts");
    }
    let steady = async {
        if steady {
            steady::count_requests(control_plane.clone(), &program).await.map(Some)
        } else {
            Ok(None)
        }
    };
    let rest = async {
        if moves {
            bench.progress("100 Nodes: label, cordon, NotReady");
            moves::measure(&stage, SIZES[0], bench).await?;
        }
        if bench.selects(Part::Crowd) {
            bench.progress("5000 Nodes: memory");
            crowd::measure(bench).await?;
        }
        anyhow::Ok(())
    };
    let (steady, ()) = tokio::try_join!(steady, rest)?;
    if let Some(steady) = steady {
        steady.report(bench);
    }
    let kubernetes = control_plane.client().apiserver_version().await?.git_version;
    let action = stage::ACTION.as_secs();
    bench.end(&format!(
        "Kubernetes {kubernetes} (etcd without fsync), simulated Hetzner API with route actions of {action} s"
    ))
}
