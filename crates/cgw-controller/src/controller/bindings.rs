//! Executes requests: observe, plan, write the first write, and once more until nothing remains.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::cache::ObjectKey;
use common::executor::Executor;
use common::plan::Step;
use common::runtime::Runtime;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use tokio::sync::Mutex;

use super::error::Error;
use super::masters::{Known, Poller, Statuses};
use super::plan::{self, Cause, Master, Progress, Reply, Request, Snapshot, Tenant, Write, master};
use super::service::Service;
use super::services::{Services, Updated};
use super::stores::{Records, Stores};
use crate::api::Vip;
use crate::api::stores::{Host, Owner};

/// How often a request that conflicts with other clients is planned again. All records are in one object, so that requests for
/// different VIPs conflict too.
const CONFLICTS: u32 = 25;

/// Writes of one request: more than any plan has.
const WRITES: u32 = 25;

/// The longest delay after a conflict; it is random, so that two replicas do not conflict each time.
const CONFLICT_DELAY: Duration = Duration::from_millis(40);

/// The parts that requests, notifications and repairs share.
pub struct Bindings {
    /// Leadership, metrics and Events.
    pub runtime: Runtime,
    /// Records, keepers, status servers.
    pub stores: Stores,
    /// Tenants' Services.
    pub services: Services,
    /// Polls status servers.
    pub poller: Poller,
    /// The last known masters.
    pub known: Known,
    /// One round of a request at a time: the requests of one replica do not conflict with each other.
    round: Mutex<()>,
}

/// The state of one VIP, with the objects whose versions are preconditions.
#[derive(Debug)]
pub struct Observed {
    /// For the plan.
    pub snapshot: Snapshot,
    /// The records that it was made from.
    pub records: Arc<Records>,
    /// The Services that it was made from.
    pub services: BTreeMap<ObjectKey, Arc<Service>>,
}

impl Bindings {
    /// All parts.
    #[must_use]
    pub fn new(runtime: Runtime, stores: Stores, services: Services, poller: Poller) -> Bindings {
        Bindings { runtime, stores, services, poller, known: Known::default(), round: Mutex::new(()) }
    }

    /// Executes a bind or an unbind of `user`.
    ///
    /// # Errors
    /// The API server cannot be used, or other clients changed the objects each time. A repetition of the request completes it.
    pub async fn execute(&self, vip: Vip, request: &Request, user: &str) -> Result<(Reply, Updated), Error> {
        let cause = Cause::Requested { user: user.to_owned() };
        let (mut progress, mut updated) = (Progress::default(), Updated::default());
        let (mut master, mut is_polled, mut conflicts, mut writes) = (None, false, 0, 0);
        loop {
            let round = self.round.lock().await;
            let observed = self.observe_request(vip, request, master).await?;
            let verdict = plan::plan(request, &progress, &observed.snapshot);
            let needs_master = matches!(request, Request::Bind(Owner::Service { .. }))
                && matches!(verdict.reply.code, 200 | 201 | 503);
            if needs_master && !is_polled {
                drop(round);
                master = self.master(vip, recorded(&observed.snapshot)).await?;
                is_polled = true;
                continue;
            }
            let Some(write) = verdict.writes.first() else { return Ok((verdict.reply, updated)) };
            let result = self.write(write, &cause, &observed).await;
            drop(round);
            match result {
                Ok(()) => {
                    progress.add(write);
                    if let (Write::Carry { .. } | Write::Release { .. }, Some(service)) =
                        (write, write.service())
                    {
                        updated.updated.push(service.to_string());
                    }
                    writes += 1;
                }
                Err(Error::Conflict(what)) => {
                    progress.add_conflict(write);
                    conflicts += 1;
                    if conflicts >= CONFLICTS {
                        return Err(Error::Conflicts { what, times: conflicts });
                    }
                    tokio::time::sleep(CONFLICT_DELAY.mul_f64(fastrand::f64())).await;
                }
                Err(error) => return Err(error),
            }
            if writes >= WRITES {
                let what = format!("the binding of VIP {vip}");
                return Err(Error::Conflicts { what, times: writes });
            }
        }
    }

