//! The Machines of Clusters of Cluster API. A Machine has the pre-terminate hook as long as its Cluster has the finalizer of a binding with
//! `machineHook`.
//!
//! Cluster API waits for no finalizer: when a Cluster is deleted, it deletes all worker Machines at once, then the control plane, then
//! the infrastructure. It skips pre-drain hooks in this case, and applies pre-terminate hooks. A Machine that is deleted alone, by a
//! rollout for example, must not wait.

use std::collections::BTreeMap;

use common::plan::Plan;

use super::super::action::Action;
use super::super::reason::Reason;
use super::super::snapshot::{Binding, Machine, Target, Targets};

/// Namespace and name.
type ClusterName<'a> = (Option<&'a str>, &'a str);

/// Whether a Machine needs the hook, if its Cluster has the finalizer.
#[must_use]
pub fn needs_hook(cluster_is_deleted: bool, machine_is_deleted: bool) -> bool {
    cluster_is_deleted || !machine_is_deleted
}

/// How many Machines have the hook of a binding.
pub(super) fn hooked(binding: &Binding) -> usize {
    binding.machines.iter().filter(|machine| machine.hook.as_ref() == Some(&binding.name)).count()
}

/// Adds the steps of all Machines. One decision for all bindings: a Cluster may go from one to another, and its Machines must have a
/// hook in between. `owners`: the binding of each object, by UID.
pub(super) fn plan(bindings: &[Binding], owners: &BTreeMap<&str, &str>, plan: &mut Plan<Action>) {
    let hooking = || bindings.iter().filter(|binding| binding.hooks);
    let is_unknown = |binding: &Binding| matches!(binding.targets, Targets::Unknown(_));
    // A hook whose Cluster is unknown stays.
    let all_known = !hooking().any(is_unknown);
    let bound: BTreeMap<_, _> = hooking().flat_map(|binding| bound(binding, owners)).collect();
    let finalizers: BTreeMap<String, String> =
        hooking().map(|binding| (binding.name.clone(), binding.finalizer.clone())).collect();
    // Two bindings may list the same Machines, in two versions.
    let machines: BTreeMap<&str, &Machine> = hooking()
        .flat_map(|binding| &binding.machines)
        .map(|machine| (machine.object.uid.as_str(), machine))
        .collect();
    for machine in machines.into_values() {
        let namespace = machine.object.namespace.as_deref();
        let cluster = format!("{}/{}", namespace.unwrap_or_default(), machine.cluster);
        let found = bound.get(&(namespace, machine.cluster.as_str()));
        let needed = found.filter(|(_, cluster)| needs_hook(cluster.terminating, machine.terminating));
        match (needed, &machine.hook) {
            (Some((binding, _)), hook) if hook.as_ref() != Some(&binding.name) => {
                let action =
                    Action::HookMachine { machine: machine.object.clone(), binding: binding.name.clone() };
                plan.step(action, Reason::ClusterBound { cluster });
            }
            (None, Some(hook)) if all_known => {
                let action = Action::UnhookMachine {
                    machine: machine.object.clone(),
                    cluster: machine.cluster.clone(),
                    hook: hook.clone(),
                    finalizers: finalizers.clone(),
                };
                let because = match found {
                    Some(_) => Reason::MachineDeleted { cluster },
                    None => Reason::ClusterReleased { cluster },
                };
                plan.step(action, because);
            }
            _ => {}
        }
    }
}

/// The Clusters with the finalizer of a binding, by namespace and name.
fn bound<'a>(
    binding: &'a Binding,
    owners: &BTreeMap<&str, &str>,
) -> Vec<(ClusterName<'a>, (&'a Binding, &'a Target))> {
    let Targets::Whole(targets) = &binding.targets else { return Vec::new() };
    let is_bound = |target: &&Target| {
        owners.get(target.object.uid.as_str()) == Some(&binding.name.as_str())
            && target.finalizers.contains(&binding.finalizer)
    };
    let bound = targets.iter().filter(is_bound);
    bound.map(|one| ((one.object.namespace.as_deref(), one.object.name.as_str()), (binding, one))).collect()
}
