//! Driver `vxlan`: a VXLAN device, policy routing and one nf_tables table, by netlink. No program is executed.
//!
//! ```text
//!   Datapath, Config ── plan ── Kernel (desired) ─┐
//!   netlink, /proc/sys ── observe ── Observed ────┴─ difference ── Operations, batch of nf_tables ── apply
//! ```
//!
//! * [`plan`]: the desired state of the kernel, with the table's [`plan::ruleset`].
//! * [`observe`]: the present state.
//! * [`difference`]: ordered changes.
//! * [`apply`]: executes them.
//! * [`connections`]: conntrack entries whose translation changed.

pub mod apply;
pub mod connections;
pub mod difference;
pub mod observe;
pub mod plan;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use common::netlink::nftables::{Batch, Family, dump};
use common::netlink::socket::{Protocol, Socket};

use super::datapath::Datapath;
use super::driver::{Change, Driver, Error};
use difference::{Changes, Operation};
use observe::Observed;
use plan::table::{self, Table};
use plan::{DEVICE, Kernel};

/// Settings of the driver. They are the same on all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// VXLAN network identifier: it identifies the device as the driver's.
    pub vni: u32,
    /// UDP port.
    pub port: u16,
    /// Bits of a packet's mark that the driver uses. It must not have bits of other programs: kube-proxy uses 0x4000, kubelet 0x8000, Calico by
    /// default 0xffff0000.
    pub mark_mask: u32,
    /// MTU of the device in bytes. None: 50 less than that of the node's interface.
    pub mtu: Option<u32>,
}

impl Default for Config {
    fn default() -> Config {
        Config { vni: 0x0063_6777, port: 4790, mark_mask: 0x3fff, mtu: None }
    }
}

/// The driver.
pub struct Vxlan {
    config: Config,
    route: Socket,
    netfilter: Socket,
    /// The last table that was written or found equal, with the generation of the ruleset in which it was. It is the only copy: a gateway's
    /// has several elements for each bound pod of the cluster.
    table: Option<(Table, u32)>,
    last: Option<Applied>,
}

/// The last datapath that was applied.
struct Applied {
    datapath: Datapath,
    /// Its desired state without the table.
    kernel: Kernel,
    /// The VIPs that the node had as addresses.
    held: BTreeSet<Ipv4Addr>,
}

/// The node as a datapath needs it, and as it is.
struct Plan {
    kernel: Kernel,
    table: Table,
    observed: Observed,
    changes: Changes,
    /// The VIPs that the node has as addresses.
    held: BTreeSet<Ipv4Addr>,
}

impl Vxlan {
    /// A driver in the calling thread's network namespace.
    ///
    /// # Errors
    /// No netlink sockets.
    pub fn new(config: Config) -> Result<Vxlan, Error> {
        let open =
            |protocol| Socket::open(protocol).map_err(|error| failure("opening a netlink socket", &error));
        let (route, netfilter) = (open(Protocol::Route)?, open(Protocol::Netfilter)?);
        Ok(Vxlan { config, route, netfilter, table: None, last: None })
    }

    /// Reads everything but the table, and plans.
    fn plan(&mut self, desired: &Datapath) -> Result<Plan, Error> {
        let operation = format!("reading the link with the address {}", desired.node.ip);
        let read = |error| failure(&operation, &error);
        let addresses = observe::addresses(&mut self.route).map_err(read)?;
        let link = match addresses.get(&desired.node.ip) {
            Some(link) => self.route.link_by_index(*link).map_err(read)?,
            None => None,
        };
        let missing = || Error {
            operation: operation.clone(),
            cause: "no link has it".to_owned(),
            is_permanent: false,
        };
        let link = link.ok_or_else(missing)?;
        let observed = self.observe()?;
        if observed.device.as_ref().is_some_and(|found| found.device.is_none()) {
            return Err(Error {
                operation: format!("creating the link {DEVICE}"),
                cause: format!(
                    "a link of this name exists that is not VXLAN with VNI {:#x}",
                    self.config.vni
                ),
                is_permanent: true,
            });
        }
        let kernel = plan::plan(desired, &self.config, link.mtu);
        let table = plan::ruleset::table(desired, &self.config);
        let changes = difference::difference(&kernel, &observed);
        let held = desired.vips.keys().copied().filter(|vip| addresses.contains_key(vip)).collect();
        Ok(Plan { kernel, table, observed, changes, held })
    }

    fn observe(&mut self) -> Result<Observed, Error> {
        observe::observe(&mut self.route, &self.config)
            .map_err(|error| failure("reading links, routes and rules", &error))
    }

    /// Compares the table with the kernel's. The kernel's is read only if any program changed the ruleset since. Returns the batch that
    /// writes the table, or some of its elements.
    fn table_change(&mut self, desired: &Table) -> Result<Option<(Batch, Change)>, Error> {
        let read = |error| failure("reading the nf_tables table", &error);
        let generation = dump::generation(&mut self.netfilter).map_err(read)?;
        let (mut known, mut is_repair) = (None, false);
        if let Some((table, at)) = self.table.take() {
            if at == generation || self.is_present(&table)? {
                known = Some(table);
            } else {
                is_repair = true;
            }
        } else if self.is_present(desired)? {
            known = Some(desired.clone());
        }
        let write = match &known {
            Some(table) if table == desired => None,
            Some(table) if table.has_structure_of(desired) => {
                Some((desired.update(table), "change elements of the table cgw"))
            }
            _ => Some((desired.replace(), "write the table cgw")),
        };
        self.table = known.map(|table| (table, generation));
        Ok(write.map(|(batch, description)| {
            (batch, Change { object: "nftables", description: description.to_owned(), is_repair })
        }))
    }

