use common::api::deorbit_binding::DeorbitBindingStatus;
use common::plan::{Action as _, Reason as _};

use super::env::{OTHERS, OURS, PROTECT, TestEnv};
use crate::names;
use crate::trigger::plan::{Decision, Readiness, Standing, plan};
use crate::trigger::snapshot::{End, Refused, Targets};

fn steps(env: &TestEnv) -> Vec<(&'static str, &'static str)> {
    env.plan().plan.steps.iter().map(|step| (step.action.name(), step.because.code())).collect()
}

fn problems(env: &TestEnv) -> Vec<&'static str> {
    env.plan().plan.problems.iter().map(|problem| problem.because.code()).collect()
}

/// One binding with one bound object.
fn bound() -> TestEnv {
    let mut env = TestEnv::default();
    env.binding("b", "l");
    env.object("prod", "l");
    assert_eq!(steps(&env), [("GuardBinding", "BindingCreated")], "its own finalizer first");
    env.reconcile(1);
    assert_eq!(steps(&env), [("Bind", "Selected")]);
    env.settle();
    assert_eq!(env.objects["prod"].finalizers, [OTHERS, OURS]);
    env
}

#[test]
fn a_deleted_object_waits_for_its_deorbit() {
    let mut env = bound();
    env.edit("prod", |object| object.terminating = true);
    assert_eq!(steps(&env), [("CreateDeorbit", "TargetDeleted")]);
    env.settle();
    assert_eq!(env.plan().standings["b"].deorbiting, 1);
    env.end_deorbits(End::Complete);
    assert_eq!(steps(&env), [("Release", "DeorbitCompleted")]);
    env.settle();
    assert_eq!(env.objects["prod"].finalizers, [OTHERS], "the others' finalizer stays");
}

/// S9
#[test]
fn only_the_deorbit_that_the_binding_created_releases_the_object_whatever_the_label_of_others() {
    let mut env = bound();
    env.edit("prod", |object| object.terminating = true);
    env.forge("prod");
    assert_eq!(steps(&env), [("CreateDeorbit", "TargetDeleted")]);
    env.settle();
    env.forge("prod");
    assert!(steps(&env).is_empty(), "its own runs");
    env.end_deorbits(End::Complete);
    assert_eq!(steps(&env), [("Release", "DeorbitCompleted")]);
}

/// One that was restored or applied with the annotations of an earlier object.
#[test]
fn the_deorbit_of_another_object_neither_releases_an_object_nor_is_aborted_for_it() {
    let mut env = bound();
    env.edit("prod", |object| object.terminating = true);
    env.settle();
    let uid = env.objects["prod"].annotations[names::DEORBIT_UID_ANNOTATION].clone();
    env.object("copy", "l").annotations.insert(names::DEORBIT_UID_ANNOTATION.into(), uid);
    env.settle();
    assert!(!env.deorbits[0].terminating, "it runs for prod");
    env.end_deorbits(End::Complete);
    env.edit("copy", |object| object.terminating = true);
    assert_eq!(steps(&env), [("CreateDeorbit", "TargetDeleted"), ("Release", "DeorbitCompleted")]);
    env.settle();
    assert_eq!(env.plan().standings["b"].deorbiting, 1);
}

#[test]
fn a_deorbit_whose_uid_was_not_recorded_is_the_object_s_own_if_it_has_the_template_s_spec() {
    let mut env = bound();
    env.stops_after_creation = true;
    env.edit("prod", |object| object.terminating = true);
    env.reconcile(1);
    assert_eq!(steps(&env), [("RecordDeorbit", "TargetDeleted")]);
    let mut other = env.clone();
    other.deorbits[0].spec.kubeconfig.as_mut().unwrap().secret_ref.name = "other".into();
    other.end_deorbits(End::Complete);
    assert_eq!((steps(&other), problems(&other)), (vec![], vec!["DeorbitNotCreated"]));
    env.settle();
    assert_eq!(env.objects["prod"].annotations[names::DEORBIT_UID_ANNOTATION], env.deorbits[0].uid);
}

/// One binding with hooks, one bound object with two Machines, and a Machine of another Cluster.
fn hooked() -> TestEnv {
    let mut env = TestEnv::default();
    env.binding("b", "l").hooks = true;
    env.object("prod", "l");
    for (name, cluster) in [("m1", "prod"), ("m2", "prod"), ("foreign", "dev")] {
        env.machine(name, cluster);
    }
    env.settle();
    env
}

