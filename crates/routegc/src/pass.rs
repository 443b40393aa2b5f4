//! One walk for one policy: observe, plan, apply, and what is told of it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::api::routegc::{RouteGCSpec, RouteGCStatus};
use common::metrics::ActionResult;
use common::plan::{Action as _, Plan, Problem, Reason as _, Regarding, Step};
use common::routes::plan::confirm::record_removal;
use common::routes::{self, Applied, Decision, NodeSource, Policy, RemovalError, Snapshot};
use common::runtime::Runtime;
use jiff::Timestamp;

use crate::config::Config;
use crate::error::Error;
use crate::home::{Document, Home};
use crate::login::Logins;
use crate::metrics::{Metrics, Whose};
use crate::plan::{self, Action, Reason};
use crate::{nodes, show, status};

/// A pass takes seconds; where the cloud is slow and the network large, one that removes takes minutes, for it looks twice. A cloud
/// that hangs may hold up its own policy for so long, and none of the others.
const LONGEST: Duration = Duration::from_secs(600);

/// What passes are made with.
pub struct Walker {
    /// The cluster, Events, leadership.
    pub runtime: Runtime,
    /// What is counted.
    pub metrics: Metrics,
    /// The clouds.
    pub logins: Logins,
    /// Objects or flags.
    pub config: Config,
    /// What cannot be removed, and is known to be untouched.
    pub refusals: Refusals,
}

/// What each policy was about to remove when its last pass was refused it with certainty, or found it gone. The intent of such a
/// pass stays in the status, so that a refusal that lasts is nothing to write; that nobody acted on it is known here. A process that
/// is started anew does not know it, and writes it down once more.
#[derive(Default)]
pub struct Refusals(Mutex<BTreeMap<Home, Vec<routes::Route>>>);

impl Refusals {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Home, Vec<routes::Route>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets those of policies that are not there any more.
    pub fn keep(&self, there: impl Fn(&Home) -> bool) {
        self.all().retain(|home, _| there(home));
    }

    fn knows(&self, home: &Home, routes: &[routes::Route]) -> bool {
        self.all().get(home).is_some_and(|known| known == routes)
    }
}

/// What a pass came to.
pub struct Report {
    /// Whose.
    pub home: Home,
    /// Whose series it was counted in; None if the policy could not even be read.
    pub whose: Option<Whose>,
    /// What a person should know.
    pub problems: Vec<Problem<Reason>>,
    /// How long between two passes.
    pub interval: Duration,
    /// Why it could not be finished.
    pub error: Option<Error>,
}

/// A decision and what it was made on.
pub struct Looked {
    /// The policy.
    pub policy: Policy,
    /// What was seen.
    pub snapshot: Snapshot,
    /// What follows.
    pub decision: Decision,
    /// The same as steps and problems.
    pub plan: Plan<Action>,
    cloud: common::cloud::openstack::Cloud,
    nodes: Option<NodeSource>,
}

impl Walker {
    /// The policy of the flags, where it is not of objects.
    pub fn flags(&self) -> Option<&RouteGCSpec> {
        match &self.config {
            Config::Objects => None,
            Config::Single(single) => Some(&single.spec),
        }
    }

    /// The policy as it is now.
    ///
    /// # Errors
    /// As [`Home::load`].
    pub async fn load(&self, home: &Home) -> Result<Document, Error> {
        home.load(&self.runtime.client, &self.runtime.namespace, self.flags()).await
    }

    /// A whole pass; `conflict` says which other policy judges the same routes.
    pub async fn pass(&self, home: &Home, conflict: Option<String>) -> Report {
        let reconciliation = self.runtime.reconciliation(self.runtime.program.name);
        let mut report = Report {
            home: home.clone(),
            whose: None,
            problems: Vec::new(),
            interval: Duration::from_secs(60),
            error: None,
        };
        let mut document = match self.load(home).await {
            Ok(document) => document,
            Err(error) if error.is_gone() => {
                reconciliation.succeeded();
                return report;
            }
            Err(error) => {
                tracing::warn!(%error, "reconcile failed");
                reconciliation.failed();
                report.error = Some(error);
                return report;
            }
        };
        report.whose = Some(document.whose());
        report.interval = document.spec.interval.duration();
        let walked = match conflict {
            Some(conflict) => Err(Error::Conflict(conflict)),
            None => match tokio::time::timeout(LONGEST, self.walk(home, &mut document)).await {
                Ok(walked) => walked,
                Err(_) => Err(Error::TooSlow(LONGEST)),
            },
        };
        match walked {
            Ok(problems) => {
                reconciliation.succeeded();
                report.problems = problems;
            }
            Err(error) if error.is_outdated() || error.is_gone() => {
                reconciliation.succeeded();
                report.error = Some(error);
            }
            Err(error) => {
                reconciliation.failed();
                let problem = self.failed(&mut document, &error).await;
                report.problems.push(problem);
                report.error = Some(error);
            }
        }
        report
    }