    /// Executes one write.
    ///
    /// # Errors
    /// [`Error::Conflict`] if its precondition is not met.
    pub async fn write(&self, write: &Write, cause: &Cause, observed: &Observed) -> Result<(), Error> {
        let record = match write {
            Write::Record { bind, .. } => Some(bind),
            Write::Erase { .. } => None,
            _ => {
                let service = write.service().and_then(|name| observed.services.get(name));
                let missing = || Error::Conflict(write.to_string());
                let events = &self.runtime.events;
                return self.services.write(write, cause, service.ok_or_else(missing)?, events).await;
            }
        };
        let executor = Executor::from(&self.runtime);
        let step = Step { action: write.clone(), because: cause.clone() };
        executor.execute(&step, self.stores.write_record(write.vip(), record, &observed.records)).await
    }

    /// The state that a request needs, from the API server.
    async fn observe_request(
        &self,
        vip: Vip,
        request: &Request,
        master: Option<Master>,
    ) -> Result<Observed, Error> {
        let (Request::Bind(owner) | Request::Unbind(owner)) = request;
        // The record is read first, and then the Services: see the rules of the plan.
        let records = Arc::new(self.stores.read_records(vip).await?);
        let is_bind = matches!(request, Request::Bind(_));
        let has_namespace = !is_bind || self.has_namespace(owner.namespace()).await?;
        let is_served = !is_bind || records.binds.contains_key(&vip) || self.is_served(vip).await?;
        let shares =
            records.binds.get(&vip).is_some_and(|bind| matches!(bind.owner, Owner::Namespace { .. }));
        let named = plan::named(owner);
        let services = match &named {
            // A namespace that is bound: its other Services matter.
            _ if shares => self.services.list(owner.namespace()).await?,
            Some(name) => self.services.read(name).await?.into_iter().collect(),
            None => Vec::new(),
        };
        let services = services.into_iter().map(Arc::new);
        let (services, tenants) =
            self.tenants(services, |tenant| tenant.vip == Some(vip) || named.as_ref() == Some(&tenant.name));
        let binds = Arc::clone(&records.binds);
        let snapshot = Snapshot {
            vip,
            binds,
            is_served,
            has_namespace,
            services: tenants,
            master,
            has_no_master: false,
        };
        Ok(Observed { snapshot, records, services })
    }

    /// The state that a repair needs: records from the API server, and the Services of the record's namespace, too.
    ///
    /// # Errors
    /// The API server cannot be used; [`Error::Conflict`] if the record changed meanwhile.
    pub async fn observe_repair(&self, vip: Vip) -> Result<Observed, Error> {
        let records = Arc::new(self.stores.read_records(vip).await?);
        let owner = records.binds.get(&vip).map(|bind| bind.owner.clone());
        let mut services: BTreeMap<ObjectKey, Arc<Service>> = BTreeMap::new();
        let cached = self.services.carriers(vip).into_iter().chain(self.services.showing(vip));
        services.extend(cached.map(|service| (service.key(), service)));
        match &owner {
            Some(Owner::Namespace { namespace }) => {
                let listed = self.services.list(namespace).await?;
                services.retain(|_, service| service.metadata.namespace.as_deref() != Some(namespace));
                services.extend(listed.into_iter().map(|one| (one.key(), Arc::new(one))));
            }
            Some(Owner::Service { namespace, service }) => {
                let name = ObjectKey::new(namespace, service);
                services.remove(&name);
                let read = self.services.read(&name).await?;
                services.extend(read.map(|one| (one.key(), Arc::new(one))));
            }
            None => {}
        }
        // A bind writes the record first, and an unbind removes it last: a Service without a record is one only if the record was
        // absent after the Service was read.
        if self.stores.read_records(vip).await?.binds.get(&vip) != records.binds.get(&vip) {
            return Err(Error::Conflict(format!("the record of VIP {vip}")));
        }
        Ok(self.observed(vip, records, services.into_values(), owner.as_ref()))
    }

    /// The state of a VIP, from the caches.
    #[must_use]
    pub fn observe_cached(&self, vip: Vip) -> Observed {
        let records = self.stores.records();
        let owner = records.binds.get(&vip).map(|bind| bind.owner.clone());
        let named = owner.as_ref().and_then(plan::named).and_then(|name| self.services.cache.get(&name));
        let showing = self.services.showing(vip);
        let services = self.services.carriers(vip).into_iter().chain(showing).chain(named);
        self.observed(vip, records, services, owner.as_ref())
    }