fn hooks(env: &TestEnv) -> Vec<&str> {
    env.machines.iter().filter(|(_, machine)| machine.hook.is_some()).map(|(name, _)| name.as_str()).collect()
}

#[test]
fn the_machines_of_a_cluster_wait_until_its_deorbit_is_done() {
    let mut env = hooked();
    assert_eq!(hooks(&env), ["m1", "m2"], "not the Machine of a Cluster that is not selected");
    env.edit("prod", |object| object.terminating = true);
    env.delete_machine("m1");
    env.delete_machine("m2");
    env.settle();
    assert_eq!(hooks(&env), ["m1", "m2"]);
    env.end_deorbits(End::Failed);
    env.settle();
    assert_eq!(hooks(&env), ["m1", "m2"], "a failure keeps the cluster");
    env.deorbits.clear();
    env.settle();
    env.end_deorbits(End::Complete);
    assert_eq!(steps(&env), [("Release", "DeorbitCompleted")]);
    env.reconcile(1);
    assert_eq!(steps(&env), [("UnhookMachine", "ClusterReleased"); 2]);
    env.settle();
    assert_eq!(env.machines.keys().collect::<Vec<_>>(), ["foreign"]);
}

#[test]
fn a_machine_that_is_deleted_without_its_cluster_does_not_wait() {
    let mut env = hooked();
    env.delete_machine("m1");
    assert_eq!(steps(&env), [("UnhookMachine", "MachineDeleted")]);
    env.settle();
    assert!(!env.machines.contains_key("m1"));
    env.machine("m3", "prod");
    assert_eq!(steps(&env), [("HookMachine", "ClusterBound")]);
}

#[test]
fn a_deleted_binding_leaves_no_hook() {
    let mut env = hooked();
    env.bindings.get_mut("b").unwrap().terminating = true;
    env.settle();
    assert!(env.bindings.is_empty() && hooks(&env).is_empty());
    assert_eq!(env.objects["prod"].finalizers, [OTHERS]);
}

#[test]
fn the_hook_of_another_binding_is_taken_over_with_the_cluster() {
    let mut env = hooked();
    env.machines.get_mut("m1").unwrap().hook = Some("earlier".into());
    assert_eq!(steps(&env), [("HookMachine", "ClusterBound")]);
    env.settle();
    assert_eq!(env.machines["m1"].hook.as_deref(), Some("b"));
    env.machines.get_mut("foreign").unwrap().hook = Some("earlier".into());
    assert_eq!(steps(&env), [("UnhookMachine", "ClusterReleased")], "no binding would remove it");
}

#[test]
fn no_hook_is_removed_while_the_clusters_of_a_binding_are_unknown() {
    let mut env = hooked();
    env.machines.get_mut("foreign").unwrap().hook = Some("b".into());
    let mut snapshot = env.snapshot();
    let mut unknown = snapshot.bindings[0].clone();
    unknown.name = "a".into();
    unknown.targets = Targets::Unknown("no right".into());
    snapshot.bindings.push(unknown);
    assert!(plan(&snapshot).plan.steps.is_empty());
}

#[test]
fn debris_releases_the_object_with_a_warning_and_a_failure_keeps_it() {
    let mut env = bound();
    env.edit("prod", |object| object.terminating = true);
    env.settle();
    env.end_deorbits(End::Failed);
    assert_eq!((steps(&env), problems(&env)), (vec![], vec!["DeorbitFailed"]));
    assert_eq!(env.plan().standings["b"].held, 1);
    env.deorbits.clear();
    assert_eq!(steps(&env), [("CreateDeorbit", "TargetDeleted")], "deleting it means: try again");
    env.settle();
    env.end_deorbits(End::CompletedWithDebris);
    let plan = env.plan().plan;
    assert!(plan.steps[0].because.is_trouble());
    assert_eq!(steps(&env), [("Release", "DebrisLeft")]);
}

