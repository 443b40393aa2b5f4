//! Settings and metadata for the tests of the plans.

use common::plan::Action as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::Plan;
use crate::config::Config;
use crate::names::Flavor;

pub(super) fn config() -> Config {
    Config::new(Flavor::Ironcore, "apinet")
}

/// The names of the steps.
pub(super) fn acts(plan: &Plan) -> Vec<&'static str> {
    plan.steps.iter().map(|step| step.action.name()).collect()
}

/// The steps as sentences.
pub(super) fn texts(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(|step| step.action.to_string()).collect()
}

/// The codes of the problems.
pub(super) fn problems(plan: &Plan) -> Vec<&'static str> {
    use common::plan::Reason as _;
    plan.problems.iter().map(|problem| problem.because.code()).collect()
}

pub(super) fn deleting(metadata: &mut ObjectMeta) {
    metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
}

pub(super) fn without_finalizer(metadata: &mut ObjectMeta) {
    metadata.finalizers = None;
}
