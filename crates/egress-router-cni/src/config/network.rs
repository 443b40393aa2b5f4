//! The network configuration on standard input.

use ipnet::IpNet;
use serde_json::Value;

use super::destinations::not_a_host;
use super::interface::{self, InterfaceType};
use super::ip::Ip;
use super::ip_config::IpConfig;
use super::pod_ip::PodIp;
use crate::cni::call::{NAME, is_name};
use crate::cni::field::{Dict, Field};
use crate::cni::{self, Call, Code, Command, Error};

/// A parsed and validated configuration.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Network {
    /// `cniVersion`.
    pub version: cni::Version,
    /// `name`. For DEL, an invalid one counts as empty.
    pub name: String,
    /// `interfaceType`; none: the platform's default.
    pub interface_type: Option<InterfaceType>,
    /// `interfaceArgs.mode` as text, because the type may not be known yet.
    pub mode: Option<String>,
    /// `interfaceArgs.master`.
    pub master: Option<String>,
    /// `interfaceArgs.mtu`, bytes.
    pub mtu: Option<u32>,
    /// `interfaceArgs.name`: the interface's name if this plugin is chained after the one that created `CNI_IFNAME`.
    pub chained_name: Option<String>,
    /// Exactly one of `ip`, `podIP`, `ipConfig`.
    pub source: Source,
    /// `clusterNetworks` and `serviceNetworks`: reached through the primary interface, in addition to those of the settings.
    pub cluster_networks: Vec<IpNet>,
    /// `runtimeConfig.mac`, else `args.cni.mac`, else `MAC` of `CNI_ARGS`.
    pub mac: Option<[u8; 6]>,
    /// `runtimeConfig.ips`, else `args.cni.ips`, else `IP` of `CNI_ARGS`.
    pub requested: Vec<IpNet>,
    /// Whether only `CNI_ARGS` has `mac`. libcni passes `CNI_ARGS` to each plugin of a list: it is meant for the plugin that creates
    /// `CNI_IFNAME`.
    pub mac_by_arguments: bool,
    /// The same of `requested`.
    pub requested_by_arguments: bool,
    /// `prevResult`.
    pub previous: Option<cni::result::Result>,
    /// `cni.dev/valid-attachments`, or the older `cni.dev/attachments`: `containerID` and `ifname` of each; none if neither key exists.
    /// `null` is an empty list.
    pub valid_attachments: Option<Vec<(String, String)>>,
    /// `dns`, returned unchanged.
    pub dns: Option<serde_json::Value>,
    /// `log_file`.
    pub log_file: Option<std::path::PathBuf>,
    /// `log_level` as text.
    pub log_level: Option<String>,
}

/// The source of the addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Source {
    /// `ip`.
    Ip(Ip),
    /// `podIP`.
    PodIp(PodIp),
    /// `ipConfig`.
    IpConfig(IpConfig),
    /// DEL and GC do not read it: they use records, and must not fail because of a changed configuration, because the runtime retries a refused
    /// DEL for ever.
    #[default]
    Unread,
}

impl Network {
    /// Parses the configuration on standard input for the operation of `call`.
    ///
    /// ADD, CHECK and STATUS read and validate everything. DEL and GC must also work with an invalid configuration: they read only what
    /// they need, an unreadable value counts as unset, and their `source` is [`Source::Unread`]. Unknown keys at the top level are ignored,
    /// because runtimes add some. Whether the version has the operation is checked elsewhere ([`cni::Version::has`]).
    ///
    /// # Errors
    ///
    /// Code 6 for invalid JSON or a wrong type, 1 for an unsupported version (except for DEL), 2 for an unknown key in one of the plugin's
    /// dictionaries, 7 for a value that is not allowed. Messages have the field, its value and the allowed values.
    pub fn parse(stdin: &[u8], call: &Call) -> Result<Self, Error> {
        let value: Value = serde_json::from_slice(stdin).map_err(|error| {
            Error::new(Code::Decode, "the network configuration on standard input is not JSON").details(error)
        })?;
        let dict = Field::new("", &value).dict().map_err(|_| {
            Error::new(Code::Decode, "the network configuration on standard input must be a dictionary")
        })?;
        let version = || cni::Version::parse(dict.text("cniVersion")?.unwrap_or_default());
        if call.command == Command::Del {
            // Container and interface identify the attachment, and DEL is the same in all versions. So a missing or changed version must
            // not make DEL fail.
            let version = version().unwrap_or_default();
            return Ok(Self::for_teardown(&dict, version, name(&dict).unwrap_or_default()));
        }
        let version = version()?;
        match call.command {
            // If the list cannot be read, the attachments must not count as invalid.
            Command::Gc => {
                let for_teardown = Self::for_teardown(&dict, version, name(&dict)?);
                Ok(Self { valid_attachments: attachments(&dict)?, ..for_teardown })
            }
            Command::Add | Command::Del | Command::Check | Command::Status | Command::Version => {
                Self::whole(&dict, version, name(&dict)?, call)
            }
        }
    }

