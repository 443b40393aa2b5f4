//! The thin shell around the machine: calls, timers, and telling others.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::machine::{Command, Input, Machine, Now, ReadOutcome, WriteOutcome};
use super::record::Record;
use super::{Ended, Settings, View};
use crate::cluster::error_chain;

/// One contender at a real API server.
pub(super) struct Election<F> {
    api: Api<Lease>,
    machine: Machine,
    /// zero of the machine's clock
    origin: Instant,
    /// as last read or written: what is not the record (labels, owners) goes back unchanged
    lease: Lease,
    view: watch::Sender<View>,
    on_change: F,
}

impl<F: Fn(bool) + Send> Election<F> {
    pub(super) fn new(
        client: kube::Client,
        settings: Arc<Settings>,
        view: watch::Sender<View>,
        on_change: F,
    ) -> Self {
        let api = Api::namespaced(client, &settings.namespace);
        on_change(false);
        Election {
            api,
            machine: Machine::new(settings),
            origin: Instant::now(),
            lease: Lease::default(),
            view,
            on_change,
        }
    }

    pub(super) async fn run(
        mut self,
        release: CancellationToken,
        mut step_down: mpsc::Receiver<Duration>,
    ) -> Ended {
        let settings = self.machine.settings.clone();
        tracing::info!(lease = %place(&settings), identity = settings.identity, "taking part in the leader election");
        let mut releasing = false;
        // Some while the lease is released to contend again after this time.
        let mut pause = None;
        let mut input = Input::Tick;
        loop {
            let now = Now { local: self.origin.elapsed(), wall: wall() };
            let command = self.machine.step(now, input);
            if let Command::End(ended) = command {
                let Some(pause) = pause.take().filter(|_| ended == Ended::Stopped && !releasing) else {
                    self.publish(Some(ended));
                    return ended;
                };
                self.publish(None);
                tracing::info!(lease = %place(&settings), ?pause, "stepped down");
                tokio::select! {
                    biased;
                    () = release.cancelled() => releasing = true,
                    () = tokio::time::sleep(pause) => {}
                }
                // As a new contender: what the old one has seen is outdated.
                self.machine = Machine::new(settings.clone());
                input = if releasing { Input::Release } else { Input::Tick };
                continue;
            }
            self.publish(None);
            input = tokio::select! {
                biased;
                () = release.cancelled(), if !releasing => {
                    releasing = true;
                    Input::Release
                }
                Some(wait) = step_down.recv(), if pause.is_none() && !releasing => {
                    pause = Some(wait);
                    Input::Release
                }
                input = self.carry_out(command) => input,
            };
        }
    }

    /// Tells handles, metric and log what changed; nothing where nothing did.
    fn publish(&mut self, ended: Option<Ended>) {
        let until = self.machine.until.map(|until| self.origin + until);
        let new = View { holder: self.machine.holder().to_owned(), until, ended };
        let old = self.view.send_replace(new.clone());
        if old.until.is_some() != new.until.is_some() {
            (self.on_change)(new.until.is_some());
        }
        let (lease, identity) = (place(&self.machine.settings), &self.machine.settings.identity);
        if old.holder != new.holder && !new.holder.is_empty() {
            tracing::info!(%lease, holder = new.holder, ours = new.holder == *identity, "new holder of the lease");
        }
        if old.until.is_none() && new.until.is_some() {
            tracing::info!(%lease, identity, "became leader");
        }
        match ended {
            Some(Ended::Lost) => tracing::error!(%lease, identity, holder = new.holder, "lost the lease"),
            Some(Ended::Stopped) => tracing::info!(%lease, identity, "left the leader election"),
            None => {}
        }
    }