    /// Reads the world and decides; nothing is written anywhere.
    ///
    /// # Errors
    /// Whatever could not be seen whole.
    pub async fn look(&self, home: &Home, document: &Document) -> Result<Looked, Error> {
        let (client, namespace) = (&self.runtime.client, self.runtime.namespace.as_str());
        let spec = &document.spec;
        let policy = Policy::of(spec).map_err(|error| Error::Policy(format!("spec.podCIDRs: {error}")))?;
        let cloud = match &self.config {
            Config::Objects => self.logins.by_secret(home, client, namespace, &spec.identity_ref).await?,
            Config::Single(single) => self.logins.by_file(home, &single.login)?,
        };
        let nodes = match &spec.nodes_from {
            Some(from) => Some(nodes::source(&self.runtime, from).await?),
            None => None,
        };
        let snapshot = routes::observe(&cloud, &policy, &spec.router_id, nodes.as_ref()).await?;
        let mut memory = status::memory(&document.status);
        // Whoever removed what we were refused, it was not us.
        if self.refusals.knows(home, &memory.removing) {
            memory.removing.clear();
        }
        let allow = document.allow.as_deref();
        let decision = routes::plan(&policy, &snapshot, &memory, allow, Timestamp::now());
        let plan = plan::plan(spec.mode, &spec.router_id, &document.regarding, &decision);
        Ok(Looked { policy, snapshot, decision, plan, cloud, nodes })
    }

    async fn walk(&self, home: &Home, document: &mut Document) -> Result<Vec<Problem<Reason>>, Error> {
        let mut looked = self.look(home, document).await?;
        let whose = document.whose();
        if looked.decision.excess.is_some() {
            self.metrics.blocked(&whose, "threshold");
        }
        self.say(document, &looked);
        let mut problems = looked.plan.problems.clone();
        if !looked.plan.steps.is_empty() {
            problems.extend(self.remove(home, document, &mut looked).await?);
        }
        let now = Timestamp::now();
        let (generation, mode) = (document.generation, document.spec.mode);
        let next = status::decided(&document.status, generation, mode, &looked.decision, None, now);
        self.store(document, next).await?;
        self.refusals.all().remove(home);
        self.metrics.observed(&whose, &looked.decision.counts, &looked.decision.quota, now);
        Ok(problems)
    }

    /// Removes what the plan says. First it is written down what is about to go: whoever is stopped in between is known for it.
    async fn remove(
        &self,
        home: &Home,
        document: &mut Document,
        looked: &mut Looked,
    ) -> Result<Vec<Problem<Reason>>, Error> {
        let removals = looked.decision.removals.clone();
        looked.decision.history.removing = removals.iter().map(|one| one.route.clone()).collect();
        let intent = status::intended(&document.status, &looked.decision.history);
        self.store(document, intent).await?;
        if !self.runtime.leadership.is_leading() {
            return Err(Error::NotLeading);
        }
        // From here on it is not certain any more, wherever this is cut short.
        let refused = self.refusals.all().remove(home);
        let (nodes, wanted) = (looked.nodes.as_ref(), document.still_desired(&self.runtime.client));
        let applied =
            routes::apply(&looked.cloud, &looked.policy, &looked.snapshot, &removals, nodes, wanted.as_ref());
        match applied.await {
            Ok(applied) => {
                if applied.removed.is_empty() && applied.recreated.is_empty() {
                    // Where the status cannot be written now, the next pass must not take for ours what somebody else removed.
                    self.refusals.all().insert(home.clone(), looked.decision.history.removing.clone());
                }
                self.told(&looked.plan, &applied).await;
                self.metrics.removed(&document.whose(), applied.removed.len());
                Ok(settle(&document.regarding, &mut looked.decision, &applied))
            }
            Err(cause @ RemovalError::PolicyChanged) => {
                // Under the version that was read the status cannot be written any more. The next pass, which reads the intent
                // there, knows that nobody acted on it.
                self.refusals.all().insert(home.clone(), looked.decision.history.removing.clone());
                let error = Error::from(cause);
                tracing::info!(reason = error.code(), policy = %document.regarding, "{error}");
                Err(error)
            }
            Err(cause) => {
                let removing = &mut looked.decision.history.removing;
                if cause.changed_nothing() {
                    self.refusals.all().insert(home.clone(), removing.clone());
                    // The second time it stays, and is the next pass's intent already.
                    if refused.as_ref() != Some(removing) {
                        removing.clear();
                    }
                }
                let error = Error::from(cause);
                for step in &looked.plan.steps {
                    self.metrics.common.action(step.action.name(), step.because.code(), ActionResult::Failed);
                }
                if let Some(step) = looked.plan.steps.first() {
                    self.runtime.events.failed(step, &error);
                }
                let (now, generation, mode) = (Timestamp::now(), document.generation, document.spec.mode);
                let next =
                    status::decided(&document.status, generation, mode, &looked.decision, Some(&error), now);
                self.store(document, next).await?;
                Err(error)
            }
        }
    }