    /// Whether the previous result lists this interface in the pod.
    #[must_use]
    pub fn was_made_before(&self, interface: &str) -> bool {
        let mut listed = self.previous.iter().flat_map(|previous| &previous.interfaces);
        listed.any(|listed| listed.name == interface && listed.sandbox.is_some())
    }

    fn whole(dict: &Dict<'_>, version: cni::Version, name: String, call: &Call) -> Result<Self, Error> {
        if dict.text("type")?.is_none() {
            return Err(Error::invalid_config("type is missing: it must be the name of this program"));
        }
        let source = Source::parse(dict)?;
        let previous =
            dict.get("prevResult").map(|field| cni::result::Result::parse(field.value)).transpose()?;
        if previous.is_none() && call.command == Command::Check {
            return Err(Error::invalid_config(
                "prevResult is missing: CHECK compares with the result of ADD",
            ));
        }
        let mut network = Self {
            version,
            name,
            source,
            previous,
            // The log checks the path; an invalid one does not make the call fail.
            log_file: dict.text("log_file")?.map(Into::into),
            log_level: dict.text("log_level")?.map(str::to_owned),
            ..Self::default()
        };
        network.interface(dict)?;
        network.cluster_networks = networks(dict, "clusterNetworks")?;
        network.cluster_networks.extend(networks(dict, "serviceNetworks")?);
        network.requested_by_pod(dict, call)?;
        if let Some(dns) = dict.get("dns") {
            dns.dict()?;
            network.dns = Some(dns.value.clone());
        }
        Ok(network)
    }

    fn for_teardown(dict: &Dict<'_>, version: cni::Version, name: String) -> Self {
        let args = dict.get("interfaceArgs").and_then(|field| field.dict().ok());
        Self {
            version,
            name,
            chained_name: args.and_then(|args| interface::name(&args, "name").ok().flatten()),
            previous: dict.get("prevResult").and_then(|field| cni::result::Result::parse(field.value).ok()),
            log_file: dict.text("log_file").ok().flatten().map(Into::into),
            log_level: dict.text("log_level").ok().flatten().map(str::to_owned),
            ..Self::default()
        }
    }

    fn interface(&mut self, dict: &Dict<'_>) -> Result<(), Error> {
        if let Some(field) = dict.get("interfaceType") {
            self.interface_type = InterfaceType::parse(&field)?;
        }
        if let Some(field) = dict.get("interfaceArgs") {
            let args = field.dict()?;
            args.only(&["mode", "master", "mtu", "name"])?;
            self.mode = args.text("mode")?.map(str::to_owned);
            self.master = interface::master(&args)?;
            self.mtu = interface::mtu(&args)?;
            self.chained_name = interface::name(&args, "name")?;
        }
        if let Some(interface_type) = self.interface_type {
            interface::kind(interface_type, self.mode.as_deref())?;
        }
        Ok(())
    }

    /// The pod's requests, from capabilities, `args.cni` or `CNI_ARGS`: the first that is set is used.
    fn requested_by_pod(&mut self, dict: &Dict<'_>, call: &Call) -> Result<(), Error> {
        let runtime = inside(dict, "runtimeConfig")?;
        let args = match inside(dict, "args")? {
            Some(args) => inside(&args, "cni")?,
            None => None,
        };
        for asked in [runtime, args].into_iter().flatten() {
            if let (None, Some(field), Some(text)) = (self.mac, asked.get("mac"), asked.text("mac")?) {
                self.mac = Some(mac(text).ok_or_else(|| field.invalid(MAC))?);
            }
            if self.requested.is_empty() {
                self.requested =
                    asked.list("ips")?.iter().map(|field| pod_address(field)).collect::<Result<_, _>>()?;
            }
        }
        if let (None, Some(text)) = (self.mac, &call.args.mac) {
            self.mac = Some(mac(text).ok_or_else(|| {
                Error::new(Code::InvalidEnvironment, format!("MAC in CNI_ARGS is {text:?}: {MAC}"))
            })?);
            self.mac_by_arguments = true;
        }
        if let (true, Some(text)) = (self.requested.is_empty(), &call.args.ip) {
            self.requested_by_arguments = true;
            // Several, as in other plugins.
            for text in text.split(',') {
                let value = Value::from(text);
                let field = Field::new("IP in CNI_ARGS", &value);
                let asked =
                    pod_address(&field).map_err(|error| Error { code: Code::InvalidEnvironment, ..error })?;
                self.requested.push(asked);
            }
        }
        Ok(())
    }
}

