//! Facts about the node's bridge that the desired flows depend on, from OVSDB and from openshift-sdn's own flows.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use serde_json::Value;

use super::{flow::Flow, profile::Profile};
use crate::api::TunMac;

/// Names of openshift-sdn's ports.
const VXLAN: &str = "vxlan0";
const TUN: &str = "tun0";

/// Facts about the node's bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// OpenFlow number of vxlan0.
    pub vxlan_port: u32,
    /// OpenFlow number of tun0.
    pub tun_port: u32,
    /// MAC address of tun0. It changes if openshift-sdn re-creates tun0.
    pub tun_mac: TunMac,
    /// Pods of this node that openshift-sdn has set up.
    pub pods: BTreeMap<Ipv4Addr, LocalPod>,
    /// Namespaces leave by this node with an egressIP of openshift-sdn. It uses the whole mark of a packet, so the marks 0x2 and 0x4
    /// cannot be told apart from it.
    pub has_egress_ip: bool,
}

/// A pod's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalPod {
    /// OpenFlow number.
    pub port: u32,
    /// Number of the pod's NetNamespace, 0 for a global one.
    pub vnid: u32,
}

/// An interface of OVSDB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// OpenFlow number. Absent until vswitchd has added the port.
    pub port: Option<u32>,
    /// MAC address.
    pub mac: Option<TunMac>,
    /// `external_ids:ip`: the address of the pod.
    pub ip: Option<Ipv4Addr>,
}

/// Interfaces by name, from the JSON of `ovs-vsctl --columns=name,ofport,external_ids,mac_in_use list Interface`.
///
/// # Errors
/// The text has another form.
pub fn parse_interfaces(text: &str) -> Result<BTreeMap<String, Interface>, String> {
    let table: Value =
        serde_json::from_str(text).map_err(|error| format!("the output is no JSON: {error}"))?;
    let list = |key: &str| {
        table.get(key).and_then(Value::as_array).ok_or_else(|| format!("the output has no list \"{key}\""))
    };
    let headings = list("headings")?;
    let column = |name: &str| {
        headings
            .iter()
            .position(|heading| heading == name)
            .ok_or_else(|| format!("the output has no column \"{name}\""))
    };
    let (name, ofport, ids, mac) =
        (column("name")?, column("ofport")?, column("external_ids")?, column("mac_in_use")?);
    let mut interfaces = BTreeMap::new();
    for row in list("data")? {
        let Some(name) = row.get(name).and_then(Value::as_str) else { continue };
        // An optional column is a value, or ["set", []].
        let port = row.get(ofport).and_then(Value::as_u64).and_then(|port| u32::try_from(port).ok());
        let mac = row.get(mac).and_then(Value::as_str).and_then(|mac| mac.parse().ok());
        // ["map", [["ip", "10.128.0.10"], …]]
        let entries = row.get(ids).and_then(|map| map.get(1)).and_then(Value::as_array);
        let ip = entries.into_iter().flatten().find(|entry| entry.get(0).is_some_and(|key| key == "ip"));
        let ip = ip.and_then(|entry| entry.get(1)).and_then(Value::as_str).and_then(|ip| ip.parse().ok());
        interfaces.insert(name.to_owned(), Interface { port, mac, ip });
    }
    Ok(interfaces)
}

/// Derives the facts.
///
/// # Errors
/// The bridge is not openshift-sdn's, or is not set up yet, or has the tables of another profile.
pub fn facts(
    profile: &Profile,
    interfaces: &BTreeMap<String, Interface>,
    flows: &BTreeSet<Flow>,
) -> Result<Facts, String> {
    let port = |name: &str| {
        let port = interfaces.get(name).and_then(|interface| interface.port);
        port.ok_or_else(|| format!("the bridge has no port {name}; openshift-sdn has not set it up"))
    };
    let (vxlan_port, tun_port) = (port(VXLAN)?, port(TUN)?);
    let tun_mac = interfaces.get(TUN).and_then(|interface| interface.mac);
    let tun_mac = tun_mac.ok_or_else(|| format!("{TUN} has no MAC address"))?;
    let base = || flows.iter().filter(|flow| !flow.is_ours());
    if !base().any(|flow| flow.key.table == 20) {
        return Err("table 20 is empty; openshift-sdn has not set up the bridge".into());
    }
    let by_ovsdb: BTreeMap<Ipv4Addr, u32> =
        interfaces.values().filter_map(|interface| Some((interface.ip?, interface.port?))).collect();
    let mut pods = BTreeMap::new();
    for (address, pod, next) in base().filter_map(pod_flow) {
        if next != profile.pod_next {
            return Err(format!(
                "table 20 continues in table {next}; in profile {profile} it continues in table {}",
                profile.pod_next
            ));
        }
        // A flow of another port than OVSDB's is left over from an earlier pod with this address.
        if by_ovsdb.get(&address).is_none_or(|port| *port == pod.port) {
            pods.insert(address, pod);
        }
    }
    let has_egress_ip = base().any(|flow| {
        flow.key.table == profile.egress_table
            && flow.actions.iter().any(|action| action.to_ascii_lowercase().contains("pkt_mark"))
    });
    Ok(Facts { vxlan_port, tun_port, tun_mac, pods, has_egress_ip })
}