    /// One count for each route that went, and one Event for all: they went in one request.
    async fn told(&self, plan: &Plan<Action>, applied: &Applied) {
        let went = |step: &&Step<Action>| match &step.action {
            Action::RemoveRoute { route, .. } => applied.removed.contains(route),
            Action::RemoveRoutes { .. } => false,
        };
        let steps: Vec<&Step<Action>> = plan.steps.iter().filter(went).collect();
        for step in &steps {
            self.metrics.common.action(step.action.name(), step.because.code(), ActionResult::Done);
        }
        match steps.as_slice() {
            [] => {}
            [only] => self.runtime.events.done(only),
            [first, ..] => {
                let Action::RemoveRoute { router, regarding, .. } = &first.action else { return };
                let action = Action::RemoveRoutes {
                    routes: applied.removed.clone(),
                    router: router.clone(),
                    regarding: regarding.clone(),
                };
                self.runtime.events.done(&Step { action, because: first.because.clone() });
            }
        }
    }

    async fn store(&self, document: &mut Document, next: RouteGCStatus) -> Result<(), Error> {
        if !self.runtime.leadership.is_leading() {
            return Err(Error::NotLeading);
        }
        document.store(&self.runtime.client, next).await.map(|_| ())
    }

    /// What could not be done is said in the status, too, as long as the status can be written.
    async fn failed(&self, document: &mut Document, error: &Error) -> Problem<Reason> {
        let whose = document.whose();
        tracing::warn!(%error, router = whose.router, policy = %document.regarding, "reconcile failed");
        self.metrics.failed(&whose, error.code());
        if let Some(guard) = error.guard() {
            self.metrics.blocked(&whose, guard);
        }
        let next = status::undecided(&document.status, document.generation, error, Timestamp::now());
        if let Err(cause) = self.store(document, next).await {
            tracing::warn!(error = %cause, "the failure could not be written down");
        }
        let text = format!("{}: {error}", document.regarding);
        self.runtime.status.set(document.regarding.to_string(), text);
        Problem {
            regarding: document.regarding.clone(),
            because: Reason::Failed(error.code(), status::without_ids(&error.to_string())),
        }
    }

    fn say(&self, document: &Document, looked: &Looked) {
        let name = document.regarding.to_string();
        let spec = &document.spec;
        let text = show::text(&name, &spec.router_id, spec.mode, &looked.decision, &looked.plan);
        self.runtime.status.set(name, text);
    }
}

/// The decision as it stands after the removals, and what came of them that was not meant to.
fn settle(regarding: &Regarding, decision: &mut Decision, applied: &Applied) -> Vec<Problem<Reason>> {
    let now = Timestamp::now();
    let gone = |route: &routes::Route| applied.removed.contains(route) || applied.gone.contains(route);
    for route in applied.removed.iter().chain(&applied.recreated) {
        record_removal(&mut decision.history.removed, route, now);
    }
    let before = decision.classified.len();
    decision.classified.retain(|one| !gone(&one.route));
    let went = u32::try_from(before - decision.classified.len()).unwrap_or(u32::MAX);
    decision.counts.orphan = decision.counts.orphan.saturating_sub(went);
    decision.quota.routes = u32::try_from(applied.left).unwrap_or(u32::MAX);
    let open = |destination: &str, nexthop: &str| !gone(&routes::Route::new(destination, nexthop));
    decision.history.candidates.retain(|one| open(&one.destination, &one.nexthop));
    decision.history.removing.clear();
    decision.removals.clear();
    let spared = applied.skipped.iter().map(|(route, why)| Reason::Spared(route.clone(), why.clone()));
    let back = applied.recreated.iter().cloned().map(Reason::BackAtOnce);
    spared.chain(back).map(|because| Problem { regarding: regarding.clone(), because }).collect()
}
