//! natgw's own metrics. Label sets are closed: no Node names, no addresses.

use std::time::Duration;

use common::metrics::Metrics as Common;
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts};

use crate::observe::snapshot::Snapshot;
use crate::plan::Action;
use crate::plan::eligibility::{Assessed, Standing};
use crate::plan::primary::Primary;

/// Counters and gauges of natgw, beside those that all controllers have.
#[derive(Clone)]
pub struct Metrics {
    /// Those that all controllers have.
    pub common: Common,
    primary: IntGauge,
    route_in_place: IntGauge,
    eligible: IntGauge,
    candidates: IntGauge,
    nodes: IntGauge,
    failing: IntGauge,
    switches: IntCounter,
    switch_seconds: Histogram,
    job_failures: IntCounterVec,
    problems: IntGauge,
}

impl Metrics {
    /// Registers everything.
    ///
    /// # Errors
    /// A name that is registered already.
    pub fn new(common: Common) -> Result<Self, prometheus::Error> {
        let registry = common.registry();
        let gauge = |name: &str, help: &str| {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        let switches = IntCounter::new(
            "natgw_route_switches_total",
            "Times that the default route was added or moved.",
        )?;
        registry.register(Box::new(switches.clone()))?;
        let switch_seconds = Histogram::with_opts(
            HistogramOpts::new(
                "natgw_route_switch_duration_seconds",
                "From the decision to move the default route until the cloud's last action was done.",
            )
            // An action takes about a second, a move two of them; 60 s is where waiting for an action ends.
            .buckets(vec![0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 60.0, 120.0]),
        )?;
        registry.register(Box::new(switch_seconds.clone()))?;
        let job_failures = IntCounterVec::new(
            Opts::new("natgw_job_failures_total", "Jobs that failed, by type."),
            &["type"],
        )?;
        registry.register(Box::new(job_failures.clone()))?;
        for kind in crate::task::Kind::ALL {
            job_failures.with_label_values(&[kind.word()]);
        }
        Ok(Metrics {
            primary: gauge("natgw_primary", "1 if there is a primary NAT gateway, else 0.")?,
            route_in_place: gauge(
                "natgw_route_in_place",
                "1 if the default route points to the primary, else 0.",
            )?,
            eligible: gauge("natgw_eligible_nodes", "Nodes that are set up as gateways.")?,
            candidates: gauge("natgw_candidate_nodes", "Eligible Nodes that could be the primary now.")?,
            nodes: gauge("natgw_selected_nodes", "Nodes that the node selector matches.")?,
            failing: gauge(
                "natgw_failing_nodes",
                "Nodes whose last Job failed; it is tried again after a wait.",
            )?,
            problems: gauge(
                "natgw_problems",
                "Things that a person should look at; their text is in Events and /statusz.",
            )?,
            switches,
            switch_seconds,
            job_failures,
            common,
        })
    }

    /// Takes over what was seen.
    pub fn observed(
        &self,
        snapshot: &Snapshot,
        assessed: &[Assessed<'_>],
        primary: Option<Primary<'_>>,
        problems: usize,
    ) {
        let count = |wanted: fn(&Standing) -> bool| {
            i64::try_from(assessed.iter().filter(|node| wanted(&node.standing)).count()).unwrap_or(i64::MAX)
        };
        let route = snapshot.network.default_route;
        self.primary.set(primary.is_some().into());
        self.route_in_place.set(primary.is_some_and(|primary| route == Some(primary.private_ip)).into());
        self.eligible.set(count(|standing| *standing != Standing::None));
        self.candidates.set(count(|standing| matches!(standing, Standing::Candidate { .. })));
        let selected = snapshot.nodes.iter().filter(|node| node.selected).count();
        self.nodes.set(i64::try_from(selected).unwrap_or(i64::MAX));
        // Without a pending marker the count belongs to a task that is done or forgotten.
        let failing =
            snapshot.nodes.iter().filter(|node| node.pending.is_some() && node.failures > 0).count();
        self.failing.set(i64::try_from(failing).unwrap_or(i64::MAX));
        self.problems.set(i64::try_from(problems).unwrap_or(i64::MAX));
    }

    /// Counts an act that was done.
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