#[test]
fn protection_prevents_a_deorbit_and_aborts_a_running_one() {
    let mut env = bound();
    env.edit("prod", |object| {
        object.terminating = true;
        object.annotations.insert(PROTECT.into(), "true".into());
    });
    assert_eq!((steps(&env), problems(&env)), (vec![], vec!["Protected"]));
    env.edit("prod", |object| drop(object.annotations.remove(PROTECT)));
    env.settle();
    env.edit("prod", |object| drop(object.annotations.insert(PROTECT.into(), "yes".into())));
    assert_eq!(steps(&env), [("AbortDeorbit", "Protected")]);
    env.settle();
    assert_eq!(steps(&env), [], "it is on its way out");
    for nothing in ["", "false"] {
        env.edit("prod", |object| drop(object.annotations.insert(PROTECT.into(), nothing.into())));
        assert_eq!(problems(&env), Vec::<&str>::new(), "{nothing:?} protects nothing");
    }
}

#[test]
fn a_deleted_binding_releases_live_objects_and_finishes_deletions() {
    let mut env = bound();
    env.object("dying", "l");
    env.settle();
    env.edit("dying", |object| object.terminating = true);
    env.bindings.get_mut("b").unwrap().terminating = true;
    env.settle();
    assert_eq!(env.objects["prod"].finalizers, [OTHERS]);
    assert!(env.objects["dying"].finalizers.contains(&OURS.to_owned()));
    assert_eq!(env.plan().standings["b"].readiness, Readiness::Terminating);
    env.end_deorbits(End::Complete);
    env.settle();
    assert_eq!(env.objects["dying"].finalizers, [OTHERS]);
    assert!(env.bindings.is_empty());
}

#[test]
fn an_object_that_is_no_longer_selected_is_released() {
    let mut env = bound();
    env.edit("prod", |object| object.labels.clear());
    assert_eq!(steps(&env), [("Release", "NotSelected")]);
}

#[test]
fn a_finalizer_of_our_name_is_adopted_where_selected_and_left_alone_elsewhere() {
    let mut env = TestEnv::default();
    env.binding("b", "l");
    env.object("selected", "l").finalizers.push(OURS.into());
    env.object("foreign", "other").finalizers.push(OURS.into());
    env.reconcile(1);
    assert_eq!(steps(&env), [("Bind", "Adopted")]);
    env.settle();
    env.edit("foreign", |object| object.terminating = true);
    assert_eq!(steps(&env), [], "another program added it and removes it");
    env.bindings.get_mut("b").unwrap().terminating = true;
    env.settle();
    assert_eq!(env.objects["selected"].finalizers, [OTHERS]);
    assert_eq!(env.objects["foreign"].finalizers, [OTHERS, OURS]);
}

#[test]
fn klusters_get_the_finalizer_and_the_deorbit_in_their_phases() {
    let mut env = TestEnv::default();
    let binding = env.binding("b", "l");
    binding.finalizer_when = Some("Running");
    binding.when = Some("Terminating");
    env.object("prod", "l").phase = "Creating".into();
    env.settle();
    assert_eq!(env.objects["prod"].finalizers, [OTHERS]);
    env.edit("prod", |object| object.phase = "Running".into());
    env.settle();
    env.edit("prod", |object| object.terminating = true);
    assert_eq!(steps(&env), [], "its phase is still Running");
    assert_eq!(env.plan().standings["b"].deorbiting, 1);
    env.edit("prod", |object| object.phase = "Terminating".into());
    assert_eq!(steps(&env), [("CreateDeorbit", "TargetDeleted")]);
}

#[test]
fn an_object_has_one_binding_the_older() {
    let mut env = TestEnv::default();
    env.binding("b", "l");
    env.binding("a", "l");
    env.object("prod", "l");
    env.settle();
    assert_eq!(env.objects["prod"].annotations[names::BOUND_BY_ANNOTATION], "b");
    assert_eq!(problems(&env), ["Conflict"]);
    let standings = env.plan().standings;
    assert!(matches!(&standings["a"].readiness, Readiness::Conflict(why) if why.contains("belong to b")));
    assert_eq!(standings["b"].readiness, Readiness::InForce);
    env.bindings.get_mut("b").unwrap().terminating = true;
    env.settle();
    assert_eq!(env.objects["prod"].annotations[names::BOUND_BY_ANNOTATION], "a", "then the other has it");
}