    async fn carry_out(&mut self, command: Command) -> Input {
        match command {
            Command::Wait { at_least, at_most } => {
                let jitter = at_most.saturating_sub(at_least).mul_f64(fastrand::f64());
                tokio::time::sleep(at_least + jitter).await;
                Input::Tick
            }
            Command::Read { timeout } => Input::Read(self.read(timeout).await),
            Command::Create { record, timeout } => {
                let settings = &self.machine.settings;
                let metadata = ObjectMeta { name: Some(settings.name.clone()), ..ObjectMeta::default() };
                let lease = Lease { metadata, spec: Some(spec_of(&record)) };
                let api = self.api.clone();
                self.written("create", within(timeout, api.create(&PostParams::default(), &lease)).await)
            }
            Command::Update { record, version, timeout } => {
                let mut lease = self.lease.clone();
                lease.metadata.resource_version = Some(version);
                lease.spec = Some(spec_of(&record));
                let (api, name) = (self.api.clone(), self.machine.settings.name.clone());
                let outcome = within(timeout, api.replace(&name, &PostParams::default(), &lease)).await;
                if record.holder.is_empty() && outcome.is_ok() {
                    tracing::info!(lease = %place(&self.machine.settings), "released the lease");
                }
                self.written("update", outcome)
            }
            // Never carried out: `run` returns first.
            Command::End(_) => Input::Tick,
        }
    }

    async fn read(&mut self, timeout: Duration) -> ReadOutcome {
        let (api, name) = (self.api.clone(), self.machine.settings.name.clone());
        match within(timeout, api.get_opt(&name)).await {
            Ok(None) => ReadOutcome::NotFound,
            Ok(Some(lease)) => {
                let Some(version) = lease.metadata.resource_version.clone() else {
                    return ReadOutcome::Failed;
                };
                let record = record_of(&lease);
                self.lease = lease;
                ReadOutcome::Found { record, version }
            }
            Err(fault) => {
                tracing::warn!(lease = %place(&self.machine.settings), %fault, "cannot read the lease");
                ReadOutcome::Failed
            }
        }
    }

    fn written(&mut self, verb: &str, outcome: Result<Lease, Fault>) -> Input {
        let place = place(&self.machine.settings);
        Input::Written(match outcome {
            Ok(lease) => match lease.metadata.resource_version.clone() {
                Some(version) => {
                    self.lease = lease;
                    WriteOutcome::Done { version }
                }
                None => WriteOutcome::Failed,
            },
            Err(Fault::Call(kube::Error::Api(status))) if status.code == 409 => {
                tracing::debug!(lease = %place, "cannot {verb} the lease: another write was first");
                WriteOutcome::Conflict
            }
            Err(fault) => {
                tracing::warn!(lease = %place, %fault, "cannot {verb} the lease");
                WriteOutcome::Failed
            }
        })
    }
}

/// Why a call has no usable response.
enum Fault {
    Slow(Duration),
    Call(kube::Error),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Slow(timeout) => write!(f, "no response in {timeout:?}"),
            Fault::Call(kube::Error::Api(status)) => write!(f, "{} ({})", status.message, status.code),
            Fault::Call(error) => f.write_str(&error_chain(error)),
        }
    }
}

async fn within<T>(timeout: Duration, call: impl Future<Output = kube::Result<T>>) -> Result<T, Fault> {
    match tokio::time::timeout(timeout, call).await {
        Ok(response) => response.map_err(Fault::Call),
        Err(_) => Err(Fault::Slow(timeout)),
    }
}

fn place(settings: &Settings) -> impl fmt::Display + use<> {
    format!("{}/{}", settings.namespace, settings.name)
}

/// The wall clock, as precise as a Lease keeps it.
fn wall() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

fn record_of(lease: &Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    Record {
        holder: spec.holder_identity.unwrap_or_default(),
        lease_duration_seconds: spec.lease_duration_seconds.unwrap_or_default(),
        acquire_time: spec.acquire_time.map(|time| time.0),
        renew_time: spec.renew_time.map(|time| time.0),
        transitions: spec.lease_transitions.unwrap_or_default(),
    }
}

/// The whole spec, as client-go writes it: strategy and preferredHolder of a coordinated election are not kept.
fn spec_of(record: &Record) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(record.holder.clone()),
        lease_duration_seconds: Some(record.lease_duration_seconds),
        acquire_time: record.acquire_time.map(MicroTime),
        renew_time: record.renew_time.map(MicroTime),
        lease_transitions: Some(record.transitions),
        ..LeaseSpec::default()
    }
}

#[cfg(test)]
mod tests;
