//! One controller for each kind of the source cluster, and the one that collects garbage. They share the caches of both clusters.
//!
//! `watches` turns a change of any object into the keys of the source objects that it concerns. A reconciliation plans and executes until
//! there is nothing left to write; the response to each write is the input of the next plan.

mod watches;

use std::marker::PhantomData;
use std::sync::Arc;

use common::cache::ObjectKey;
use common::controller::{Controller, Next, Reconciler};
use common::executor::{ActionError as _, Executor};
use common::runtime::Runtime;

use crate::apply::Apply;
use crate::caches::Caches;
use crate::clusters::{ApiNet, Source};
use crate::config::Config;
use crate::error::Error;
use crate::garbage;
use crate::identity;
use crate::mapping::Mapping;
use crate::problems::{Problems, ProblemsMetric};

/// Plans of one reconciliation: finalizer, object, objects that it owns, status, and some more where another program writes too.
const ROUNDS: usize = 6;

/// Reconciles all kinds until shutdown.
///
/// # Errors
/// The apinet namespace has objects of another source cluster, or the ID of this one cannot be read.
pub async fn run(runtime: Runtime, config: Config, source: Source, apinet: ApiNet) -> anyhow::Result<()> {
    let caches = Caches::start(&runtime, &config, &source, &apinet);
    let config = identity::identify(&runtime, &caches, config).await?;
    let apply = Arc::new(Apply { config, source, apinet, caches });
    let garbage = garbage::controller(&runtime, &apply);
    let problems = ProblemsMetric::new(&runtime.metrics)?;
    let all = Arc::new(Shared { runtime, apply, problems });
    let controllers = futures::future::try_join_all([
        start(watches::networks(&all)),
        start(watches::network_interfaces(&all)),
        start(watches::virtual_ips(&all)),
        start(watches::load_balancers(&all)),
        start(watches::nat_gateways(&all)),
        start(watches::policies(&all)),
        Box::pin(garbage.run()),
    ]);
    controllers.await.map(|_| ())
}

/// Shared by all controllers.
struct Shared {
    runtime: Runtime,
    apply: Arc<Apply>,
    problems: ProblemsMetric,
}

type Running = std::pin::Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

/// A kind that this flavor does not have has no controller.
fn start<M: Mapping>(controller: Option<Controller<OfKind<M>>>) -> Running {
    match controller {
        Some(controller) => Box::pin(controller.run()),
        None => Box::pin(std::future::ready(Ok(()))),
    }
}

/// Reconciles the source objects of one kind.
pub struct OfKind<M> {
    shared: Arc<Shared>,
    kind: PhantomData<fn() -> M>,
}

impl<M: Mapping> Reconciler for OfKind<M> {
    type Key = ObjectKey;
    type Memo = Problems;
    type Error = Error;

    fn memo(&self, _: &ObjectKey) -> Problems {
        // Actions that succeed are log lines only: there are thousands.
        let events = self.shared.runtime.events.scoped().warnings_only();
        self.shared.problems.of_object(M::KIND, events)
    }

    /// Plans and executes until there are no steps.
    async fn reconcile(&self, key: &ObjectKey, problems: &mut Problems) -> Result<Next, Error> {
        let Shared { runtime, apply, .. } = &*self.shared;
        let Apply { config, caches, .. } = &**apply;
        let Some(cache) = M::sources(caches) else { return Ok(Next::Gone) };
        for _ in 0..ROUNDS {
            let Some(object) = cache.get(key) else { return Ok(Next::Gone) };
            let plan = Arc::unwrap_or_clone(object).plan(config, caches);
            let unreported = problems.found(plan.problems);
            if plan.steps.is_empty() {
                return Ok(unreported.map_or(Next::OnChange, Next::After));
            }
            for step in &plan.steps {
                let executor = Executor { events: &problems.events, ..Executor::from(runtime) };
                executor.execute(step, apply.run::<M>(key, &step.action.act)).await?;
            }
        }
        Err(Error::Unstable(format!("{} {key}", M::KIND.name())))
    }

    fn is_outdated(error: &Error) -> bool {
        error.is_outdated()
    }
}