#[test]
fn a_younger_binding_binds_nothing_new_while_the_selection_of_an_older_one_is_unknown() {
    let mut env = TestEnv::default();
    env.binding("a", "l");
    env.binding("b", "l");
    env.settle();
    env.object("prod", "l");
    let mut snapshot = env.snapshot();
    let older = snapshot.bindings.iter_mut().find(|binding| binding.name == "a").unwrap();
    older.targets = Targets::Unknown("list Namespaces: 429".into());
    older.status = DeorbitBindingStatus { bound: 3, deorbiting: 2, held: 1, ..Default::default() };
    let decision = plan(&snapshot);
    assert!(decision.plan.steps.is_empty(), "{:?}", decision.plan);
    let Standing { bound, deorbiting, held, readiness } = &decision.standings["a"];
    assert_eq!((*bound, *deorbiting, *held), (3, 2, 1), "nothing new is known of them");
    assert!(matches!(readiness, Readiness::Unknown(_)));
    // A binding of another kind does not matter.
    let other = snapshot.bindings.iter_mut().find(|binding| binding.name == "a").unwrap();
    other.kind.1 = "Tower".into();
    let decision = plan(&snapshot);
    assert_eq!(decision.plan.steps.iter().map(|step| step.action.name()).collect::<Vec<_>>(), ["Bind"]);
}

#[test]
fn invalid_rules_bind_nothing_and_keep_what_is_bound() {
    let mut env = bound();
    env.object("late", "l");
    env.bindings.get_mut("b").unwrap().rules = Err("template.spec.a: bad".into());
    assert_eq!((steps(&env), problems(&env)), (vec![], vec!["BindingInvalid"]));
    env.edit("prod", |object| object.terminating = true);
    assert_eq!(problems(&env), ["BindingInvalid", "DeorbitNotCreated"]);
    assert_eq!(env.plan().standings["b"].held, 1);
}

#[test]
fn an_object_whose_deorbit_is_refused_is_held_and_rarely_retried() {
    let mut env = bound();
    env.edit("prod", |object| object.terminating = true);
    let mut snapshot = env.snapshot();
    let Targets::Whole(targets) = &mut snapshot.bindings[0].targets else { panic!() };
    targets[0].refused = Some(Refused { why: "spec: Invalid value".into(), stale: false });
    let held = |decision: &Decision| {
        assert!(decision.plan.problems[0].because.to_string().contains("spec: Invalid value"));
        let standing = &decision.standings["b"];
        assert_eq!((standing.held, standing.deorbiting), (1, 0));
    };
    let decision = plan(&snapshot);
    assert!(decision.plan.steps.is_empty(), "{:?}", decision.plan);
    held(&decision);

    // It stays held during the retry: a right, a quota or a policy may have changed.
    let Targets::Whole(targets) = &mut snapshot.bindings[0].targets else { panic!() };
    targets[0].refused.as_mut().unwrap().stale = true;
    let decision = plan(&snapshot);
    assert_eq!(decision.plan.steps.len(), 1, "{:?}", decision.plan);
    assert_eq!(decision.plan.steps[0].action.name(), "CreateDeorbit");
    held(&decision);
}

#[test]
fn a_foreign_deorbit_of_the_same_name_is_not_used() {
    let mut env = bound();
    env.edit("prod", |object| object.terminating = true);
    env.settle();
    env.edit("prod", |object| drop(object.annotations.remove(names::DEORBIT_UID_ANNOTATION)));
    env.deorbits[0].target_uid = None;
    env.deorbits[0].end = Some(End::Complete);
    assert_eq!((steps(&env), problems(&env)), (vec![], vec!["DeorbitNotCreated"]));
}

#[test]
fn the_deorbit_of_an_object_that_is_not_being_deleted_is_aborted() {
    let mut env = bound();
    env.edit("prod", |object| object.terminating = true);
    env.settle();
    env.edit("prod", |object| object.terminating = false);
    assert_eq!(steps(&env), [("AbortDeorbit", "TargetNotDeleted")]);
}

#[test]
fn an_object_without_the_finalizer_does_not_keep_its_binding() {
    let mut env = bound();
    env.edit("prod", |object| {
        object.terminating = true;
        object.finalizers = vec![OTHERS.into()];
    });
    assert_eq!(steps(&env), [], "it is not put back");
    env.bindings.get_mut("b").unwrap().terminating = true;
    env.settle();
    assert!(env.bindings.is_empty());
}
