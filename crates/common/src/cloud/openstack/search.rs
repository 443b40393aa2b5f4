//! The places of a credential: the files and variables of OpenStack's own clients, and a Secret.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::cloud_conf;
use super::clouds_yaml::{self, Texts, filled};
use super::credentials::{ConfigError, Credentials, Fields};
use super::endpoint_override::Settings;
use super::kubernikus;

/// The name under which the variables of the environment are a cloud.
const ENVIRONMENT: &str = "envvars";

impl Credentials {
    /// From the text of a `clouds.yaml`, with that of a `secure.yaml` laid over it. `cloud`: None for the only one, or
    /// `openstack`. A file that `cacert` names is read.
    ///
    /// # Errors
    /// When there is no such cloud, it lacks what a login needs, or asks for what is not supported: profiles of vendors, client
    /// certificates, other ways to log in than by application credential, password or token.
    pub fn from_clouds_yaml(
        clouds: &str,
        secure: Option<&str>,
        cloud: Option<&str>,
    ) -> Result<Credentials, ConfigError> {
        let secure = secure.map(|text| ("secure.yaml", text));
        let texts = Texts { place: "clouds.yaml", clouds, secure, public: None };
        clouds_yaml::parse(&texts, cloud, None, None, &read_file)
    }

    /// From a Secret as Cluster API's provider has it: key `clouds.yaml`, where `cloud` names the cloud (empty for the only
    /// one, or `openstack`), and key `cacert` with the authorities in PEM; keys `secure.yaml` and `clouds-public.yaml` as the
    /// files of these names. Or key `cloud.conf`, or the keys of a Kluster of Kubernikus (`openstack-auth-url`, ...): both are one
    /// cloud, whatever `cloud` says. `region` goes before the region that is written there.
    ///
    /// # Errors
    /// As [`Credentials::from_clouds_yaml`]; also when the text names a file: a Secret's owner may not choose what we read.
    pub fn from_secret(
        data: &BTreeMap<String, Vec<u8>>,
        cloud: &str,
        region: Option<&str>,
    ) -> Result<Credentials, ConfigError> {
        let text = |key: &str| match data.get(key).map(|value| std::str::from_utf8(value)) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text)),
            Some(Err(_)) => Err(ConfigError::new(format!("key {key}"), "is no text in UTF-8")),
        };
        let read =
            |_: &str| Err("no file is read for a Secret: put the authorities into its key cacert".to_owned());
        let authorities = data.get("cacert").map(Vec::as_slice).filter(|pem| !pem.trim_ascii().is_empty());
        if let Some(clouds) = text("clouds.yaml")? {
            let secure = text("secure.yaml")?.map(|text| ("key secure.yaml", text));
            let public = text("clouds-public.yaml")?.map(|text| ("key clouds-public.yaml", text));
            let texts = Texts { place: "key clouds.yaml", clouds, secure, public };
            let cloud = Some(cloud).filter(|cloud| !cloud.is_empty());
            return clouds_yaml::parse(&texts, cloud, region, authorities, &read);
        }
        if let Some(conf) = text("cloud.conf")? {
            return Ok(cloud_conf::parse(conf, region, authorities, &read)?.credentials);
        }
        if data.contains_key(kubernikus::AUTH_URL) {
            return kubernikus::parse(&text, region, authorities);
        }
        let keys: Vec<&str> = data.keys().map(String::as_str).collect();
        Err(ConfigError::new(
            "Secret",
            format!(
                "has no key clouds.yaml, cloud.conf or {}; its keys are {}",
                kubernikus::AUTH_URL,
                keys.join(", ")
            ),
        ))
    }

    /// As OpenStack's own clients look for one: the cloud is `cloud`, else `OS_CLOUD`, else the `OS_*` variables if there is
    /// `OS_AUTH_URL`, else the only one or `openstack`. The file is `OS_CLIENT_CONFIG_FILE`, else the first `clouds.yaml` (or
    /// `.yml`) of `./`, `~/.config/openstack` and `/etc/openstack`; so are `secure.yaml` (`OS_CLIENT_SECURE_FILE`) and
    /// `clouds-public.yaml` (`OS_CLIENT_VENDOR_FILE`), which has the profiles that clouds name.
    ///
    /// # Errors
    /// As [`Credentials::from_clouds_yaml`], and when nothing is found.
    pub fn find(cloud: Option<&str>) -> Result<Credentials, ConfigError> {
        find(cloud, &|name| std::env::var(name).ok(), &|path| std::fs::read(path))
    }
}

type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;
type Disk<'a> = &'a dyn Fn(&Path) -> std::io::Result<Vec<u8>>;

