//! The node's settings: a file that only its administrator writes. A network configuration may come from a tenant.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ipnet::IpNet;
use serde_json::Value;

use super::interface::{Kind, kind_named};
use super::network::networks;
use crate::cni::field::{Dict, Field};
use crate::cni::{Code, Error};

/// The file, unless `EGRESS_ROUTER_SETTINGS` names another one. It is optional.
pub const PATH: &str = "/etc/cni/net.d/egress-router.d/settings.json";

/// Validated settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `kubeconfig`: the credentials for reading ConfigMaps.
    pub kubeconfig: PathBuf,
    /// `configMapNamespaces`: namespaces other than the pod's that `ipConfig` may name; `*`: all.
    pub config_map_namespaces: Vec<String>,
    /// `allowRequestedIPs`: whether a pod may request its address (`runtimeConfig.ips`).
    pub allow_requested_ips: bool,
    /// `allowedMasters`: the interfaces of the node that pods may have an interface on; none: all. An empty list allows nothing.
    pub allowed_masters: Option<Vec<String>>,
    /// `allowedModes`: the modes that a network may use (`bridge`, `l2` …); none: all.
    pub allowed_modes: Option<Vec<Kind>>,
    /// `clusterNetworks` and `serviceNetworks`: reached through the primary interface.
    pub cluster_networks: Vec<IpNet>,
    /// `platform`: `auto` (default), `aws` or `none`.
    pub platform: Platform,
    /// `stateDirectory`, for records that survive a reboot (Elastic IPs).
    pub state_directory: PathBuf,
    /// `runDirectory`, for records that are valid until a reboot.
    pub run_directory: PathBuf,
    /// `aws.*`.
    pub aws: Aws,
}

/// The platform of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Platform {
    /// Detected by the firmware, then by the metadata service.
    #[default]
    Auto,
    /// An EC2 instance.
    Aws,
    /// Anything else.
    None,
}

/// `aws`: endpoints and limits. Only here, never in a network configuration: requests to them carry credentials.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Aws {
    /// `ec2Endpoint`, else `AWS_ENDPOINT_URL_EC2`, else `AWS_ENDPOINT_URL`, else the region's.
    pub ec2_endpoint: Option<String>,
    /// `metadataEndpoint`, else `AWS_EC2_METADATA_SERVICE_ENDPOINT`, else `http://169.254.169.254`.
    pub metadata_endpoint: Option<String>,
    /// `allowReassociation`: whether an associated address may be moved. Default true, because the pod may have moved.
    pub allow_reassociation: Option<bool>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            kubeconfig: "/etc/cni/net.d/egress-router.d/kubeconfig".into(),
            config_map_namespaces: Vec::new(),
            allow_requested_ips: false,
            allowed_masters: None,
            allowed_modes: None,
            cluster_networks: Vec::new(),
            platform: Platform::Auto,
            state_directory: "/var/lib/cni/egress-router".into(),
            run_directory: "/run/egress-router".into(),
            aws: Aws::default(),
        }
    }
}

impl Settings {
    /// Reads the file that `EGRESS_ROUTER_SETTINGS` of the environment `get` names, otherwise [`PATH`]; defaults without a file.
    ///
    /// # Errors
    ///
    /// Code 5: it cannot be read; otherwise as [`Self::parse`]. The message has the file's name.
    pub fn load(get: impl Fn(&str) -> Option<OsString>) -> Result<Self, Error> {
        let (settings, wrong) = Self::for_teardown(get);
        wrong.map_or(Ok(settings), Err)
    }

    /// For DEL and GC, which use both directories and both endpoints of AWS: the readable values, and the error of the file, if any. A mistake
    /// in the file must not block the deletion of a pod: an unreadable value keeps its default.
    ///
    /// The state in the pod is recorded in its own table. An Elastic IP whose record is not found is released by the next ADD with an Elastic
    /// IP on this node, because the pod's namespace is gone then.
    pub fn for_teardown(get: impl Fn(&str) -> Option<OsString>) -> (Self, Option<Error>) {
        let path = file(&get);
        let (settings, wrong) = match text(&path) {
            Ok(None) => (Self::default(), None),
            Ok(Some(text)) => {
                let (settings, wrong) = Self::read(&text);
                (settings, wrong.map(|error| in_file(&path, error)))
            }
            Err(error) => (Self::default(), Some(error)),
        };
        (settings.with_environment(get), wrong)
    }

    fn with_environment(mut self, get: impl Fn(&str) -> Option<OsString>) -> Self {
        let variable = |name: &str| {
            get(name).and_then(|value| value.into_string().ok()).filter(|value| !value.is_empty())
        };
        let aws = &mut self.aws;
        aws.ec2_endpoint = aws
            .ec2_endpoint
            .take()
            .or_else(|| variable("AWS_ENDPOINT_URL_EC2"))
            .or_else(|| variable("AWS_ENDPOINT_URL"));
        aws.metadata_endpoint =
            aws.metadata_endpoint.take().or_else(|| variable("AWS_EC2_METADATA_SERVICE_ENDPOINT"));
        self
    }

