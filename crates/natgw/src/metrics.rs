//! natgw's own metrics. Label sets are closed: no Node names, no addresses.

use std::time::Duration;

use common::metrics::{Metrics as Common, register};
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts};

use crate::apply::Applied;
use crate::observe::snapshot::{Node, Snapshot};
use crate::plan::Action;
use crate::plan::eligibility::{Assessed, Standing, Unfit};
use crate::plan::primary::Primary;
use crate::task::Kind;

/// The values of the label `state`.
const NODE_STATES: [&str; 6] = ["selected", "eligible", "candidate", "unreachable", "differs", "failing"];

/// Counters and gauges of natgw, beside those that all controllers have.
#[derive(Clone)]
pub struct Metrics {
    /// Those that all controllers have.
    pub common: Common,
    primary: IntGauge,
    route_in_place: IntGauge,
    nodes: IntGaugeVec,
    switches: IntCounter,
    switch_seconds: Histogram,
    job_failures: IntCounterVec,
    problems: IntGauge,
    probes: IntCounterVec,
    write_failures: IntGaugeVec,
}

impl Metrics {
    /// Registers everything.
    ///
    /// # Errors
    /// A name that is registered already.
    pub fn new(common: Common) -> Result<Self, prometheus::Error> {
        let registry = common.registry();
        let gauge = |name: &str, help: &str| register(registry, IntGauge::new(name, help)?);
        let gauges = |name: &str, help: &str, label: &str| {
            register(registry, IntGaugeVec::new(Opts::new(name, help), &[label])?)
        };
        let counters = |name: &str, help: &str, labels: &[&str]| {
            register(registry, IntCounterVec::new(Opts::new(name, help), labels)?)
        };
        let nodes = gauges(
            "natgw_nodes",
            "Nodes by state: selected by the node selector; eligible: set up as gateways; candidate: eligible and able to \
             be the primary now; unreachable: eligible, without responses to health checks; differs: eligible, with a \
             difference from its setup that a verification has found; failing: the last Job failed and is retried.",
            "state",
        )?;
        for state in NODE_STATES {
            nodes.with_label_values(&[state]);
        }
        let switches = IntCounter::new(
            "natgw_route_switches_total",
            "Times that the default route was added or moved.",
        )?;
        let switch_seconds = HistogramOpts::new(
            "natgw_route_switch_duration_seconds",
            "From the decision to move the default route until the cloud's last action was done.",
        )
        // An action takes about a second, a move two of them; 60 s is where waiting for an action ends.
        .buckets(vec![0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 60.0, 120.0]);
        let job_failures = counters("natgw_job_failures_total", "Jobs that failed, by type.", &["type"])?;
        // A verification that fails is not retried before its time, and is a problem instead.
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Verify) {
            job_failures.with_label_values(&[kind.word()]);
        }
        let probes = counters(
            "natgw_health_checks_total",
            "Rounds of health checks, by target (gateway, reference) and result (responded, silent).",
            &["target", "result"],
        )?;
        for target in ["gateway", "reference"] {
            for result in ["responded", "silent"] {
                probes.with_label_values(&[target, result]);
            }
        }
        let write_failures = gauges(
            "natgw_write_failures",
            "Failures of the last reconciliation by scope: route (0 or 1), nodes (the number of Nodes with a failed write).",
            "scope",
        )?;
        for scope in ["route", "nodes"] {
            write_failures.with_label_values(&[scope]);
        }
        Ok(Metrics {
            probes,
            write_failures,
            primary: gauge("natgw_primary", "1 if there is a primary NAT gateway, else 0.")?,
            route_in_place: gauge(
                "natgw_route_in_place",
                "1 if the default route points to the primary, else 0.",
            )?,
            nodes,
            problems: gauge(
                "natgw_problems",
                "Things that a person should look at; their text is in Events and /statusz.",
            )?,
            switches: register(registry, switches)?,
            switch_seconds: register(registry, Histogram::with_opts(switch_seconds)?)?,
            job_failures,
            common,
        })
    }

    /// Sets the gauges to the observed state.
    pub fn observed(
        &self,
        snapshot: &Snapshot,
        assessed: &[Assessed<'_>],
        primary: Option<Primary<'_>>,
        problems: usize,
    ) {
        let standings = |is: fn(&Standing) -> bool| assessed.iter().filter(|node| is(&node.standing)).count();
        // Without a pending annotation, the count belongs to a task that is done or was forgotten.
        let failing = |node: &&Node| node.pending.is_some() && node.failures > 0;
        for (state, count) in [
            ("selected", snapshot.nodes.iter().filter(|node| node.selected).count()),
            ("eligible", standings(|standing| *standing != Standing::None)),
            ("candidate", standings(|standing| matches!(standing, Standing::Candidate { .. }))),
            ("unreachable", standings(|standing| *standing == Standing::Eligible(Unfit::Unreachable))),
            ("differs", standings(|standing| *standing == Standing::Eligible(Unfit::Differs))),
            ("failing", snapshot.nodes.iter().filter(failing).count()),
        ] {
            self.nodes.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let route = snapshot.network.default_route;
        self.primary.set(primary.is_some().into());
        self.route_in_place.set(primary.is_some_and(|primary| route == Some(primary.private_ip)).into());
        self.problems.set(i64::try_from(problems).unwrap_or(i64::MAX));
    }

    /// Sets all gauges to 0, because this process does not lead any more: they would be those of the last reconciliation for ever.
    pub fn stepped_down(&self) {
        for gauge in [&self.primary, &self.route_in_place, &self.problems] {
            gauge.set(0);
        }
        for state in NODE_STATES {
            self.nodes.with_label_values(&[state]).set(0);
        }
        self.applied(&Applied::default());
    }

    /// Sets the failures of a reconciliation.
    pub fn applied(&self, applied: &Applied) {
        let route = applied.route.as_ref().is_some_and(|error| !error.is_outdated());
        let nodes = i64::try_from(applied.failed_nodes.len()).unwrap_or(i64::MAX);
        for (scope, failures) in [("route", route.into()), ("nodes", nodes)] {
            self.write_failures.with_label_values(&[scope]).set(failures);
        }
    }

    /// Counts one target of one round of health checks.
    pub fn probed(&self, target: &str, responded: bool) {
        let result = if responded { "responded" } else { "silent" };
        self.probes.with_label_values(&[target, result]).inc();
    }

    /// Counts an action that was done.
    pub fn acted(&self, action: &Action, took: Duration) {
        match action {
            Action::MoveRoute { .. } => {
                self.switches.inc();
                self.switch_seconds.observe(took.as_secs_f64());
            }
            Action::RecordFailure { task, .. } => {
                self.job_failures.with_label_values(&[task.kind.word()]).inc()
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::error::Error;

    #[test]
    fn a_replica_that_has_stepped_down_reports_no_state() {
        let metrics = Metrics::new(Common::new("natgw").unwrap()).unwrap();
        let set = || {
            let families = metrics.common.registry().gather();
            let text = prometheus::TextEncoder::new().encode_to_string(&families).unwrap();
            let own = text.lines().filter(|line| line.starts_with("natgw_") && !line.ends_with(" 0"));
            own.filter(|line| !line.starts_with("natgw_build_info")).count()
        };
        let gauges = [&metrics.primary, &metrics.route_in_place, &metrics.problems].into_iter().cloned();
        let nodes = NODE_STATES.map(|state| metrics.nodes.with_label_values(&[state]));
        gauges.chain(nodes).for_each(|gauge| gauge.set(1));
        metrics.applied(&Applied {
            route: Some(Error::NotLeading),
            nodes: None,
            failed_nodes: BTreeSet::from(["node-1".to_owned()]),
        });
        assert_eq!(set(), 11);
        metrics.stepped_down();
        assert_eq!(set(), 0);
    }
}