fn find(cloud: Option<&str>, variable: Variable<'_>, disk: Disk<'_>) -> Result<Credentials, ConfigError> {
    let set = |name: &str| filled(variable(name));
    let read = |path: &str| read(path, variable, disk);
    let cloud = cloud.map(str::to_owned).or_else(|| set("OS_CLOUD"));
    let from_variables =
        cloud.as_deref() == Some(ENVIRONMENT) || (cloud.is_none() && set("OS_AUTH_URL").is_some());
    if from_variables {
        return environment(variable, &read)?.check("environment (OS_* variables)");
    }
    let Some((place, clouds)) = first(set("OS_CLIENT_CONFIG_FILE"), "clouds", variable, disk)? else {
        return Err(ConfigError::new(
            "OpenStack credential",
            "none found: set OS_CLIENT_CONFIG_FILE or OS_AUTH_URL and its like, or put a clouds.yaml into ., \
             ~/.config/openstack or /etc/openstack",
        ));
    };
    let secure = first(set("OS_CLIENT_SECURE_FILE"), "secure", variable, disk)?;
    let secure = secure.as_ref().map(|(place, text)| (place.as_str(), text.as_str()));
    let public = first(set("OS_CLIENT_VENDOR_FILE"), "clouds-public", variable, disk)?;
    let public = public.as_ref().map(|(place, text)| (place.as_str(), text.as_str()));
    let texts = Texts { place: &place, clouds: &clouds, secure, public };
    clouds_yaml::parse(&texts, cloud.as_deref(), None, None, &read)
}

/// The first file that exists, and its text. A file that was named must exist.
fn first(
    named: Option<String>,
    stem: &str,
    variable: Variable<'_>,
    disk: Disk<'_>,
) -> Result<Option<(String, String)>, ConfigError> {
    let must = named.is_some();
    let candidates: Vec<PathBuf> = match named {
        Some(path) => vec![PathBuf::from(path)],
        None => {
            let home = filled(variable("HOME")).map(|home| Path::new(&home).join(".config/openstack"));
            let folders =
                [Some(PathBuf::from(".")), home, Some(PathBuf::from("/etc/openstack"))].into_iter().flatten();
            folders
                .flat_map(|folder| [folder.join(format!("{stem}.yaml")), folder.join(format!("{stem}.yml"))])
                .collect()
        }
    };
    for path in candidates {
        let place = path.display().to_string();
        match disk(&path) {
            Ok(bytes) => {
                let text =
                    String::from_utf8(bytes).map_err(|_| ConfigError::new(&place, "is no text in UTF-8"))?;
                return Ok(Some((place, text)));
            }
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound && !must => {}
            Err(cause) => return Err(ConfigError::new(place, format!("cannot be read: {cause}"))),
        }
    }
    Ok(None)
}

/// The plain variables, as an `openrc` sets them.
fn environment(variable: Variable<'_>, read: clouds_yaml::ReadFile<'_>) -> Result<Fields, ConfigError> {
    let wrong = |why: String| ConfigError::new("environment", why);
    let set = |names: &[&str]| names.iter().find_map(|name| filled(variable(&format!("OS_{name}"))));
    if set(&["CERT", "KEY"]).is_some() {
        return Err(wrong("OS_CERT and OS_KEY: client certificates are not supported".to_owned()));
    }
    if set(&["IDENTITY_API_VERSION"]).is_some_and(|version| !version.starts_with('3')) {
        return Err(wrong("OS_IDENTITY_API_VERSION must be 3".to_owned()));
    }
    let unverified = match set(&["INSECURE"]).map(|value| value.to_ascii_lowercase()).as_deref() {
        None | Some("false" | "no" | "0") => false,
        Some("true" | "yes" | "1") => true,
        Some(_) => return Err(wrong("OS_INSECURE is neither true nor false".to_owned())),
    };
    let authorities = match set(&["CACERT"]) {
        Some(path) if !unverified => Some(read(&path).map_err(|why| wrong(format!("OS_CACERT: {why}")))?),
        _ => None,
    };
    Ok(Fields {
        auth_type: set(&["AUTH_TYPE"]),
        region: set(&["REGION_NAME"]),
        interface: set(&["INTERFACE", "ENDPOINT_TYPE"]),
        settings: Settings::of(|name| set(&[&name.to_ascii_uppercase()])),
        authorities,
        unverified,
        ..Fields::of_login(|name| set(&[&name.to_ascii_uppercase()]))
    })
}

/// A file that a field names; `~/` is the home.
pub(super) fn read_file(path: &str) -> Result<Vec<u8>, String> {
    read(path, &|name| std::env::var(name).ok(), &|path| std::fs::read(path))
}

fn read(path: &str, variable: Variable<'_>, disk: Disk<'_>) -> Result<Vec<u8>, String> {
    let path = match (path.strip_prefix("~/"), filled(variable("HOME"))) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        _ => PathBuf::from(path),
    };
    disk(&path).map_err(|cause| format!("{} cannot be read: {cause}", path.display()))
}

#[cfg(test)]
mod tests;