/// openshift-sdn's flow of a pod: `table=20,priority=100,ip,in_port=3,nw_src=10.128.0.10,
/// actions=load:0x3f6450->NXM_NX_REG0[],goto_table:21`.
fn pod_flow(flow: &Flow) -> Option<(Ipv4Addr, LocalPod, u8)> {
    if flow.key.table != 20 || flow.key.get("ip").is_none() {
        return None;
    }
    let address = flow.key.get("nw_src")?.parse().ok()?;
    let port = flow.key.get("in_port")?.parse().ok()?;
    let value = |prefix: &str, suffix: &str| {
        flow.actions.iter().find_map(|action| action.strip_prefix(prefix)?.strip_suffix(suffix))
    };
    let vnid = number(value("load:", "->NXM_NX_REG0[]").or_else(|| value("set_field:", "->reg0"))?)?;
    let next = value("goto_table:", "")?.parse().ok()?;
    Some((address, LocalPod { port, vnid }, next))
}

fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::ovs::{
        flow::parse_dump,
        profile::{V3_7, V4_10},
    };

    const INTERFACES: &str = include_str!("tests/interfaces.json");

    #[test]
    fn facts_come_from_ovsdb_and_the_base_flows() {
        let interfaces = parse_interfaces(INTERFACES).unwrap();
        let flows = parse_dump(include_str!("tests/dump.txt")).unwrap();
        let facts = facts(&V3_7, &interfaces, &flows).unwrap();
        assert_eq!((facts.vxlan_port, facts.tun_port), (1, 2));
        assert_eq!(facts.tun_mac.to_string(), "26:3b:e4:1e:ba:9c");
        let pod = LocalPod { port: 3, vnid: 0x003f_6450 };
        assert_eq!(facts.pods, BTreeMap::from([([10, 128, 0, 10].into(), pod)]));
        assert!(!facts.has_egress_ip);
    }

    #[test]
    fn flow_of_an_earlier_pod_is_ignored() {
        let mut interfaces = parse_interfaces(INTERFACES).unwrap();
        interfaces.get_mut("veth0a").unwrap().port = Some(9);
        let flows = parse_dump(include_str!("tests/dump.txt")).unwrap();
        assert!(facts(&V3_7, &interfaces, &flows).unwrap().pods.is_empty());
    }

    #[test]
    fn tables_of_another_profile_are_refused() {
        let interfaces = parse_interfaces(INTERFACES).unwrap();
        let flows = parse_dump(include_str!("tests/dump.txt")).unwrap();
        let error = facts(&V4_10, &interfaces, &flows).unwrap_err();
        assert_eq!(error, "table 20 continues in table 21; in profile 4.10 it continues in table 27");
    }

    #[test]
    fn bridge_that_is_not_set_up_is_refused() {
        let interfaces = parse_interfaces(INTERFACES).unwrap();
        assert!(facts(&V3_7, &BTreeMap::new(), &BTreeSet::new()).unwrap_err().contains("no port vxlan0"));
        assert!(facts(&V3_7, &interfaces, &BTreeSet::new()).unwrap_err().contains("table 20 is empty"));
    }

    #[test]
    fn egress_ip_of_openshift_is_detected() {
        let interfaces = parse_interfaces(INTERFACES).unwrap();
        let line =
            "cookie=0x0, table=100, priority=100,ip,reg0=0x4d2 actions=set_field:0x4d2->pkt_mark,output:2\n";
        let flows = parse_dump(&format!("{}{line}", include_str!("tests/dump.txt"))).unwrap();
        assert!(facts(&V3_7, &interfaces, &flows).unwrap().has_egress_ip);
    }

    #[test]
    fn output_that_is_no_table_is_refused() {
        for text in ["", "{}", "{\"headings\":[],\"data\":[]}"] {
            assert!(parse_interfaces(text).is_err(), "{text}");
        }
        let row =
            "{\"headings\":[\"name\",\"ofport\",\"external_ids\",\"mac_in_use\"],\"data\":[[\"x\"],[]]}";
        assert_eq!(parse_interfaces(row).unwrap().len(), 1);
    }
}
