//! Metrics of the bindings. The name of a binding is the label: users create bindings, so there are few.

use std::collections::BTreeMap;

use common::metrics::register;
use prometheus::{IntGaugeVec, Opts, Registry};

use super::plan::{Readiness, Standing};

/// Gauges of the bindings.
#[derive(Clone)]
pub struct Metrics {
    ready: IntGaugeVec,
    bound: IntGaugeVec,
    deorbiting: IntGaugeVec,
    held: IntGaugeVec,
}

impl Metrics {
    /// Registers everything.
    ///
    /// # Errors
    /// A name that is registered already.
    pub fn new(registry: &Registry) -> Result<Metrics, prometheus::Error> {
        let gauge = |name: &str, help: &str| {
            register(registry, IntGaugeVec::new(Opts::new(name, help), &["binding"])?)
        };
        Ok(Metrics {
            ready: gauge("deorbiter_binding_ready", "1 if a DeorbitBinding is in force, else 0.")?,
            bound: gauge("deorbiter_binding_bound", "Objects that carry the finalizer of a DeorbitBinding.")?,
            deorbiting: gauge(
                "deorbiter_binding_deorbiting",
                "Bound objects that are being deleted and wait for their Deorbit.",
            )?,
            held: gauge(
                "deorbiter_binding_held",
                "Bound objects that are being deleted and wait for a person.",
            )?,
        })
    }

    /// Sets the series of all bindings; those of deleted bindings are removed.
    pub fn observed(&self, standings: &BTreeMap<String, Standing>) {
        for gauge in [&self.ready, &self.bound, &self.deorbiting, &self.held] {
            gauge.reset();
        }
        for (name, standing) in standings {
            self.ready.with_label_values(&[name]).set((standing.readiness == Readiness::InForce).into());
            self.bound.with_label_values(&[name]).set(standing.bound.into());
            self.deorbiting.with_label_values(&[name]).set(standing.deorbiting.into());
            self.held.with_label_values(&[name]).set(standing.held.into());
        }
    }
}
