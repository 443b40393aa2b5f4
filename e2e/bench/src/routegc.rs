//! routegc, on a real control plane and a real Neutron with a thousand ports.

mod reconcile;
mod stage;
mod steady;

use anyhow::Result;

use self::stage::{PORTS, Stage};
use crate::Part;
use crate::process::measure_start;
use crate::report::Bench;

/// Routes of a router, and how many of them become stale: the quota of a cloud by default, used up, and ten times that.
const ROUTERS: [(usize, usize); 2] = [(30, 10), (300, 100)];

pub(crate) async fn measure(bench: &mut Bench) -> Result<()> {
    bench.progress("control plane, Keystone, Neutron");
    let mut stage = Stage::start(&bench.program).await?;
    if bench.selects(Part::Start) {
        measure_start(&stage.direct(), "no RouteGC", bench).await?;
    }
    bench.progress(&format!("{PORTS} ports"));
    stage.fill().await?;
    for (routes, stale) in ROUTERS {
        bench.progress(&format!("{routes} routes"));
        stage.grow(routes).await?;
        if bench.selects(Part::Reconcile) {
            reconcile::measure(&mut stage, stale, bench).await?;
        }
    }
    if bench.selects(Part::Start) {
        let among = format!("1 RouteGC with {} routes", stage.routes());
        measure_start(&stage.direct(), &among, bench).await?;
    }
    if bench.selects(Part::Steady) {
        bench.progress("steady state, two minutes");
        steady::measure(&mut stage, bench).await?;
    }
    let kubernetes = stage.env.client.apiserver_version().await?.git_version;
    bench.end(&format!(
        "Kubernetes {kubernetes} (etcd without fsync), Keystone and Neutron of OpenStack 2026.2 (one uWSGI process each), \
         {PORTS} ports on the router's network, no Nova"
    ))
}
