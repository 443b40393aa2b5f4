//! routegc, on a real control plane and a real Neutron with a thousand ports.

mod passes;
mod stage;
mod steady;

use std::path::Path;

use anyhow::Result;

use self::stage::{POLICY, Stage};
use crate::Part;
use crate::report::Report;
use crate::run::Run;
use crate::start;

/// Routes of a router and how many of them are dead: what a cloud allows by itself, used up, and ten times that.
const ROUTERS: [(usize, usize); 2] = [(30, 10), (300, 100)];
/// What can be measured alone.
pub(crate) const PARTS: [Part; 3] = [Part::Start, Part::Passes, Part::Steady];

/// Measures, all or only some parts.
///
/// # Errors
/// Whatever could not be started; routegc fails, or does not do what it should.
pub(crate) async fn measure(
    program: Option<&Path>,
    wanted: impl Fn(Part) -> bool,
    report: &mut Report,
) -> Result<()> {
    let (run, binary) = Run::begin(program, "routegc", report)?;

    run.say("control plane, Keystone, Neutron");
    let mut stage = Stage::set(&binary).await?;
    if wanted(Part::Start) {
        run.say("no RouteGC: start, idle memory");
        start::measure(&stage.direct(), "routegc", "no RouteGC", report).await?;
    }
    run.say("1000 ports");
    stage.ports().await?;
    stage.env.policy(POLICY, stage::spec()).await?;
    for (routes, dead) in ROUTERS {
        run.say(&format!("{routes} routes"));
        stage.grow(routes).await?;
        if wanted(Part::Passes) {
            passes::measure(&mut stage, dead, report).await?;
        }
    }
    if wanted(Part::Start) {
        let among = format!("1 RouteGC with {} routes", stage.routes());
        run.say(&format!("{among}: start, idle memory"));
        start::measure(&stage.direct(), "routegc", &among, report).await?;
    }
    if wanted(Part::Steady) {
        run.say("steady state, two minutes");
        steady::count(&mut stage, report).await?;
    }
    let kubernetes = stage.env.client.apiserver_version().await?.git_version;
    let env = format!(
        "Kubernetes {kubernetes} (etcd without fsync), Keystone and Neutron of OpenStack 2026.2 (one uWSGI process each), \
         {} ports on the router's network, no Nova",
        stage::PORTS
    );
    run.end(&binary, &env, report)
}
