//! `cloud.conf`: what the cloud controller manager and Cinder's CSI driver of a cluster already have.

use super::clouds_yaml::{self, ReadFile, Texts};
use super::config_error::ConfigError;
use super::credentials::{Credentials, Fields};
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
    for key in ["cert-file", "key-file", "trust-id", "trustee-id", "trustee-password"] {
        if global(key).is_some() {
            return Err(wrong(format!(
                "[Global] {key} is not supported: use an application credential, or a user and password"
            )));
        }
    }
    let router_id = conf.get("Route", "router-id");
    let region = region.map(str::to_owned).or_else(|| global("region"));
    if conf.switch("Global", "use-clouds").map_err(wrong)? {
        let credentials = from_clouds_file(&global, region.as_deref(), authorities, read)?;
        return Ok(CloudConf { credentials, router_id });
    }
    let unverified = conf.switch("Global", "tls-insecure").map_err(wrong)?;
    let authorities = match (authorities, global("ca-file")) {
        _ if unverified => None,
        (Some(pem), _) => Some(pem.to_owned()),
        (None, Some(path)) => Some(read(&path).map_err(|why| wrong(format!("[Global] ca-file: {why}")))?),
        (None, None) => None,
    };
    let fields = Fields {
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
    let credentials = fields.check("cloud.conf: [Global]")?;
    Ok(CloudConf { credentials, router_id })
}

/// `use-clouds`: the credential is in a `clouds.yaml`.
fn from_clouds_file(
    global: &dyn Fn(&str) -> Option<String>,
    region: Option<&str>,
    authorities: Option<&[u8]>,
    read: ReadFile<'_>,
) -> Result<Credentials, ConfigError> {
    let wrong = |why: String| ConfigError::new(PLACE, why);
    let path = global("clouds-file").ok_or_else(|| {
        wrong("[Global] use-clouds needs clouds-file, the path of a clouds.yaml".to_owned())
    })?;
    let text = read(&path).map_err(|why| wrong(format!("[Global] clouds-file: {why}")))?;
    let text = String::from_utf8(text)
        .map_err(|_| wrong("[Global] clouds-file: the file is no text in UTF-8".to_owned()))?;
    let texts = Texts { place: &path, clouds: &text, secure: None };
    clouds_yaml::parse(&texts, global("cloud").as_deref(), region, authorities, read)
}

#[cfg(test)]
mod tests;