    /// Whether the kernel has exactly this table.
    fn is_present(&mut self, table: &Table) -> Result<bool, Error> {
        let found = dump::table(&mut self.netfilter, Family::Ipv4, table::NAME);
        let found = found.map_err(|error| failure("reading the nf_tables table", &error))?;
        let elements = |set: &str| table.elements.get(set).into_iter().flatten().collect();
        Ok(found.is_some_and(|found| found.is(&table.chains, &table.rules, &table.sets, elements)))
    }

    /// Writes a change of the table.
    fn write_table(&mut self, desired: Table, batch: Batch) -> Result<(), Error> {
        // Unknown, should it fail.
        self.table = None;
        batch.commit(&mut self.netfilter).map_err(|error| failure("writing the nf_tables table", &error))?;
        // Another program's batch in between has the table read once more than needed, or a foreign change noticed later.
        let generation = dump::generation(&mut self.netfilter);
        let generation = generation.map_err(|error| failure("reading the nf_tables table", &error))?;
        self.table = Some((desired, generation));
        Ok(())
    }

    fn execute(&mut self, observed: &Observed, operations: &[Operation]) -> Result<(), Error> {
        apply::apply(&mut self.route, observed, operations)
            .map_err(|error| failure("changing links, routes and rules", &error))
    }

    /// Moves VIPs to their new gateways before anything is read: packets wait for it.
    fn move_vips(&mut self, desired: &Datapath) -> Vec<Change> {
        let Some(last) = &self.last else { return Vec::new() };
        let moved = last.kernel.moved(&last.datapath, desired).into_iter();
        let routes: Vec<_> = moved.map(|(key, next)| Operation::SetRoute(key, next)).collect();
        if routes.is_empty() {
            return Vec::new();
        }
        let device = self.route.vxlan_by_name(DEVICE);
        let Ok(Some((link, Some(vxlan)))) = device else { return Vec::new() };
        let is_set =
            vxlan.vni == self.config.vni && apply::set_routes(&mut self.route, link.index, &routes).is_ok();
        // What failed is read, and written again.
        let routes = if is_set { routes } else { Vec::new() };
        routes.iter().map(|route| route.change(false)).collect()
    }

    /// The operations as changes. One that the last state had is a repair.
    fn changes(&self, observed: &Observed, operations: &[Operation]) -> Vec<Change> {
        if operations.is_empty() {
            return Vec::new();
        }
        let repairs = self.last.as_ref().map(|last| difference::difference(&last.kernel, observed));
        let repairs: Vec<_> =
            repairs.into_iter().flat_map(|changes| [changes.before, changes.after].concat()).collect();
        // Many operations are many routes; then the comparison would be quadratic.
        let few = repairs.len() < 1000;
        let is_repair = |operation: &Operation| few && repairs.contains(operation);
        operations.iter().map(|operation| operation.change(is_repair(operation))).collect()
    }
}

impl Driver for Vxlan {
    fn apply(&mut self, desired: &Datapath) -> Result<Vec<Change>, Error> {
        let mut done = self.move_vips(desired);
        let Plan { kernel, table, observed, changes, held } = self.plan(desired)?;
        done.extend(self.changes(&observed, &changes.before));
        let after = self.changes(&observed, &changes.after);
        self.execute(&observed, &changes.before)?;
        if let Some((batch, change)) = self.table_change(&table)? {
            self.write_table(table, batch)?;
            done.push(change);
        }
        self.execute(&observed, &changes.after)?;
        done.extend(after);
        let last = self.last.as_ref().map(|last| (&last.datapath, &last.held));
        let stale = connections::stale(last, (desired, &held));
        connections::delete(&mut self.netfilter, &stale)
            .map_err(|error| failure("deleting conntrack entries", &error))?;
        let problems = kernel.problems.join("; ");
        self.last = Some(Applied { datapath: desired.clone(), kernel, held });
        if problems.is_empty() {
            return Ok(done);
        }
        Err(Error { operation: "programming a VIP".to_owned(), cause: problems, is_permanent: false })
    }

    fn preview(&mut self, desired: &Datapath) -> Result<Vec<Change>, Error> {
        let Plan { table, observed, changes, .. } = self.plan(desired)?;
        let mut all = self.changes(&observed, &changes.before);
        all.extend(self.table_change(&table)?.map(|(_, change)| change));
        all.extend(self.changes(&observed, &changes.after));
        Ok(all)
    }

    fn uninstall(&mut self) -> Result<Vec<Change>, Error> {
        self.last = None;
        self.table = None;
        let observed = self.observe()?;
        let operations = difference::removal(&observed);
        let mut done = self.changes(&observed, &operations);
        self.execute(&observed, &operations)?;
        let batch = Batch::new(Family::Ipv4, table::NAME).delete_table();
        match batch.commit(&mut self.netfilter) {
            Ok(()) => done.push(Change {
                object: "nftables",
                description: format!("delete the table {}", table::NAME),
                is_repair: false,
            }),
            Err(error) if error.is(&[libc::ENOENT]) => {}
            Err(error) => return Err(failure("deleting the nf_tables table", &error)),
        }
        Ok(done)
    }
}

fn failure(operation: &str, error: &common::netlink::Error) -> Error {
    // No such link type, no nf_tables.
    let is_permanent = error.is(&[libc::EOPNOTSUPP, libc::EPROTONOSUPPORT, libc::EAFNOSUPPORT]);
    Error { operation: operation.to_owned(), cause: error.to_string(), is_permanent }
}
