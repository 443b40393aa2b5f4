//! CHECK: whether everything is still as ADD made it.

use std::time::Instant;

use crate::aws;
use crate::cni::result::Interface;
use crate::cni::{Code, Error};
use crate::firewall::RULES;
use crate::netlink::link::Link;
use crate::netlink::nftables;
use crate::plan::check::check as differences;
use crate::plan::{Desired, add, table_record};
use crate::record::{Attachment, ElasticIp, Owned as _, attachment, elastic_ip};

use super::namespaces::Namespaces;
use super::{Context, first};

/// Compares link, addresses, routes, rules, tables, sysctls and firewall with what ADD has recorded, and the Elastic IP with
/// what EC2 says.
///
/// # Errors
/// Code 101 with everything that differs; 8 where the pod's namespace is not there.
pub fn check(context: &Context<'_>) -> Result<(), Error> {
    let identity = context.identity();
    let mut namespaces = Namespaces::of_call(context)?;
    let pod = namespaces.pod()?;
    let (interface, record) = attachment(context, &identity.container_id)?;
    let previous = context.network.previous.iter().flat_map(|previous| &previous.interfaces);
    if !previous.clone().any(|listed| listed.name == interface) {
        return Err(failed(&[format!("prevResult lists no interface {interface}")]));
    }
    let table_record =
        pod.attachments.get(&interface).and_then(|lines| table_record::TableRecord::parse(lines));
    let desired = record.and_then(|record| record.desired());
    let (Some(table_record), Some(desired)) = (table_record, desired) else {
        return Err(failed(&[format!(
            "{interface} has no record: this program did not create it, or its ADD did not complete"
        )]));
    };
    let listed: Vec<&Interface> = previous.filter(|listed| listed.name == interface).collect();
    let mut found = differences(&as_listed(context, desired.clone(), &listed), &table_record, &pod);
    let link = pod.links.iter().find(|link| link.name == interface);
    found.extend(listed.iter().filter_map(|listed| answered(listed, link?)));
    if table_record.rules == RULES {
        let ruleset = add::firewall(&desired, &table_record).ruleset();
        found.extend(nftables::differences(&mut namespaces.sockets.netfilter, &ruleset)?);
    } else {
        context.log.verbose(format_args!(
            "another version created {interface}: its nf_tables rules are not compared"
        ));
    }
    if !found.is_empty() {
        return Err(failed(&found));
    }
    let elastic_ips = elastic_ip::folder(&context.settings.state_directory);
    match elastic_ips.read::<ElasticIp>(&identity.container_id, &interface)? {
        Some(record) => {
            namespaces.on_node(|_| aws::check(&record.state, context.settings, Instant::now() + aws::TIMEOUT))
        }
        None => Ok(()),
    }
}

/// What the attachment is called, and its record. CHECK's `prevResult` has the interface itself, so it cannot tell whether ADD
/// was chained, and the configuration may name another one by now: the records tell.
fn attachment(context: &Context<'_>, container_id: &str) -> Result<(String, Option<Attachment>), Error> {
    let folder = attachment::folder(&context.settings.run_directory);
    let ifname = &context.call.ifname;
    let own = folder.read::<Attachment>(container_id, ifname)?;
    if own.is_some() {
        return Ok((ifname.clone(), own));
    }
    let (records, errors) = folder.of_container::<Attachment>(container_id);
    match records.into_iter().find(|record| record.identity().ifname == *ifname) {
        Some(record) => Ok((record.interface().to_owned(), Some(record))),
        None => first(errors).map(|()| (ifname.clone(), None)),
    }
}

/// Without what later plugins of a list may have changed (`tuning` does): `prevResult` has the last word about the hardware
/// address, and about the MTU since 1.1.0; before, it is unknown, and only an MTU that the configuration asks for is compared.
fn as_listed(context: &Context<'_>, desired: Desired, listed: &[&Interface]) -> Desired {
    let mtu = desired
        .mtu
        .filter(|_| context.network.mtu.is_some() && listed.iter().all(|listed| listed.mtu.is_none()));
    let mac = desired.mac.filter(|_| listed.iter().all(|listed| listed.mac.is_none()));
    Desired { mtu, mac, ..desired }
}

/// How a link differs from what ADD has answered.
fn answered(listed: &Interface, link: &Link) -> Option<String> {
    let name = &listed.name;
    match (&listed.mac, link.mac.map(aws::metadata::mac_text)) {
        (Some(answered), Some(mac)) if !answered.eq_ignore_ascii_case(&mac) => {
            return Some(format!("interface {name}: mac is {mac}, prevResult has {answered}"));
        }
        _ => {}
    }
    let answered = listed.mtu.filter(|mtu| *mtu != link.mtu)?;
    Some(format!("interface {name}: mtu is {}, prevResult has {answered}", link.mtu))
}

fn failed(differences: &[String]) -> Error {
    Error::new(Code::CheckFailed, differences.join("; "))
}
