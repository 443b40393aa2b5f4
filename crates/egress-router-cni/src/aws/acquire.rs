//! An Elastic IP for an attachment, on a secondary private address of its own.
//!
//! ```text
//!   DescribeAddresses ── already this attachment's? ── done
//!     └ DescribeNetworkInterfaces → choose → [Assigning] → AssignPrivateIpAddresses
//!         └ [Associating] → AssociateAddress → [Associated]          [..]: recorded before the next request
//! ```

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv4Net};

use super::choose::choose;
use super::cloud::Cloud;
use super::ec2::{Address, Association, Ec2, Taken};
use super::error::Error;
use super::metadata::Interface;
use super::release;
use super::state::{Journal, Stage, State};
use crate::cni::{self, Code};

/// Time for the rollback after the deadline: cleaning up now is cheaper than in the next call.
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts with an address that another program takes first, before the error says that the subnet is too busy.
const MAX_CHOICES: usize = 5;
/// Error code of AssignPrivateIpAddresses for an address of another interface.
const IN_USE: &[&str] =
    &["InvalidParameterValue", "InvalidIPAddress.InUse", "PrivateIpAddressInUse", "InvalidPrivateIpAddress"];

/// The requested Elastic IP.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// `ip.addresses`: one Elastic IP. Its prefix length is ignored.
    pub addresses: &'a [IpNet],
    /// Hardware address of the device that `interfaceArgs.master` names; none: the instance's primary network interface.
    pub master: Option<[u8; 6]>,
    /// The record of an earlier call for the same attachment.
    pub before: Option<&'a State>,
}

/// Associates the Elastic IP with a private address that only this attachment has, and records it. Returns the record.
///
/// It moves the address from its current association, unless the settings forbid it. After a killed call, the next one continues from its
/// record in `before`.
///
/// # Errors
///
/// 7: the configuration is invalid; 11: EC2 did not respond or throttled until the deadline, or another node took the address; 102: EC2
/// refuses permanently. Nothing is left, or the rest is recorded.
pub fn acquire(
    cloud: &Cloud<'_>,
    request: Request<'_>,
    journal: &mut dyn Journal,
    deadline: Instant,
) -> Result<State, cni::Error> {
    let public = public(request.addresses)?;
    let metadata = cloud.metadata(deadline);
    let instance = metadata.instance()?;
    let interface = metadata.interface(request.master)?;
    let ec2 = cloud.ec2(&metadata, deadline)?;
    let address = ec2.address(public)?;

    let mut left = request.before.filter(|before| before.instance == instance).cloned();
    if let Some(before) = &left
        && (before.interface != interface.id
            || before.public != public
            || before.allocation != address.allocation)
    {
        release::rollback(&ec2, before)?;
        journal.clear()?;
        left = None;
    }

    let mut attempt =
        Attempt { ec2: &ec2, interface: &interface, journal, reassociates: cloud.reassociates() };
    let state = match left {
        Some(state) if address.association.as_ref().is_some_and(|association| state.is_at(association)) => {
            return attempt.keep(state, address.association.as_ref());
        }
        Some(state) => attempt.resume(state)?,
        None => None,
    };
    attempt.check(&address, public)?;
    let mut state = match state {
        Some(state) => state,
        None => attempt.assign(&instance, public, &address)?,
    };
    match attempt.associate(&mut state, &address) {
        Ok(()) => Ok(state),
        Err(error) => {
            // A state that cannot be rolled back stays in the record, for DEL, GC or the next ADD.
            let rolled_back = cloud
                .ec2(&metadata, deadline.max(Instant::now() + ROLLBACK_TIMEOUT))
                .and_then(|ec2| release::rollback(&ec2, &state))
                .and_then(|()| attempt.journal.clear());
            Err(match rolled_back {
                Ok(()) => error,
                Err(left) => {
                    let details =
                        format!("{}; releasing {} failed too: {left}", error.details, state.private.addr());
                    error.details(details)
                }
            })
        }
    }
}

/// The one requested Elastic IP.
fn public(addresses: &[IpNet]) -> Result<Ipv4Addr, cni::Error> {
    match addresses {
        [one] => match one.addr() {
            IpAddr::V4(public) => Ok(public),
            IpAddr::V6(address) => Err(cni::Error::invalid_config(format!(
                "ip.addresses: {address} is no IPv4 address; interfaceType aws-elastic-ip takes one Elastic IP"
            ))),
        },
        several => Err(cni::Error::invalid_config(format!(
            "ip.addresses has {} addresses; interfaceType aws-elastic-ip takes one Elastic IP for each attachment",
            several.len()
        ))),
    }
}

/// The requested address is not available.
fn conflict(message: String) -> cni::Error {
    cni::Error::new(Code::Aws, message)
}

struct Attempt<'a> {
    ec2: &'a Ec2<'a>,
    interface: &'a Interface,
    journal: &'a mut dyn Journal,
    reassociates: bool,
}

