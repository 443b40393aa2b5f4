//! The record of an attachment in its nf_tables table: its identity, and what DEL needs to restore the pod.
//!
//! Each statement fits into a rule's comment ([`LIMIT`]), and short ones share a comment, because each comment needs a rule. A route that
//! does not fit (multipath) is shortened; its other attributes are in its copy in the primary table.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use common::netlink::route::{Device, Route};
use ipnet::IpNet;

use crate::nftables::comment;
use crate::observe::Pod;

use super::{Family, Identity};

/// Separator of the statements of a line. It has blanks, which no name contains.
const BETWEEN: &str = "  ";

/// Bytes of a statement: what a rule's user data holds (NFT_USERDATA_MAXLEN is 256) less its own header and the final zero.
pub const LIMIT: usize = 250;

/// Maximum length of an identifier in a line. Longer ones are cut, both when written and when compared.
const IDENTIFIER: usize = 200;

/// A record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TableRecord {
    /// `CNI_CONTAINERID`, cut.
    pub container_id: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// The network's name, cut.
    pub network: String,
    /// See [`crate::names::SLOTS`].
    pub slot: u32,
    /// Greater than that of all earlier attachments of the pod: the newest has the greatest.
    pub order: u32,
    /// The primary interface, for each family that has one.
    pub primary: BTreeMap<Family, Primary>,
    /// Families with addresses.
    pub families: Vec<Family>,
    /// Previous default routes, which DEL of the last attachment restores.
    pub defaults: Vec<Saved>,
    /// Routes through the primary interface that were added to main for attachments.
    pub routes: Vec<Saved>,
    /// Sysctls of the pod that were changed for attachments, in order.
    pub sysctls: Vec<Changed>,
}

/// The primary interface, for one family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Primary {
    /// Its name.
    pub interface: String,
    /// Whether the primary table has a default route.
    pub default: bool,
}

/// A route with its device's name, because a re-created link has another index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    /// Without device.
    pub route: Route,
    /// Name of its device.
    pub device: Option<String>,
}

/// A sysctl that was changed for an attachment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// As in [`super::Step::Sysctl`].
    pub name: Vec<String>,
    /// Its new value.
    pub value: String,
    /// Its value before any attachment.
    pub original: String,
}

impl TableRecord {
    /// Whether this is the record of `identity`, by container and `CNI_IFNAME`, which are unique. The network may have been renamed.
    #[must_use]
    pub fn belongs_to(&self, identity: &Identity) -> bool {
        self.container_id == cut(&identity.container_id) && self.ifname == identity.ifname
    }

    /// Whether its network is `name`.
    #[must_use]
    pub fn is_of_network(&self, name: &str) -> bool {
        self.network == cut(name)
    }

    /// A text with its identity.
    #[must_use]
    pub fn with_identity(mut self, identity: &Identity) -> Self {
        self.container_id = cut(&identity.container_id).to_owned();
        self.ifname.clone_from(&identity.ifname);
        self.network = cut(&identity.network).to_owned();
        self
    }

    /// Its lines.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("slot {} order {}", self.slot, self.order)];
        let names = [("container", &self.container_id), ("ifname", &self.ifname), ("network", &self.network)];
        let given = names.iter().filter(|(_, name)| !name.is_empty());
        lines.extend(given.map(|(key, name)| format!("{key} {name}")));
        lines.extend(self.families.iter().map(|family| format!("family {}", digit(*family))));
        lines.extend(self.primary.iter().map(|(family, primary)| {
            let default = if primary.default { " default" } else { "" };
            format!("home {} {}{default}", digit(*family), primary.interface)
        }));
        lines.extend(self.defaults.iter().map(|saved| saved.line("default")));
        lines.extend(self.routes.iter().map(|saved| saved.line("route")));
        lines.extend(self.sysctls.iter().map(|changed| {
            format!("sysctl {} {} {}", changed.name.join("/"), changed.value, changed.original)
        }));
        packed(lines)
    }

    /// Parses lines. Unknown statements are ignored, so that a record of a later version can still be used. None without a slot.
    #[must_use]
    pub fn parse<S: AsRef<str>>(lines: &[S]) -> Option<Self> {
        let mut record = Self::default();
        for statement in lines.iter().flat_map(|line| line.as_ref().split(BETWEEN)) {
            let Some((key, rest)) = statement.trim().split_once(' ') else { continue };
            let words: Vec<&str> = rest.split(' ').collect();
            match (key, words.as_slice()) {
                ("slot", [slot, "order", order]) => {
                    record.slot = slot.parse().unwrap_or(0);
                    record.order = order.parse().unwrap_or(0);
                }
                ("container", _) => rest.clone_into(&mut record.container_id),
                ("ifname", _) => rest.clone_into(&mut record.ifname),
                ("network", _) => rest.clone_into(&mut record.network),
                ("family", [digit]) => record.families.extend(family(digit)),
                ("home", [digit, interface, more @ ..]) => {
                    let primary =
                        Primary { interface: (*interface).to_owned(), default: more == ["default"] };
                    record.primary.extend(family(digit).map(|family| (family, primary)));
                }
                ("default", words) => record.defaults.extend(Saved::parse(words)),
                ("route", words) => record.routes.extend(Saved::parse(words)),
                ("sysctl", [name, value, original]) => record.sysctls.push(Changed {
                    name: name.split('/').map(str::to_owned).collect(),
                    value: (*value).to_owned(),
                    original: (*original).to_owned(),
                }),
                _ => {}
            }
        }
        (1..=crate::names::SLOTS).contains(&record.slot).then_some(record)
    }
}