impl Source {
    /// Exactly one of the three sources.
    fn parse(dict: &Dict<'_>) -> Result<Self, Error> {
        match (dict.get("ip"), dict.get("podIP"), dict.get("ipConfig")) {
            (Some(field), None, None) => Ip::parse(&field).map(Self::Ip),
            (None, Some(field), None) => PodIp::parse(&field).map(Self::PodIp),
            (None, None, Some(field)) => IpConfig::parse(&field).map(Self::IpConfig),
            (ip, pod_ip, ip_config) => {
                let given = [("ip", ip), ("podIP", pod_ip), ("ipConfig", ip_config)];
                let given: Vec<_> =
                    given.iter().filter(|(_, field)| field.is_some()).map(|(key, _)| *key).collect();
                let given = if given.is_empty() { "none".to_owned() } else { given.join(" and ") };
                Err(Error::invalid_config(format!(
                    "of ip, podIP and ipConfig {given} is given: it must be exactly one"
                )))
            }
        }
    }
}

const MAC: &str = "it must be a unicast MAC address (02:00:5e:10:00:01), not all zeros";

fn mac(text: &str) -> Option<[u8; 6]> {
    interface::mac_bytes(text).filter(|octets| octets[0] & 1 == 0 && *octets != [0; 6])
}

fn inside<'a>(dict: &Dict<'a>, key: &str) -> Result<Option<Dict<'a>>, Error> {
    dict.get(key).map(|field| field.dict()).transpose()
}

fn pod_address(field: &Field<'_>) -> Result<IpNet, Error> {
    let address = field.cidr()?;
    match not_a_host(address.addr()) {
        Some(kind) => {
            Err(field.invalid(format_args!("it is {kind}: a pod needs a unicast address of its own")))
        }
        None => Ok(address),
    }
}

fn name(dict: &Dict<'_>) -> Result<String, Error> {
    let name = dict.checked("name", |name| (!is_name(name)).then_some(NAME))?;
    let missing = || Error::invalid_config("name is missing: it must be the name of the network");
    name.map(str::to_owned).ok_or_else(missing)
}

/// A list of networks, masked. None has prefix length 0, because then nothing would use the new interface.
pub(super) fn networks(dict: &Dict<'_>, key: &str) -> Result<Vec<IpNet>, Error> {
    dict.list(key)?
        .iter()
        .map(|field| {
            let network = field.cidr()?.trunc();
            if network.prefix_len() == 0 {
                return Err(field.invalid("a default route is not allowed here: list the cluster's networks"));
            }
            Ok(network)
        })
        .collect()
}

/// The attachments that a runtime knows. The specification (1.1.0, GC) has a list, which may be empty. Go's libcni writes `null`
/// for it: `GCNetworkList` (libcni/api.go) passes the caller's slice as it is, and encoding/json writes a nil slice as
/// `null`; it has by then called DEL for every attachment of the network in its own cache. Called without
/// arguments it sets neither key: then the valid attachments are unknown.
fn attachments(dict: &Dict<'_>) -> Result<Option<Vec<(String, String)>>, Error> {
    const KEYS: [&str; 2] = ["cni.dev/valid-attachments", "cni.dev/attachments"];
    let Some(list) = KEYS.into_iter().find_map(|key| dict.get(key)) else {
        let present = KEYS.into_iter().any(|key| dict.entries.contains_key(key));
        return Ok(present.then(Vec::new));
    };
    let parse = |field: &Field<'_>| {
        let attachment = field.dict()?;
        let (Some(container_id), Some(ifname)) =
            (attachment.text("containerID")?, attachment.text("ifname")?)
        else {
            return Err(field.invalid("it must have a containerID and an ifname"));
        };
        Ok((container_id.to_owned(), ifname.to_owned()))
    };
    list.list()?.iter().map(parse).collect::<Result<_, _>>().map(Some)
}

#[cfg(test)]
mod tests;
