//! The configuration of the services: the files of `e2e/openstack/conf`, with the values of each start.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::{Endpoints, Knobs, PASSWORD, REGION, Service};

/// Every file, by its name.
pub(super) const FILES: [(&str, &str); 7] = [
    ("keystone.conf", include_str!("../../openstack/conf/keystone.conf")),
    ("neutron.conf", include_str!("../../openstack/conf/neutron.conf")),
    ("nova.conf", include_str!("../../openstack/conf/nova.conf")),
    ("placement.conf", include_str!("../../openstack/conf/placement.conf")),
    ("cinder.conf", include_str!("../../openstack/conf/cinder.conf")),
    ("glance-api.conf", include_str!("../../openstack/conf/glance-api.conf")),
    ("octavia.conf", include_str!("../../openstack/conf/octavia.conf")),
];

/// The values for the files.
#[derive(Debug)]
pub(super) struct Conf<'a> {
    pub(super) endpoints: &'a Endpoints,
    pub(super) knobs: &'a Knobs,
    pub(super) venv: &'a Path,
    /// The folder in which the services keep files.
    pub(super) state: &'a Path,
    /// MariaDB's socket.
    pub(super) socket: &'a Path,
    /// RabbitMQ's port; unused if there is none.
    pub(super) broker: Option<u16>,
    /// The network that amphorae boot in, once it is there.
    pub(super) amphora_network: Option<&'a str>,
}

impl Conf<'_> {
    /// Writes all files into `folder`. Those of services that do not run here are written too, and are unused.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        for (name, template) in FILES {
            let text = self.fill(template).with_context(|| name.to_owned())?;
            std::fs::write(folder.join(name), text).with_context(|| name.to_owned())?;
        }
        if self.endpoints.port(Service::Compute).is_ok() {
            // Nova's API looks for it beside nova.conf, whatever that says.
            let paste = self.venv.join("etc/nova/api-paste.ini");
            std::fs::copy(&paste, folder.join("api-paste.ini"))
                .with_context(|| paste.display().to_string())?;
        }
        Ok(())
    }

    fn fill(&self, template: &str) -> Result<String> {
        let mut text = String::new();
        // Odd pieces stand between two signs.
        for (index, piece) in template.split('@').enumerate() {
            if index % 2 == 0 { text.push_str(piece) } else { text.push_str(&self.value(piece)?) }
        }
        Ok(text)
    }

    fn value(&self, name: &str) -> Result<String> {
        let words: Vec<&str> = name.split(' ').collect();
        Ok(match *words.as_slice() {
            ["keystone"] => self.endpoints.address(Service::Identity)?,
            ["glance"] => self.endpoints.address(Service::Image).unwrap_or_default(),
            ["venv"] => self.venv.display().to_string(),
            ["state"] => self.state.display().to_string(),
            ["nova"] => self.endpoints.port(Service::Compute).is_ok().to_string(),
            ["token_ttl"] => self.knobs.token_ttl.as_secs().to_string(),
            ["page_max"] => self.knobs.page_max.to_string(),
            ["amphora_network"] => self.amphora_network.unwrap_or_default().to_owned(),
            ["broker"] => broker_url(self.broker.unwrap_or_default()),
            ["database", name] => database_url(self.socket, name),
            ["authtoken", user] => {
                let cache = match self.knobs.token_cache {
                    Some(time) => time.as_secs().to_string(),
                    None => "-1".to_owned(),
                };
                format!(
                    "{}www_authenticate_uri = {}/v3\nservice_token_roles = service\n\
                     service_token_roles_required = true\ntoken_cache_time = {cache}",
                    self.client("keystone_authtoken", user)?,
                    self.endpoints.address(Service::Identity)?
                )
            }
            ["client", section, user] => {
                format!("{}region_name = {REGION}", self.client(section, user)?)
            }
            _ => bail!("@{name}@ is not known"),
        })
    }

    /// The section by which a service calls another.
    fn client(&self, section: &str, user: &str) -> Result<String> {
        let keystone = self.endpoints.address(Service::Identity)?;
        Ok(format!(
            "[{section}]\nauth_type = password\nauth_url = {keystone}/v3\nusername = {user}\npassword = {PASSWORD}\n\
             project_name = service\nuser_domain_id = default\nproject_domain_id = default\n"
        ))
    }
}

/// The URL of a database for SQLAlchemy.
pub(super) fn database_url(socket: &Path, name: &str) -> String {
    format!("mysql+pymysql://root@localhost/{name}?unix_socket={}&charset=utf8mb4", socket.display())
}

/// The URL of RabbitMQ for oslo.messaging.
pub(super) fn broker_url(port: u16) -> String {
    format!("rabbit://guest:guest@127.0.0.1:{port}/")
}