impl Attempt<'_> {
    /// The association already exists. It is not repeated, because AWS may charge for each remap.
    fn keep(&mut self, mut state: State, association: Option<&Association>) -> Result<State, cni::Error> {
        if let Some(association) = association {
            state.stage = Stage::Associated { association: association.id.clone() };
        }
        // Also an unchanged one: the record has the namespace of an earlier pod if its container ID is used again.
        self.journal.write(&state)?;
        Ok(state)
    }

    /// The private address of an earlier call, if it is still assigned.
    fn resume(&mut self, state: State) -> Result<Option<State>, cni::Error> {
        let listed = self.ec2.on_interface(&state.interface)?;
        if state.is_assigned(&listed) {
            return Ok(Some(state));
        }
        self.journal.clear()?;
        Ok(None)
    }

    /// Whether the settings allow to move it.
    fn check(&self, address: &Address, public: Ipv4Addr) -> Result<(), cni::Error> {
        let Some(association) = &address.association else { return Ok(()) };
        if self.reassociates {
            return Ok(());
        }
        Err(conflict(format!(
            "Elastic IP {public} is associated with {}{}, and aws.allowReassociation is false in the settings",
            association.interface.as_deref().unwrap_or("an instance"),
            association.private.map(|private| format!(" ({private})")).unwrap_or_default(),
        )))
    }

    /// Assigns a private address.
    fn assign(&mut self, instance: &str, public: Ipv4Addr, address: &Address) -> Result<State, cni::Error> {
        let listed = self.ec2.on_interface(&self.interface.id)?;
        self.refuse_node_address(instance, &listed, public, address)?;
        let recorded = self.journal.recorded();
        let mut taken = listed;
        for _ in 0..MAX_CHOICES {
            let not_free = |address| recorded.contains(&address) || taken.contains(address);
            let chosen = choose(self.interface.block, fastrand::u32(..), not_free).ok_or_else(|| {
                conflict(format!(
                    "subnet {} ({}) has no free address",
                    self.interface.subnet, self.interface.block
                ))
            })?;
            let private = Ipv4Net::new(chosen, self.interface.block.prefix_len())
                .map_err(|error| cni::Error::new(Code::Aws, error.to_string()))?;
            let state = State {
                instance: instance.into(),
                interface: self.interface.id.clone(),
                mac: self.interface.mac,
                public,
                allocation: address.allocation.clone(),
                private,
                gateway: self.interface.gateway(),
                stage: Stage::Assigning,
            };
            self.journal.write(&state)?;
            match self.assign_verified(chosen) {
                Ok(()) => return Ok(state),
                Err(error) if error.is_refused_as(IN_USE) => {
                    self.journal.clear()?;
                    taken = self.ec2.in_subnet(&self.interface.subnet)?;
                    // The list may be outdated; this address is not free.
                    taken.prefixes.push(chosen.into());
                }
                Err(error @ Error::Refused { .. }) => {
                    self.journal.clear()?;
                    return Err(error.into());
                }
                // It may have been assigned; the record keeps it.
                Err(error) => return Err(error.into()),
            }
        }
        Err(conflict(format!(
            "in subnet {}, other interfaces took each chosen address first",
            self.interface.subnet
        )))
    }

    fn assign_verified(&self, chosen: Ipv4Addr) -> Result<(), Error> {
        let mut retry = self.ec2.retry();
        let mut no_response = None;
        loop {
            let uncertain = match (self.ec2.assign(&self.interface.id, chosen), no_response) {
                (Err(error @ Error::Uncertain { .. }), _) => error,
                // In use, perhaps because of the previous attempt, which the list may not show yet.
                (Err(error), Some(before)) if error.is_refused_as(IN_USE) => {
                    let taken = self.ec2.in_subnet(&self.interface.subnet)?;
                    if taken.find(chosen).is_some_and(|found| found.interface != self.interface.id) {
                        return Err(error);
                    }
                    before
                }
                (result, _) => return result,
            };
            if self.ec2.on_interface(&self.interface.id)?.find(chosen).is_some() {
                return Ok(());
            }
            if !retry.backoff() {
                return Err(uncertain);
            }
            no_response = Some(uncertain);
        }
    }

    /// Refuses the node's own Elastic IP, on the primary address of any of its interfaces: without it the node may become unreachable.
    /// `listed` are the addresses of the pods' interface.
    fn refuse_node_address(
        &self,
        instance: &str,
        listed: &Taken,
        public: Ipv4Addr,
        address: &Address,
    ) -> Result<(), cni::Error> {
        let Some(association) = &address.association else { return Ok(()) };
        let Some(interface) = association.interface.as_deref() else { return Ok(()) };
        let is_primary = |taken: &Taken| {
            taken.addresses.iter().any(|own| own.primary && Some(own.address) == association.private)
        };
        let own = if interface == self.interface.id {
            is_primary(listed)
        } else {
            association.instance.as_deref() == Some(instance)
                && is_primary(&self.ec2.on_interface(interface)?)
        };
        if own {
            return Err(conflict(format!(
                "Elastic IP {public} belongs to this node: it is associated with the primary address of {interface}; use another one for the pod"
            )));
        }
        Ok(())
    }

    fn associate(&mut self, state: &mut State, before: &Address) -> Result<(), cni::Error> {
        if state.stage != Stage::Associating {
            state.stage = Stage::Associating;
            self.journal.write(state)?;
        }
        let association = self.associate_verified(state, before)?;
        state.stage = Stage::Associated { association };
        self.journal.write(state)
    }

    fn associate_verified(&self, state: &State, before: &Address) -> Result<String, cni::Error> {
        let mut retry = self.ec2.retry();
        loop {
            let private = state.private.addr();
            let uncertain =
                match self.ec2.associate(&state.allocation, &state.interface, private, self.reassociates) {
                    Err(error @ Error::Uncertain { .. }) => error,
                    result => return Ok(result?),
                };
            let now = self.ec2.address(state.public)?.association;
            match now {
                Some(now) if state.is_at(&now) => return Ok(now.id),
                // It took effect and was moved again, or another node was first: the newer association stays.
                Some(now) if Some(&now.id) != before.association.as_ref().map(|before| &before.id) => {
                    let message = format!(
                        "Elastic IP {} was associated with {} while this node was associating it; is it configured for two pods?",
                        state.public,
                        now.interface.as_deref().unwrap_or("an instance")
                    );
                    return Err(cni::Error::new(Code::TryAgain, message));
                }
                _ => {}
            }
            if !retry.backoff() {
                return Err(uncertain.into());
            }
        }
    }
}