/// All records of a pod that can be read, by interface.
#[must_use]
pub fn all(pod: &Pod) -> BTreeMap<String, TableRecord> {
    let parsed = pod
        .attachments
        .iter()
        .map(|(interface, lines)| Some((interface.clone(), TableRecord::parse(lines)?)));
    parsed.flatten().collect()
}

impl Saved {
    /// Records an observed route.
    #[must_use]
    pub fn of(route: &Route, pod: &Pod) -> Self {
        let device = match route.device {
            Some(Device::Index(index)) => {
                pod.links.iter().find(|link| link.index == index).map(|link| link.name.clone())
            }
            _ => None,
        };
        Self { route: Route { device: None, ..route.clone() }, device }
    }

    /// The route to write; none if its device no longer exists.
    #[must_use]
    pub fn route(&self, pod: &Pod) -> Option<Route> {
        let device = match &self.device {
            Some(name) => Some(Device::Index(pod.links.iter().find(|link| link.name == *name)?.index)),
            None => None,
        };
        Some(Route { device, ..self.route.clone() })
    }

    /// Whether both are the same route. Several routes may have the same destination, TOS and metric.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        super::route::same(&self.route, &other.route) && self.device == other.device
    }

    fn line(&self, key: &str) -> String {
        let route = &self.route;
        let mut line = format!("{key} {}", route.destination);
        let mut add = |key: &str, value: Option<String>| {
            if let Some(value) = value {
                // Writing to a String cannot fail.
                let _ = write!(line, " {key} {value}");
            }
        };
        let number = |value: u32| (value != 0).then(|| value.to_string());
        add("via", route.gateway.map(|gateway| gateway.to_string()));
        add("dev", self.device.clone());
        add("src", route.source.map(|source| source.to_string()));
        add("metric", route.metric.map(|metric| metric.to_string()));
        add("table", (route.table != super::route::MAIN).then(|| route.table.to_string()));
        add("proto", number(route.protocol.into()));
        add("scope", number(route.scope.into()));
        add("kind", (route.kind != super::route::UNICAST).then(|| route.kind.to_string()));
        add("tos", number(route.tos.into()));
        add("flags", number(route.flags));
        for (kind, payload) in &route.rest {
            let mut word = format!(" rest {kind}:");
            for byte in payload {
                let _ = write!(word, "{byte:02x}");
            }
            if line.len() + word.len() <= LIMIT {
                line.push_str(&word);
            }
        }
        line
    }

    fn parse(words: &[&str]) -> Option<Self> {
        let (destination, pairs) = words.split_first()?;
        let mut saved =
            Self { route: super::route::unicast(destination.parse::<IpNet>().ok()?), device: None };
        let route = &mut saved.route;
        route.protocol = 0;
        for pair in pairs.chunks_exact(2) {
            let [key, value] = pair else { continue };
            match *key {
                "via" => route.gateway = Some(value.parse().ok()?),
                "dev" => saved.device = Some((*value).to_owned()),
                "src" => route.source = Some(value.parse().ok()?),
                "metric" => route.metric = Some(value.parse().ok()?),
                "table" => route.table = value.parse().ok()?,
                "proto" => route.protocol = value.parse().ok()?,
                "scope" => route.scope = value.parse().ok()?,
                "kind" => route.kind = value.parse().ok()?,
                "tos" => route.tos = value.parse().ok()?,
                "flags" => route.flags = value.parse().ok()?,
                "rest" => route.rest.push(attribute(value)?),
                _ => {}
            }
        }
        Some(saved)
    }
}

/// Joins statements to lines that fit into a comment.
fn packed(statements: Vec<String>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::with_capacity(statements.len());
    for statement in statements {
        match lines.last_mut() {
            Some(line) if line.len() + BETWEEN.len() + statement.len() <= comment::LIMIT => {
                line.push_str(BETWEEN);
                line.push_str(&statement);
            }
            _ => lines.push(statement),
        }
    }
    lines
}

fn attribute(text: &str) -> Option<(u16, Vec<u8>)> {
    let (kind, hex) = text.split_once(':')?;
    let digits = hex
        .as_bytes()
        .chunks_exact(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    Some((kind.parse().ok()?, digits.collect::<Option<_>>()?))
}

/// An identifier, cut to its maximum length.
fn cut(text: &str) -> &str {
    text.get(..IDENTIFIER).unwrap_or(text)
}

fn digit(family: Family) -> char {
    match family {
        Family::V4 => '4',
        Family::V6 => '6',
    }
}

fn family(digit: &str) -> Option<Family> {
    match digit {
        "4" => Some(Family::V4),
        "6" => Some(Family::V6),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
