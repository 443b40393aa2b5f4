//! Pure: the plan of one reconciliation of all bindings and the objects of their kinds.
//!
//! ```text
//!   an object that is not being deleted   selected: finalizer on    not selected, or binding being deleted: finalizer off
//!   an object that is being deleted       protected: nothing        no Deorbit yet: create it
//!                                         Deorbit done: finalizer off
//! ```
//!
//! A Machine of a Cluster with the finalizer has a hook as well: see [`machines`].
//!
//! An object belongs to one binding: the one in its annotation, else the oldest that selects it. Finalizers of other programs are never
//! touched, and neither is a finalizer of this name without the annotation on an object that no binding selects.

pub mod machines;
mod standing;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use common::api::deorbit::DeorbitSpec;
use common::api::deorbit_binding::DeorbitBindingStatus;
use common::plan::Plan;
use serde_json::Value;

pub use self::standing::{Readiness, Standing};
use super::action::{Action, about, about_binding};
use super::reason::Reason;
use super::snapshot::{Binding, Deorbit, End, PhaseIs, Rules, Snapshot, Target, Targets};
use super::template::manifest;
use crate::names;

/// The plan, and the standing of each binding by its name.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// Steps and problems.
    pub plan: Plan<Action>,
    /// For the status of the bindings.
    pub standings: BTreeMap<String, Standing>,
}

/// Whether the plan has to see the whole of an object: its phase, or what its template reads.
#[must_use]
pub fn needs_body(binding: &Binding, target: &Target) -> bool {
    let Ok(rules) = &binding.rules else { return false };
    let bound = target.finalizers.contains(&binding.finalizer);
    if target.terminating {
        bound && protection(rules, target).is_none()
    } else {
        target.selected && !bound && rules.finalizer_when.is_some()
    }
}

/// Decides.
#[must_use]
pub fn plan(snapshot: &Snapshot) -> Decision {
    let owners = owners(&snapshot.bindings);
    let mut decision = Decision::default();
    for binding in &snapshot.bindings {
        let mut reconcile = Planner {
            binding,
            deorbits: &snapshot.deorbits,
            plan: &mut decision.plan,
            standing: Standing::default(),
            hooked: machines::hooked(binding),
        };
        reconcile.binding(&owners);
        let standing = reconcile.standing;
        decision.standings.insert(binding.name.clone(), standing);
    }
    machines::plan(&snapshot.bindings, &owners, &mut decision.plan);
    decision
}

/// The binding of each object, by UID.
fn owners(bindings: &[Binding]) -> BTreeMap<&str, &str> {
    let names: BTreeSet<&str> = bindings.iter().map(|binding| binding.name.as_str()).collect();
    let mut by_age: Vec<&Binding> = bindings.iter().collect();
    by_age.sort_by_key(|binding| (binding.created, &binding.name));
    let mut owners = BTreeMap::new();
    let mut unread = BTreeSet::new();
    for binding in by_age {
        let targets = match &binding.targets {
            Targets::Whole(targets) => targets,
            Targets::NotServed(_) => continue,
            Targets::Unknown(_) => {
                unread.insert(&binding.kind);
                continue;
            }
        };
        for target in targets {
            let marked = target.bound_by.as_deref().filter(|name| names.contains(name));
            if marked == Some(binding.name.as_str()) {
                owners.insert(target.object.uid.as_str(), binding.name.as_str());
            } else if unread.contains(&binding.kind) {
                // The selection of an older binding of this kind is unknown in this reconciliation.
            } else if marked.is_none() && target.selected && may_take(binding, target) {
                owners.entry(target.object.uid.as_str()).or_insert(binding.name.as_str());
            }
        }
    }
    owners
}

/// Whether a binding takes an object without the annotation: one that is being deleted only if it has the finalizer already.
fn may_take(binding: &Binding, target: &Target) -> bool {
    if target.terminating {
        target.finalizers.contains(&binding.finalizer)
    } else {
        !binding.terminating && binding.rules.is_ok()
    }
}

/// The annotation that protects an object, if one does.
fn protection<'a>(rules: &Rules, target: &'a Target) -> Option<&'a str> {
    let mut annotations = target.annotations.iter();
    annotations
        .find(|(key, value)| rules.protections.contains(*key) && names::protects(value))
        .map(|(key, _)| key.as_str())
}

struct Planner<'a> {
    binding: &'a Binding,
    deorbits: &'a [Deorbit],
    plan: &'a mut Plan<Action>,
    standing: Standing,
    /// Machines with the hook of the binding.
    hooked: usize,
}

