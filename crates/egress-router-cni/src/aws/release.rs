//! Releases what a state records, at whatever stage, and nothing else.

use std::time::Instant;

use super::cloud::Cloud;
use super::ec2::Ec2;
use super::error::Error;
use super::state::{Stage, State};
use crate::cni;

const ASSOCIATION_GONE: &[&str] = &["InvalidAssociationID.NotFound"];
const ADDRESS_GONE: &[&str] = &["InvalidAddress.NotFound", "InvalidAllocationID.NotFound"];
const INTERFACE_GONE: &[&str] = &["InvalidNetworkInterfaceID.NotFound"];
/// Error code of UnassignPrivateIpAddresses for an address that is not on the interface, among other causes.
const PERHAPS_UNASSIGNED: &[&str] = &["InvalidParameterValue", "InvalidIPAddress.NotFound"];

/// Disassociates the Elastic IP if it still has the association of this attachment, and unassigns the private address. The Elastic IP
/// stays allocated. It is idempotent.
///
/// # Errors
///
/// EC2 or the metadata service did not respond in time (retry it), or refused.
pub fn release(cloud: &Cloud<'_>, state: &State, deadline: Instant) -> Result<(), cni::Error> {
    let metadata = cloud.metadata(deadline);
    // The record is on a copied disk, and belongs to the instance that it was copied from.
    if metadata.instance()? != state.instance {
        return Ok(());
    }
    rollback(&cloud.ec2(&metadata, deadline)?, state)
}

/// As [`release`], on the instance that the state is of.
///
/// # Errors
///
/// As [`release`].
pub fn rollback(ec2: &Ec2<'_>, state: &State) -> Result<(), cni::Error> {
    match &state.stage {
        Stage::Assigning => {
            // The request may not have taken effect. The address was free when it was chosen.
            let listed = match ec2.on_interface(&state.interface) {
                Err(error) if error.is_refused_as(INTERFACE_GONE) => return Ok(()),
                listed => listed?,
            };
            if !state.is_assigned(&listed) {
                return Ok(());
            }
        }
        Stage::Associating => {
            let address = match ec2.address(state.public) {
                Err(error) if error.is_refused_as(ADDRESS_GONE) => None,
                address => Some(address?),
            };
            let association = address.and_then(|address| address.association);
            if let Some(ours) = association.filter(|association| state.is_at(association)) {
                disassociate(ec2, &ours.id)?;
            }
        }
        Stage::Associated { association } => disassociate(ec2, association)?,
    }
    Ok(unassign(ec2, state)?)
}

fn disassociate(ec2: &Ec2<'_>, association: &str) -> Result<(), Error> {
    match ec2.disassociate(association) {
        // It was moved, or an earlier attempt took effect.
        Err(error) if error.is_refused_as(ASSOCIATION_GONE) => Ok(()),
        result => result,
    }
}

fn unassign(ec2: &Ec2<'_>, state: &State) -> Result<(), Error> {
    let private = state.private.addr();
    match ec2.unassign(&state.interface, private) {
        Err(error) if error.is_refused_as(INTERFACE_GONE) => Ok(()),
        Err(error) if error.is_refused_as(PERHAPS_UNASSIGNED) => match ec2.on_interface(&state.interface) {
            Err(gone) if gone.is_refused_as(INTERFACE_GONE) => Ok(()),
            Ok(listed) if listed.find(private).is_none() => Ok(()),
            _ => Err(error),
        },
        result => result,
    }
}
