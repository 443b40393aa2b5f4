//! One more look at each route, just before it is removed.

use super::NotRemoved;
use crate::cloud::openstack::{Cloud, Router};
use crate::routes::observe::NodeSource;
use crate::routes::plan::judge::judge;
use crate::routes::plan::{Dead, Removal, Verdict};
use crate::routes::policy::Policy;
use crate::routes::route::Route;
use crate::routes::snapshot::Snapshot;

/// What the last look came to.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// Still there, and still dead.
    pub dead: Vec<Route>,
    /// Not there any more.
    pub gone: Vec<Route>,
    /// Not dead after all, and why.
    pub spared: Vec<(Route, String)>,
}

pub(super) async fn all(
    cloud: &Cloud,
    policy: &Policy,
    snapshot: &Snapshot,
    router: &Router,
    removals: &[Removal],
    nodes: Option<&NodeSource>,
) -> Result<Looked, NotRemoved> {
    // The Nodes as they are, and the routes as they are; the ports are asked for one by one.
    let mut fresh = snapshot.clone();
    fresh.routes = router.routes.iter().cloned().map(Route::from).collect();
    if let Some(nodes) = nodes {
        fresh.nodes = Some(nodes.list().await.map_err(NotRemoved::Nodes)?);
    }
    let judged = judge(policy, &fresh);
    let mut looked = Looked::default();
    for removal in removals {
        let route = removal.route.clone();
        match judged.iter().find(|one| one.route == route).map(|one| &one.verdict) {
            None => looked.gone.push(route),
            Some(Verdict::Orphan(dead)) => match holder(cloud, snapshot, &route, dead).await? {
                None => looked.dead.push(route),
                Some(why) => looked.spared.push((route, why)),
            },
            Some(_) => looked.spared.push((route, "it is not dead any more".to_owned())),
        }
    }
    Ok(looked)
}

/// Who has the next hop after all.
async fn holder(
    cloud: &Cloud,
    snapshot: &Snapshot,
    route: &Route,
    dead: &Dead,
) -> Result<Option<String>, NotRemoved> {
    let gone = match dead {
        // That another has the address is why this route goes.
        Dead::NodeHasAnother { .. } => return Ok(None),
        Dead::NoPort { .. } => None,
        Dead::ServerGone { port, server } => {
            if cloud.server(server).await.map_err(NotRemoved::Look)?.is_some() {
                return Ok(Some(format!("server {server} is there after all")));
            }
            Some(port)
        }
    };
    for network in &snapshot.networks {
        let ports = cloud.ports_with_address(&network.id, &route.nexthop).await.map_err(NotRemoved::Look)?;
        if let Some(port) = ports.iter().find(|port| Some(&port.id) != gone) {
            return Ok(Some(format!("port {} has the next hop now", port.id)));
        }
    }
    Ok(None)
}
