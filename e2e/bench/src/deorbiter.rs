//! deorbiter, on a real control plane and a real OpenStack.
//!
//! ```text
//!   providers    with OpenStack's own cloud controller manager and Cinder driver in the cluster, against them alone
//!   claims       thousands of claims; Cinder knows their volumes, which a played driver deletes
//!   crowd        two hundred Deorbits at once
//!   steady       what is written while nothing happens, and while something is stuck
//! ```

mod claims;
mod crowd;
mod providers;
mod provisioner;
mod stage;
mod steady;

use std::path::Path;

use anyhow::Result;
use e2e::openstack::{OpenStack, Parts, Release};

use self::stage::Stage;
use crate::Part;
use crate::report::Report;
use crate::run::Run;
use crate::start;

/// Claims in one cluster: what the goal for memory is about, and twice that.
const CLAIMS: [u32; 2] = [5_000, 10_000];
/// What can be measured alone.
pub(crate) const PARTS: [Part; 5] = [Part::Start, Part::Steady, Part::Providers, Part::Crowd, Part::Claims];

/// Measures, all or only some parts.
///
/// # Errors
/// Whatever could not be started; deorbiter fails, or does not do what it should.
pub(crate) async fn measure(
    program: Option<&Path>,
    wanted: impl Fn(Part) -> bool,
    report: &mut Report,
) -> Result<()> {
    let (run, binary) = Run::begin(program, "deorbiter", report)?;

    run.say("OpenStack");
    let openstack = OpenStack::start(Parts::All, Release::Main, Default::default()).await?;
    if wanted(Part::Providers) {
        run.say("volumes and load balancers, with deorbiter and without");
        providers::measure(&openstack, &binary, report).await?;
    }
    run.say("control plane");
    let stage = Stage::set(openstack, &binary).await?;
    if wanted(Part::Start) {
        run.say("start, idle memory");
        start::measure(&stage.direct(), "deorbiter", "no Deorbit", report).await?;
    }
    if wanted(Part::Steady) {
        run.say("steady state, two minutes");
        steady::count(&stage, report).await?;
    }
    if wanted(Part::Crowd) {
        run.say(&format!("{} Deorbits at once", crowd::DEORBITS));
        crowd::measure(&stage, report).await?;
    }
    if wanted(Part::Claims) {
        for claims in CLAIMS {
            run.say(&format!("{claims} claims"));
            claims::measure(&stage, claims, &run, report).await?;
        }
    }
    let kubernetes = stage.env.client.apiserver_version().await?.git_version;
    let env = format!(
        "Kubernetes {kubernetes} (etcd without fsync, kube-controller-manager without its limit of 20 requests a second), \
         OpenStack 2026.2 (one uWSGI process for each service, Cinder's logging driver, Octavia's no-op driver)"
    );
    run.end(&binary, &env, report)
}
