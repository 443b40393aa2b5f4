//! Settings of the kernel, as files below `/proc/sys`.

use std::{collections::BTreeMap, fs, path::PathBuf};

use common::netlink::{
    link::Link,
    socket::{Protocol, Socket},
};

use super::{Mode, plan::ARP_ANNOUNCE};
use crate::agent::driver::{Change, Error};

/// Writes the values that differ.
pub(super) fn set(desired: &BTreeMap<&'static str, &'static str>, mode: Mode) -> Result<Vec<Change>, Error> {
    let changes = desired.iter().map(|(name, value)| change(name, value, mode));
    changes.filter_map(Result::transpose).collect()
}

/// Gives tun0 the default of new interfaces. Forwarding stays: openshift-sdn needs it, too.
pub(super) fn reset() -> Result<Option<Change>, Error> {
    let (name, ours) = ARP_ANNOUNCE;
    if read(name).is_ok_and(|value| value == ours) {
        return change(name, &read("net/ipv4/conf/default/arp_announce")?, Mode::Write);
    }
    Ok(None)
}

fn change(name: &str, value: &str, mode: Mode) -> Result<Option<Change>, Error> {
    let observed = read(name)?;
    if observed == value {
        return Ok(None);
    }
    if mode == Mode::Write {
        write(name, value).map_err(|cause| error("writing", name, cause))?;
    }
    let description = format!("{}: {observed} -> {value}", name.replace('/', "."));
    Ok(Some(Change { object: "sysctl", description, is_repair: false }))
}

fn read(name: &str) -> Result<String, Error> {
    let text = fs::read_to_string(path(name)).map_err(|cause| error("reading", name, cause.to_string()))?;
    Ok(text.trim().to_owned())
}

/// Settings of interfaces are written by netlink, because `/proc/sys` is read-only in a container without privileges.
fn write(name: &str, value: &str) -> Result<(), String> {
    let of_interface = name.strip_prefix("net/ipv4/conf/").and_then(|rest| {
        let (interface, setting) = rest.split_once('/')?;
        Some((interface, Link::ipv4_setting_named(setting)?, value.parse().ok()?))
    });
    let Some((interface, setting, value)) = of_interface else {
        return fs::write(path(name), value).map_err(|cause| format!("{cause}; set it on the node"));
    };
    let mut socket = Socket::open(Protocol::Route).map_err(|cause| cause.to_string())?;
    let link = socket.link_by_name(interface).map_err(|cause| cause.to_string())?;
    let index = link.ok_or_else(|| format!("there is no interface {interface}"))?.index;
    socket.request(&Link::ipv4_setting(index, setting, value)).map_err(|cause| cause.to_string())
}

fn path(name: &str) -> PathBuf {
    PathBuf::from("/proc/sys").join(name)
}

fn error(verb: &str, name: &str, cause: String) -> Error {
    Error { operation: format!("{verb} {}", path(name).display()), cause, is_permanent: false }
}

#[cfg(test)]
mod tests {
    use common::netlink::isolated::{ip, isolated, read_only_sysctls, run};

    use super::*;

    #[test]
    fn settings_of_tun0_are_written_without_privileges_and_reset() {
        isolated(|| {
            run("sysctl", ["-qw", "net.ipv4.ip_forward=0", "net.ipv4.conf.default.arp_announce=0"]);
            ip("link add tun0 type bridge");
            read_only_sysctls();
            let desired = BTreeMap::from([ARP_ANNOUNCE]);
            let announces = || read(ARP_ANNOUNCE.0).unwrap();
            let descriptions = |changes: Vec<Change>| -> Vec<String> {
                changes.into_iter().map(|change| change.description).collect()
            };
            let expected = ["net.ipv4.conf.tun0.arp_announce: 0 -> 2"];
            assert_eq!(descriptions(set(&desired, Mode::Preview).unwrap()), expected);
            assert_eq!(announces(), "0");
            assert_eq!(descriptions(set(&desired, Mode::Write).unwrap()), expected);
            assert_eq!(announces(), "2");
            assert_eq!(set(&desired, Mode::Write).unwrap(), []);
            // Each node of openshift-sdn forwards already.
            let error = set(&BTreeMap::from([("net/ipv4/ip_forward", "1")]), Mode::Write).unwrap_err();
            assert_eq!(error.operation, "writing /proc/sys/net/ipv4/ip_forward");
            assert!(error.cause.ends_with("; set it on the node"), "{error}");
            assert_eq!(
                reset().unwrap().map(|change| change.description).as_deref(),
                Some("net.ipv4.conf.tun0.arp_announce: 2 -> 0")
            );
            assert_eq!((announces().as_str(), reset().unwrap()), ("0", None));
            ip("link delete tun0");
            assert_eq!(reset().unwrap(), None, "without openshift-sdn");
        });
    }
}
