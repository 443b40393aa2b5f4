//! Gives back what a state says, whatever stage it came to, and nothing else.

use std::time::Instant;

use super::cloud::Cloud;
use super::ec2::Ec2;
use super::error::Error;
use super::state::{Stage, State};

const ASSOCIATION_GONE: &[&str] = &["InvalidAssociationID.NotFound"];
const ADDRESS_GONE: &[&str] = &["InvalidAddress.NotFound", "InvalidAllocationID.NotFound"];
const INTERFACE_GONE: &[&str] = &["InvalidNetworkInterfaceID.NotFound"];
/// What UnassignPrivateIpAddresses says of an address that is not on the interface; but also of other things.
const PERHAPS_UNASSIGNED: &[&str] = &["InvalidParameterValue", "InvalidIPAddress.NotFound"];

/// The Elastic IP is disassociated if it still is where this attachment put it, and the private address goes back to the
/// subnet. The Elastic IP stays allocated. Doing it again does nothing.
///
/// # Errors
///
/// EC2 or the metadata service did not respond in time (then it may be done again), or refused.
pub fn release(cloud: &Cloud<'_>, state: &State, deadline: Instant) -> Result<(), Error> {
    let metadata = cloud.metadata(deadline);
    // The state came here on a copied disk: what it names belongs to the instance that it was copied from.
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
pub fn rollback(ec2: &Ec2<'_>, state: &State) -> Result<(), Error> {
    let private = state.private.addr();
    match &state.stage {
        Stage::Assigning => {
            // The request may not have come through. An address there is not ours: choose found it free before.
            let listed = match ec2.on_interface(&state.interface) {
                Err(error) if error.is_refused_as(INTERFACE_GONE) => return Ok(()),
                listed => listed?,
            };
            match listed.find(private) {
                None => return Ok(()),
                Some(found) if found.primary || found.public.is_some_and(|public| public != state.public) => {
                    return Ok(());
                }
                Some(_) => {}
            }
        }
        Stage::Associating => {
            let address = match ec2.address(state.public) {
                Err(error) if error.is_refused_as(ADDRESS_GONE) => None,
                address => Some(address?),
            };
            // Only if it came to this very private address: that is ours alone.
            let ours = address.and_then(|address| address.association).filter(|association| {
                association.interface.as_deref() == Some(&state.interface)
                    && association.private == Some(private)
            });
            if let Some(ours) = ours {
                disassociate(ec2, &ours.id)?;
            }
        }
        Stage::Associated { association } => disassociate(ec2, association)?,
    }
    unassign(ec2, state)
}

fn disassociate(ec2: &Ec2<'_>, association: &str) -> Result<(), Error> {
    match ec2.disassociate(association) {
        // It has moved on, or an earlier attempt came through.
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
