//! deorbiter, on a real control plane and a real OpenStack.
//!
//! ```text
//!   providers    side by side with OpenStack's own cloud controller manager and Cinder driver alone
//!   claims       thousands of claims with volumes in Cinder, and a simulated driver
//!   crowd        two hundred Deorbits at once
//!   steady       requests while nothing changes, and while volumes are stuck
//! ```

mod claims;
mod crowd;
mod providers;
mod provisioner;
mod stage;
mod steady;

use anyhow::Result;
use e2e::openstack::{OpenStack, Parts, Release};

use self::stage::Stage;
use crate::Part;
use crate::process::measure_start;
use crate::report::Bench;

/// Claims in one cluster: the number that the goal for memory is about, and twice that.
const CLAIMS: [u32; 2] = [5_000, 10_000];

pub(crate) async fn measure(bench: &mut Bench) -> Result<()> {
    bench.progress("OpenStack");
    let openstack = OpenStack::start(Parts::All, Release::Main, Default::default()).await?;
    if bench.selects(Part::Providers) {
        bench.progress("volumes and load balancers, with and without deorbiter");
        providers::measure(&openstack, bench).await?;
    }
    bench.progress("control plane");
    let stage = Stage::start(openstack, &bench.program).await?;
    if bench.selects(Part::Start) {
        measure_start(&stage.direct(), "no Deorbit", bench).await?;
    }
    if bench.selects(Part::Steady) {
        bench.progress("steady state: two minutes, after five");
        steady::measure(&stage, bench).await?;
    }
    if bench.selects(Part::Crowd) {
        bench.progress(&format!("{} Deorbits at once", crowd::DEORBITS));
        crowd::measure(&stage, bench).await?;
    }
    if bench.selects(Part::Claims) {
        for claims in CLAIMS {
            bench.progress(&format!("{claims} claims"));
            claims::measure(&stage, claims, bench).await?;
        }
    }
    let kubernetes = stage.env.client.apiserver_version().await?.git_version;
    bench.end(&format!(
        "Kubernetes {kubernetes} (etcd without fsync, kube-controller-manager without its limit of 20 requests a second), \
         OpenStack 2026.2 (one uWSGI process for each service, Cinder's logging driver, Octavia's no-op driver)"
    ))
}
