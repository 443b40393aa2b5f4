//! `cloud.conf`: what the cloud controller manager and Cinder's CSI driver of a cluster already have.

use super::clouds_yaml::{self, ReadFile, Texts};
use super::credentials::{ConfigError, Credentials, Fields};
use super::gcfg::Gcfg;
use super::search;

/// The parts of a `cloud.conf` that matter here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudConf {
    /// `[Global]`.
    pub credentials: Credentials,
    /// `[Route] router-id`: the router that the cloud controller manager writes routes to.
    pub router_id: Option<String>,
}

const PLACE: &str = "cloud.conf";

impl CloudConf {
    /// Reads the text. Files that it names (`ca-file`, `clouds-file`) are read as well.
    ///
    /// # Errors
    /// When it is no such text, lacks what a login needs, or asks for what is not supported (client certificates, trusts).
    pub fn parse(text: &str) -> Result<CloudConf, ConfigError> {
        parse(text, None, None, &search::read_file)
    }
}

pub(super) fn parse(
    text: &str,
    region: Option<&str>,
    authorities: Option<&[u8]>,
    read: ReadFile<'_>,
) -> Result<CloudConf, ConfigError> {
    let wrong = |why: String| ConfigError::new(PLACE, why);
    let conf = Gcfg::parse(text).map_err(wrong)?;
    let global = |key: &str| conf.get("Global", key);
    for key in ["cert-file", "key-file", "trust-id", "trustee-id", "trustee-password", "secret-name"] {
        if global(key).is_some() {
            return Err(wrong(format!(
                "[Global] {key} is not supported: use an application credential, or a user and password"
            )));
        }
    }
    let router_id = conf.get("Route", "router-id");
    let region = region.map(str::to_owned).or_else(|| global("region"));
    let unverified = conf.switch("Global", "tls-insecure").map_err(wrong)?;
    let authorities = match (authorities, global("ca-file")) {
        _ if unverified => None,
        (Some(pem), _) => Some(pem.to_owned()),
        (None, Some(path)) => Some(read(&path).map_err(|why| wrong(format!("[Global] ca-file: {why}")))?),
        (None, None) => None,
    };
    let mut fields = Fields {
        auth_url: global("auth-url"),
        user_id: global("user-id"),
        username: global("username"),
        password: global("password"),
        user_domain_id: global("user-domain-id"),
        user_domain_name: global("user-domain-name"),
        project_id: global("tenant-id"),
        project_name: global("tenant-name"),
        project_domain_id: global("tenant-domain-id"),
        project_domain_name: global("tenant-domain-name"),
        domain_id: global("domain-id"),
        domain_name: global("domain-name"),
        application_credential_id: global("application-credential-id"),
        application_credential_name: global("application-credential-name"),
        application_credential_secret: global("application-credential-secret"),
        region,
        interface: global("os-endpoint-type"),
        authorities,
        unverified,
        ..Fields::default()
    };
    let mut place = "cloud.conf: [Global]".to_owned();
    if conf.switch("Global", "use-clouds").map_err(wrong)? {
        let (file, top_level_auth) = from_clouds_file(&global, &fields, read)?;
        place = format!("{place}, {file}");
        fields = fields.over(top_level_auth);
    }
    let credentials = fields.check(&place)?;
    Ok(CloudConf { credentials, router_id })
}

/// Paths that `use-clouds` without `clouds-file` tries in this order. The first file that can be read is used.
const USUAL: [&str; 3] = ["clouds.yaml", "~/.config/openstack/clouds.yaml", "/etc/openstack/clouds.yaml"];

/// `use-clouds`: fields that `[Global]` does not have are in a `clouds.yaml`. Returns its place for messages, and its fields.
fn from_clouds_file(
    global: &dyn Fn(&str) -> Option<String>,
    fields: &Fields,
    read: ReadFile<'_>,
) -> Result<(String, Fields), ConfigError> {
    let wrong = |why: String| ConfigError::new(PLACE, why);
    let (path, text) = match global("clouds-file") {
        Some(path) => {
            let text = read(&path).map_err(|why| wrong(format!("[Global] clouds-file: {why}")))?;
            (path, text)
        }
        None => {
            let mut last = String::new();
            let found = USUAL.iter().find_map(|path| match read(path) {
                Ok(text) => Some(((*path).to_owned(), text)),
                Err(why) => {
                    last = why;
                    None
                }
            });
            found.ok_or_else(|| {
                wrong(format!(
                    "[Global] use-clouds: clouds-file is not given, and no clouds.yaml is found: {last}"
                ))
            })?
        }
    };
    let text = String::from_utf8(text)
        .map_err(|_| wrong("[Global] clouds-file: the file is no text in UTF-8".to_owned()))?;
    let texts = Texts { place: &path, clouds: &text, secure: None, public: None };
    let (region, authorities) = (fields.region.as_deref(), fields.authorities.as_deref());
    clouds_yaml::fields(&texts, global("cloud").as_deref(), region, authorities, read)
}

#[cfg(test)]
mod tests;