    /// Parses the file's text. Missing values keep their defaults.
    ///
    /// # Errors
    ///
    /// Code 6 for invalid JSON or a wrong type, 2 for an unknown key, 7 for a value that is not allowed.
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        let (settings, wrong) = Self::read(text);
        wrong.map_or(Ok(settings), Err)
    }

    /// The readable values of a text, and its first error. Other values keep their defaults.
    fn read(text: &[u8]) -> (Self, Option<Error>) {
        let mut settings = Self::default();
        let value: Value = match serde_json::from_slice(text) {
            Ok(value) => value,
            Err(error) => return (settings, Some(Error::new(Code::Decode, "not JSON").details(error))),
        };
        // The message has the file's name; paths begin at its top level.
        let Ok(dict) = Field::new("", &value).dict() else {
            return (settings, Some(Error::new(Code::Decode, "it must be a dictionary")));
        };
        let mut wrong = dict
            .only(&[
                "kubeconfig",
                "configMapNamespaces",
                "allowRequestedIPs",
                "allowedMasters",
                "allowedModes",
                "clusterNetworks",
                "serviceNetworks",
                "platform",
                "stateDirectory",
                "runDirectory",
                "aws",
            ])
            .err();
        let string = |field: &Field<'_>| field.string().map(str::to_owned);
        let mode = |field: &Field<'_>| {
            kind_named(field.string()?)
                .ok_or_else(|| field.invalid("it must be bridge, private, vepa, passthru, l2, l3 or l3s"))
        };
        let cluster_networks = networks(&dict, "clusterNetworks").and_then(|mut all| {
            all.extend(networks(&dict, "serviceNetworks")?);
            Ok(Some(all))
        });
        set(&mut settings.cluster_networks, cluster_networks, &mut wrong);
        set(&mut settings.kubeconfig, path(&dict, "kubeconfig"), &mut wrong);
        set(&mut settings.config_map_namespaces, list(&dict, "configMapNamespaces", string), &mut wrong);
        set(&mut settings.allow_requested_ips, boolean(&dict, "allowRequestedIPs"), &mut wrong);
        set(&mut settings.allowed_masters, list(&dict, "allowedMasters", string).map(Some), &mut wrong);
        set(&mut settings.allowed_modes, list(&dict, "allowedModes", mode).map(Some), &mut wrong);
        set(&mut settings.platform, platform(&dict), &mut wrong);
        set(&mut settings.state_directory, path(&dict, "stateDirectory"), &mut wrong);
        set(&mut settings.run_directory, path(&dict, "runDirectory"), &mut wrong);
        match dict.get("aws").map(|field| field.dict()).transpose() {
            Ok(Some(dict)) => settings.aws.read(&dict, &mut wrong),
            Ok(None) => {}
            Err(error) => _ = wrong.get_or_insert(error),
        }
        (settings, wrong)
    }
}

impl Aws {
    fn read(&mut self, dict: &Dict<'_>, wrong: &mut Option<Error>) {
        if let Err(error) = dict.only(&["ec2Endpoint", "metadataEndpoint", "allowReassociation"]) {
            let _ = wrong.get_or_insert(error);
        }
        set(&mut self.ec2_endpoint, endpoint(dict, "ec2Endpoint").map(Some), wrong);
        set(&mut self.metadata_endpoint, endpoint(dict, "metadataEndpoint").map(Some), wrong);
        set(&mut self.allow_reassociation, boolean(dict, "allowReassociation").map(Some), wrong);
    }
}

/// Replaces the default by the value, if there is one. `wrong` is the first error.
fn set<T>(setting: &mut T, read: Result<Option<T>, Error>, wrong: &mut Option<Error>) {
    match read {
        Ok(Some(value)) => *setting = value,
        Ok(None) => {}
        Err(error) => _ = wrong.get_or_insert(error),
    }
}

/// The path of the file.
fn file(get: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let named = get("EGRESS_ROUTER_SETTINGS").filter(|path| !path.is_empty());
    named.map_or_else(|| PathBuf::from(PATH), PathBuf::from)
}

/// Its text; none if it does not exist.
fn text(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match std::fs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let message = format!("the node's settings {} cannot be read", path.display());
            Err(Error::new(Code::Io, message).details(error))
        }
    }
}

fn in_file(path: &Path, error: Error) -> Error {
    Error { message: format!("the node's settings {}: {}", path.display(), error.message), ..error }
}

fn list<T>(
    dict: &Dict<'_>,
    key: &str,
    parse: impl Fn(&Field<'_>) -> Result<T, Error>,
) -> Result<Option<Vec<T>>, Error> {
    dict.get(key).map(|field| field.list()?.iter().map(&parse).collect()).transpose()
}

fn platform(dict: &Dict<'_>) -> Result<Option<Platform>, Error> {
    let Some(field) = dict.get("platform") else { return Ok(None) };
    Ok(Some(match field.string()? {
        "auto" => Platform::Auto,
        "aws" => Platform::Aws,
        "none" => Platform::None,
        _ => return Err(field.invalid("it must be auto, aws or none")),
    }))
}

fn boolean(dict: &Dict<'_>, key: &str) -> Result<Option<bool>, Error> {
    dict.get(key).map(|field| field.boolean()).transpose()
}

/// An absolute path: a runtime's working directory is unknown.
fn path(dict: &Dict<'_>, key: &str) -> Result<Option<PathBuf>, Error> {
    let violated =
        |text: &str| (!text.starts_with('/') || text.contains('\0')).then_some("it must be an absolute path");
    Ok(dict.checked(key, violated)?.map(PathBuf::from))
}

fn endpoint(dict: &Dict<'_>, key: &str) -> Result<Option<String>, Error> {
    let is_url = |text: &str| text.starts_with("https://") || text.starts_with("http://");
    let violated = |text: &str| (!is_url(text)).then_some("it must begin with https:// or http://");
    Ok(dict.checked(key, violated)?.map(str::to_owned))
}

#[cfg(test)]
mod tests;