impl Planner<'_> {
    fn binding(&mut self, owners: &BTreeMap<&str, &str>) {
        let binding = self.binding;
        if let Err(why) = &binding.rules {
            self.standing.readiness = Readiness::Invalid(why.clone());
            self.plan.problem(
                about_binding(&binding.name, &binding.uid),
                Reason::BindingInvalid { why: why.clone() },
            );
        }
        let targets = match &binding.targets {
            Targets::Whole(targets) => targets.as_slice(),
            Targets::NotServed(why) => {
                self.standing.readiness = Readiness::NotServed(why.clone());
                &[]
            }
            Targets::Unknown(why) => {
                let DeorbitBindingStatus { bound, deorbiting, held, .. } = binding.status;
                let readiness = Readiness::Unknown(why.clone());
                self.standing = Standing { bound, deorbiting, held, readiness };
                return;
            }
        };
        // Its own finalizer first: a binding that is deleted while it has objects must release them.
        if !binding.guarded && !binding.terminating {
            let action = Action::GuardBinding { binding: binding.name.clone(), uid: binding.uid.clone() };
            self.plan.step(action, Reason::BindingCreated);
            return;
        }
        let mut others = BTreeMap::<&str, usize>::new();
        for target in targets {
            match owners.get(target.object.uid.as_str()) {
                Some(owner) if *owner == binding.name => self.target(target),
                Some(owner) if target.selected => *others.entry(owner).or_default() += 1,
                _ => {}
            }
        }
        self.conflicts(&others);
        if binding.terminating {
            self.standing.readiness = Readiness::Terminating;
            if binding.guarded && self.standing.bound == 0 && self.hooked == 0 {
                let action = Action::ReleaseBinding {
                    binding: binding.name.clone(),
                    uid: binding.uid.clone(),
                    finalizer: binding.finalizer.clone(),
                    machines: binding.hooks,
                };
                self.plan.step(action, Reason::NothingBound);
            }
        }
    }

    fn conflicts(&mut self, others: &BTreeMap<&str, usize>) {
        if others.is_empty() || self.standing.readiness != Readiness::InForce {
            return;
        }
        let names: Vec<&str> = others.keys().copied().collect();
        let reason = Reason::Conflict { others: names.join(", "), count: others.values().sum() };
        self.standing.readiness = Readiness::Conflict(reason.to_string());
        self.plan.problem(about_binding(&self.binding.name, &self.binding.uid), reason);
    }

    fn target(&mut self, target: &Target) {
        let bound = target.finalizers.contains(&self.binding.finalizer);
        if bound {
            self.standing.bound += 1;
        }
        if !target.terminating {
            self.living(target, bound);
        } else if bound {
            self.dying(target);
        }
    }

    /// An object that is not being deleted.
    fn living(&mut self, target: &Target, bound: bool) {
        let name = &self.binding.name;
        let marked = target.bound_by.as_ref() == Some(name);
        if let Some(deorbit) = self.running(target) {
            self.abort(target, deorbit, Reason::TargetNotDeleted { target: target.object.to_string() });
        }
        if self.binding.terminating || !target.selected {
            // An annotation without the finalizer is removed too.
            if marked {
                let because = if self.binding.terminating {
                    Reason::BindingDeleted { binding: name.clone() }
                } else {
                    Reason::NotSelected { binding: name.clone() }
                };
                self.release(target, because);
            }
        } else if let Ok(rules) = &self.binding.rules
            && (!bound || !marked)
        {
            let in_phase = |rule: &PhaseIs| target.body.as_ref().is_some_and(|body| rule.holds(body));
            let desired = bound || rules.finalizer_when.as_ref().is_none_or(in_phase);
            if desired {
                let because = if bound {
                    Reason::Adopted { binding: name.clone() }
                } else {
                    Reason::Selected { binding: name.clone() }
                };
                let action = Action::Bind {
                    target: target.object.clone(),
                    binding: name.clone(),
                    finalizer: self.binding.finalizer.clone(),
                };
                self.plan.step(action, because);
            }
        }
    }

    /// An object that is being deleted and waits for us.
    fn dying(&mut self, target: &Target) {
        if let Ok(rules) = &self.binding.rules
            && let Some(annotation) = protection(rules, target)
        {
            let because = Reason::Protected { annotation: annotation.to_owned() };
            if let Some(deorbit) = self.running(target) {
                self.abort(target, deorbit, because.clone());
            }
            self.hold(target, because);
            return;
        }
        let Some(deorbit) = self.deorbit(target) else {
            self.create(target);
            return;
        };
        let id = format!("{}/{}", deorbit.namespace, deorbit.name);
        // The protecting annotations are unknown while the rules cannot be read: nothing is released then.
        if let (Err(why), Some(End::Complete | End::CompletedWithDebris)) = (&self.binding.rules, deorbit.end)
        {
            return self.not_created(target, why);
        }
        match (deorbit.terminating, deorbit.end) {
            // It was aborted; another one is created when it is gone.
            (true, _) | (false, None) => self.standing.deorbiting += 1,
            (false, Some(End::Complete)) => self.release(target, Reason::DeorbitCompleted { deorbit: id }),
            (false, Some(End::CompletedWithDebris)) => {
                self.release(target, Reason::DebrisLeft { deorbit: id });
            }
            (false, Some(End::Failed)) => self.hold(target, Reason::DeorbitFailed { deorbit: id }),
        }
    }

    fn create(&mut self, target: &Target) {
        let rules = match &self.binding.rules {
            Ok(rules) => rules,
            Err(why) => return self.not_created(target, why),
        };
        let Some(body) = &target.body else {
            return self.not_created(target, "it could not be read");
        };
        if rules.when.as_ref().is_some_and(|rule| !rule.holds(body)) {
            self.standing.deorbiting += 1;
            return;
        }
        let filled = match rules.template.fill(body) {
            Ok(filled) => filled,
            Err(why) => return self.not_created(target, why),
        };
        let Some(namespace) = filled.namespace.clone().or_else(|| target.object.namespace.clone()) else {
            let why = "template.namespace is not given, and the object has no namespace";
            return self.not_created(target, why);
        };
        let name = names::deorbit(&target.object.name, &target.object.uid);
        if let Some(known) = self.deorbits.iter().find(|one| one.namespace == namespace && one.name == name) {
            // deorbiter stopped between two writes. Only one that does exactly what the template says is taken for it.
            let desired = serde_json::from_value(Value::Object(filled.spec));
            let is_ours = known.target_uid.as_deref() == Some(target.object.uid.as_str())
                && desired.is_ok_and(|desired: DeorbitSpec| desired == known.spec);
            if !is_ours {
                let why = format!("a Deorbit {namespace}/{name} that was created for something else exists");
                return self.not_created(target, why);
            }
            self.standing.deorbiting += 1;
            let action = Action::RecordDeorbit {
                target: target.object.clone(),
                deorbit: format!("{namespace}/{name}"),
                uid: known.uid.clone(),
            };
            return self.plan.step(action, Reason::TargetDeleted { target: target.object.to_string() });
        }
        // Each try would be refused in the same way, and the object must be reported as held.
        match &target.refused {
            Some(refused) => {
                self.not_created(target, &refused.why);
                if !refused.stale {
                    return;
                }
            }
            None => self.standing.deorbiting += 1,
        }
        let manifest = manifest(filled, &target.object, "binding", &namespace, &name);
        let action = Action::CreateDeorbit {
            target: target.object.clone(),
            binding: self.binding.name.clone(),
            resource_version: target.resource_version.clone(),
            namespace,
            name,
            manifest,
        };
        self.plan.step(action, Reason::TargetDeleted { target: target.object.to_string() });
    }

    /// The Deorbit of an object, by the UIDs that both have recorded of each other. A user who may create Deorbits must not be able to
    /// release an object by a label; and an object that is restored with its annotations is another one.
    fn deorbit(&self, target: &Target) -> Option<&Deorbit> {
        let uid = target.deorbit_uid.as_ref()?;
        let own = |one: &&Deorbit| one.target_uid.as_ref() == Some(&target.object.uid);
        self.deorbits.iter().filter(own).find(|one| one.uid == *uid)
    }

    /// The Deorbit of an object, where it can be aborted.
    fn running(&self, target: &Target) -> Option<Deorbit> {
        self.deorbit(target).filter(|one| !one.terminating && one.end.is_none()).cloned()
    }

    fn abort(&mut self, target: &Target, deorbit: Deorbit, because: Reason) {
        let action = Action::AbortDeorbit {
            target: target.object.clone(),
            namespace: deorbit.namespace,
            name: deorbit.name,
            uid: deorbit.uid,
        };
        self.plan.step(action, because);
    }

    fn release(&mut self, target: &Target, because: Reason) {
        let action = Action::Release {
            target: target.object.clone(),
            binding: self.binding.name.clone(),
            finalizer: self.binding.finalizer.clone(),
            terminating: target.terminating,
        };
        self.plan.step(action, because);
    }

    fn not_created(&mut self, target: &Target, why: impl ToString) {
        self.hold(target, Reason::DeorbitNotCreated { why: why.to_string() });
    }

    fn hold(&mut self, target: &Target, because: Reason) {
        self.standing.held += 1;
        self.plan.problem(about(&target.object), because);
    }
}
