//! CHECK: compares the state with what ADD configured.

use common::netlink::link::Link;

use crate::cni::result::Interface;
use crate::cni::{Code, Error};
use crate::config::interface::mac_text;
use crate::names;
use crate::nftables::{self, fingerprint};
use crate::plan::Desired;
use crate::plan::check::check as differences;
use crate::record::{Attachment, Made, attachment};

use super::Context;
use super::namespaces::Namespaces;

/// Compares link, addresses, routes, rules, sysctls and the firewall's fingerprint with what ADD has recorded. It sends no request to EC2 or
/// to the API server, because a runtime calls CHECK for each status of a pod (CRI-O).
///
/// # Errors
/// Code 101 with all differences; 8 if the pod's namespace does not exist.
pub fn check(context: &Context<'_>) -> Result<(), Error> {
    let mut namespaces = Namespaces::of_call(context)?;
    let pod = namespaces.pod()?;
    let (interface, record) = attachment(context)?;
    let previous = context.network.previous.iter().flat_map(|previous| &previous.interfaces);
    if !previous.clone().any(|listed| listed.name == interface) {
        return Err(failed(&[format!("prevResult lists no interface {interface}")]));
    }
    let (Some(undo), Some(made)) = (pod.attachments.get(&interface), record.and_then(Attachment::made))
    else {
        return Err(failed(&[format!(
            "{interface} has no record: this program did not create it, or its ADD did not complete"
        )]));
    };
    let listed: Vec<&Interface> = previous.filter(|listed| listed.name == interface).collect();
    let mut found = differences(&as_listed(context, made.desired, &listed), undo, &pod);
    if let Some(link) = pod.link_named(&interface) {
        found.extend(listed.iter().flat_map(|listed| compared(listed, link)));
    }
    if made.firewall.starts_with(fingerprint::VERSION) {
        let table = names::table(&interface);
        if nftables::fingerprint(&mut namespaces.sockets.netfilter, &table)? != Some(made.firewall) {
            found.push(format!("the nf_tables table {table} was changed"));
        }
    } else {
        context.log.verbose(format_args!(
            "another version created {interface}: its nf_tables rules are not compared"
        ));
    }
    if found.is_empty() { Ok(()) } else { Err(failed(&found)) }
}

/// The attachment's interface and record. CHECK's `prevResult` contains the interface itself, so it does not show whether ADD was chained,
/// and the configuration may have changed. The records show it.
fn attachment(context: &Context<'_>) -> Result<(String, Option<Attachment<Made>>), Error> {
    let folder = attachment::folder(&context.settings.run_directory);
    let (container_id, ifname) = (&context.call.container_id, &context.call.ifname);
    let own = folder.read::<Attachment<Made>>(container_id, ifname)?;
    if own.is_some() {
        return Ok((ifname.clone(), own));
    }
    let (records, errors) = folder.of_container::<Attachment<Made>>(container_id);
    match records.into_iter().find(|record| record.owner.ifname == *ifname) {
        Some(record) => Ok((record.owner.interface.clone(), Some(record))),
        None => Error::first(errors.into_iter().map(|unreadable| unreadable.error))
            .map(|()| (ifname.clone(), None)),
    }
}

/// Removes values that later plugins of a list may have changed (`tuning` does): the hardware address of `prevResult` is used, and since
/// 1.1.0 its MTU. Before 1.1.0 the MTU is unknown, and only an MTU of the configuration is compared.
fn as_listed(context: &Context<'_>, desired: Desired, listed: &[&Interface]) -> Desired {
    let mtu = desired
        .mtu
        .filter(|_| context.network.mtu.is_some() && listed.iter().all(|listed| listed.mtu.is_none()));
    let mac = desired.mac.filter(|_| listed.iter().all(|listed| listed.mac.is_none()));
    Desired { mtu, mac, ..desired }
}

/// The differences between a link and its entry in the result of ADD.
fn compared(listed: &Interface, link: &Link) -> Vec<String> {
    let name = &listed.name;
    let mac = match (&listed.mac, link.mac.map(mac_text)) {
        (Some(listed), Some(mac)) if !listed.eq_ignore_ascii_case(&mac) => {
            Some(format!("interface {name}: mac is {mac}, prevResult has {listed}"))
        }
        _ => None,
    };
    let differs = listed.mtu.filter(|mtu| *mtu != link.mtu);
    let mtu = differs.map(|mtu| format!("interface {name}: mtu is {}, prevResult has {mtu}", link.mtu));
    mac.into_iter().chain(mtu).collect()
}

fn failed(differences: &[String]) -> Error {
    Error::new(Code::CheckFailed, differences.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_from_prev_result_is_reported() {
        let link = crate::plan::simulated::link(9, "net1", "macvlan");
        let link = Link { mac: Some([2, 0, 0, 0, 0, 1]), ..link };
        let mac = Some("02:00:00:00:00:02".to_owned());
        let listed = Interface { name: "net1".into(), mac, mtu: Some(1400), ..Interface::default() };
        assert_eq!(
            compared(&listed, &link),
            [
                "interface net1: mac is 02:00:00:00:00:01, prevResult has 02:00:00:00:00:02",
                "interface net1: mtu is 1500, prevResult has 1400",
            ]
        );
    }
}
