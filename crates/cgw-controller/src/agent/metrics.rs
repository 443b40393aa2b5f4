//! Metrics of the agent. Label sets are closed: no addresses, no names of Services or pods.

use std::{collections::BTreeMap, time::Duration};

use common::metrics::register;
use common::plan::{Problem, Reason as _};
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

use super::{
    datapath::{Datapath, VipRoute},
    driver::Change,
    plan::problem::Reason,
};

/// The objects of [`Change::object`].
const OBJECTS: [&str; 6] = ["link", "route", "nftables", "flow", "iptables", "sysctl"];

/// A flip of one VIP should take less than 10 ms, 2,000 flows less than 100 ms.
const APPLY_SECONDS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0];

/// Metrics of the agent, beside those that all programs have.
#[derive(Clone, Debug)]
pub struct Metrics {
    entries: IntGaugeVec,
    vips: IntGaugeVec,
    changes: IntCounterVec,
    repairs: IntCounterVec,
    apply_seconds: Histogram,
    apply_errors: IntCounter,
    problems: IntGaugeVec,
    generation: IntGauge,
}

impl Metrics {
    /// Registers everything, with zeros where a rate or an alert needs them.
    ///
    /// # Errors
    /// A name that is registered already.
    pub fn new(registry: &Registry) -> Result<Metrics, prometheus::Error> {
        let gauges = |name: &str, help: &str, label: &str| {
            register(registry, IntGaugeVec::new(Opts::new(name, help), &[label])?)
        };
        let counters = |name: &str, help: &str, label: &str| {
            register(registry, IntCounterVec::new(Opts::new(name, help), &[label])?)
        };
        let seconds = HistogramOpts::new(
            "cgw_agent_apply_duration_seconds",
            "Duration of comparing and programming the datapath",
        );
        let errors = IntCounter::new(
            "cgw_agent_apply_errors_total",
            "Times that the datapath could not be programmed",
        )?;
        let generation = IntGauge::new(
            "cgw_agent_datapath_generation",
            "How many different datapaths were programmed since the start; 0: none yet",
        )?;
        let metrics = Metrics {
            entries: gauges("cgw_agent_programmed_entries", "Entries of the programmed datapath", "object")?,
            vips: gauges("cgw_agent_vips", "VIPs by the gateway that packets are sent to", "gateway")?,
            changes: counters("cgw_agent_changes_total", "Changes of the node's datapath", "object")?,
            repairs: counters(
                "cgw_agent_repairs_total",
                "Changes of the node's datapath that revert a change of another program",
                "object",
            )?,
            problems: gauges(
                "cgw_agent_problems",
                "Problems of the last reconciliation that Events describe",
                "reason",
            )?,
            apply_seconds: register(
                registry,
                Histogram::with_opts(seconds.buckets(APPLY_SECONDS.to_vec()))?,
            )?,
            apply_errors: register(registry, errors)?,
            generation: register(registry, generation)?,
        };
        for object in OBJECTS {
            metrics.changes.with_label_values(&[object]);
            metrics.repairs.with_label_values(&[object]);
        }
        metrics.problems(&[]);
        Ok(metrics)
    }

    /// The datapath is programmed.
    pub fn programmed(&self, datapath: &Datapath, generation: u64) {
        let vips = datapath.vips.values();
        let of = |route: fn(&VipRoute) -> bool| vips.clone().filter(|path| route(&path.route)).count();
        let local_pods =
            |ip| vips.clone().flat_map(|path| path.pods.values()).filter(|pod| pod.node_ip == ip).count();
        for (object, count) in [
            ("vip", datapath.vips.len()),
            ("bound_pod", vips.clone().map(|path| path.pods.len()).sum()),
            ("local_bound_pod", local_pods(datapath.node.ip)),
            ("unbound_pod", datapath.unbound_pods.len()),
            ("port", vips.clone().map(|path| path.ports.len()).sum()),
            ("backend", vips.clone().flat_map(|path| &path.ports).map(|port| port.backends.len()).sum()),
            ("peer", datapath.peers.len()),
        ] {
            set(&self.entries, object, count);
        }
        set(&self.vips, "local", of(|route| *route == VipRoute::Local));
        set(&self.vips, "remote", of(|route| matches!(route, VipRoute::Remote { .. })));
        set(&self.vips, "none", of(|route| *route == VipRoute::Drop));
        self.generation.set(i64::try_from(generation).unwrap_or(i64::MAX));
    }

    /// One run of the driver.
    pub fn applied(&self, took: Duration, changes: &[Change]) {
        self.apply_seconds.observe(took.as_secs_f64());
        for change in changes {
            self.changes.with_label_values(&[change.object]).inc();
            if change.is_repair {
                self.repairs.with_label_values(&[change.object]).inc();
            }
        }
    }

    /// One run of the driver that failed.
    pub fn failed(&self, took: Duration) {
        self.apply_seconds.observe(took.as_secs_f64());
        self.apply_errors.inc();
    }

    /// The problems of a plan.
    pub fn problems(&self, problems: &[Problem<Reason>]) {
        let mut counts: BTreeMap<&str, usize> = Reason::CODES.into_iter().map(|code| (code, 0)).collect();
        for problem in problems {
            *counts.entry(problem.because.code()).or_default() += 1;
        }
        for (reason, count) in counts {
            set(&self.problems, reason, count);
        }
    }
}

fn set(gauges: &IntGaugeVec, label: &str, count: usize) {
    gauges.with_label_values(&[label]).set(i64::try_from(count).unwrap_or(i64::MAX));
}