    fn observed(
        &self,
        vip: Vip,
        records: Arc<Records>,
        services: impl IntoIterator<Item = Arc<Service>>,
        owner: Option<&Owner>,
    ) -> Observed {
        let named = owner.and_then(plan::named);
        let (services, tenants) = self.tenants(services, |tenant| {
            tenant.vip == Some(vip) || named.as_ref() == Some(&tenant.name) || tenant.has_stale_ingress(vip)
        });
        let snapshot = Snapshot {
            vip,
            binds: Arc::clone(&records.binds),
            is_served: self.stores.hosts().hosts.iter().any(|host| host.serves(vip)),
            has_namespace: true,
            services: tenants,
            master: self.known.get(vip),
            has_no_master: self.known.has_none(vip),
        };
        Observed { snapshot, records, services }
    }

    /// The Services that matter, as they are and as the plan reads them.
    fn tenants(
        &self,
        services: impl IntoIterator<Item = Arc<Service>>,
        matters: impl Fn(&Tenant) -> bool,
    ) -> (BTreeMap<ObjectKey, Arc<Service>>, BTreeMap<ObjectKey, Tenant>) {
        let tenants = services.into_iter().filter_map(|service| {
            let tenant = self.services.tenant(&service)?;
            matters(&tenant).then(|| ((tenant.name.clone(), service), (tenant.name.clone(), tenant)))
        });
        tenants.unzip()
    }

    /// Whether the namespace exists and is not being deleted, from the API server.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn has_namespace(&self, name: &str) -> Result<bool, Error> {
        let api = Api::<Namespace>::all(self.services.client());
        let read = api.get_metadata_opt(name).await;
        let namespace =
            read.map_err(|cause| Error::Kubernetes { what: format!("read namespace {name}"), cause })?;
        Ok(namespace.is_some_and(|namespace| namespace.metadata.deletion_timestamp.is_none()))
    }

    /// The master in force: the newer one of what the Services have and what is known.
    #[must_use]
    pub fn current(&self, vip: Vip) -> Option<Master> {
        master::newest(recorded(&self.observe_cached(vip).snapshot), self.known.get(vip))
    }

    /// The master of a VIP after a poll of keepers that began when `before` was in force. It is known from then on.
    pub fn polled(
        &self,
        vip: Vip,
        before: Option<Master>,
        hosts: &[Host],
        statuses: &Statuses,
    ) -> Option<Master> {
        let recorded = recorded(&self.observe_cached(vip).snapshot);
        let keepers = hosts.iter().filter(|host| host.serves(vip));
        let statuses: Vec<_> =
            keepers.filter_map(|host| statuses.get(&host.status())?.clone().ok()).collect();
        self.known.polled(vip, before, recorded, &statuses)
    }

    /// A keeper that has just registered may be missing in the cache.
    async fn is_served(&self, vip: Vip) -> Result<bool, Error> {
        if self.stores.hosts().hosts.iter().any(|host| host.serves(vip)) {
            return Ok(true);
        }
        Ok(self.stores.read_hosts().await?.hosts.iter().any(|host| host.serves(vip)))
    }

    /// Polls the status servers of a VIP. None: none is MASTER. The result is known from then on.
    ///
    /// # Errors
    /// The stores cannot be read.
    pub async fn master(&self, vip: Vip, recorded: Option<Master>) -> Result<Option<Master>, Error> {
        let before = master::newest(recorded, self.known.get(vip));
        let endpoints = self.stores.endpoints(vip, false).await?;
        let mut statuses = self.poller.poll(&endpoints).await;
        // The entry may be older than the keepers.
        if !statuses.values().any(Result::is_ok) {
            let rebuilt = self.stores.endpoints(vip, true).await?;
            statuses = if rebuilt == endpoints { statuses } else { self.poller.poll(&rebuilt).await };
        }
        let statuses: Vec<_> = statuses.into_values().filter_map(Result::ok).collect();
        Ok(self.known.polled(vip, before, recorded, &statuses))
    }
}

/// The gateway in force, as the Services have it.
#[must_use]
pub fn recorded(snapshot: &Snapshot) -> Option<Master> {
    let masters = snapshot.carriers().filter_map(|tenant| {
        let carried = tenant.carried?;
        Some(Master { gateway: carried.gateway?, epoch: carried.epoch })
    });
    masters.max_by_key(|master| (master.epoch, master.gateway.node_ip))
}
