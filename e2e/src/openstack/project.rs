//! The project of a test: the resources of a cluster, and those that tests add.

mod objects;
mod routes;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::api::text;
use super::seed::Facts;
use super::{Api, Endpoints, Login, REGION, Service, catalogue};

/// The cloud's name in [`Project::clouds_yaml`].
pub const CLOUD: &str = "openstack";

/// The password of every project's user.
const PASSWORD: &str = "a-test's-own";

/// Roles that a cluster's credentials have.
const ROLES: [&str; 2] = ["member", "load-balancer_member"];

/// A project with a user, an application credential, a network with a subnet, and a router with an interface in it and
/// an external gateway. It is never removed, because the cloud is removed after the tests.
#[derive(Debug, Clone)]
pub struct Project {
    /// The project's ID.
    pub id: String,
    /// The project's name, which is its user's too.
    pub name: String,
    /// The user's ID.
    pub user: String,
    /// The ID of the application credential.
    pub credential: String,
    /// The secret of the application credential.
    pub secret: String,
    /// The network's ID. It is named `nodes`, as the subnet and the router are.
    pub network: String,
    /// The subnet's ID: 10.7.0.0/16, of which addresses up to 10.7.9.255 are not in the allocation pool.
    pub subnet: String,
    /// The router's ID.
    pub router: String,
    /// The network outside, of which floating IPs are.
    pub public_network: String,
    api: Api,
    endpoints: Endpoints,
    image: Option<String>,
}

impl Project {
    pub(super) async fn create(admin: &Api, facts: &Facts, name: &str) -> Result<Self> {
        let body = json!({ "name": name, "domain_id": "default" });
        let id = text(&admin.create(Service::Identity, "/projects", "project", body).await?, "id")?;
        let body =
            json!({ "name": name, "domain_id": "default", "password": PASSWORD, "default_project_id": id });
        let user = text(&admin.create(Service::Identity, "/users", "user", body).await?, "id")?;
        for role in ROLES {
            catalogue::grant(admin, &id, &user, role).await?;
        }
        let endpoints = admin.endpoints().clone();
        let api = Api::new(endpoints.clone(), Self::login(name));
        let mut project = Self {
            id,
            name: name.to_owned(),
            user,
            credential: String::new(),
            secret: String::new(),
            network: String::new(),
            subnet: String::new(),
            router: String::new(),
            public_network: facts.public_network.clone(),
            api,
            endpoints,
            image: facts.image.clone(),
        };
        (project.credential, project.secret) = project.new_credential("cluster", json!({})).await?;
        project.furnish().await?;
        Ok(project)
    }

    async fn furnish(&mut self) -> Result<()> {
        let network = json!({ "name": "nodes" });
        let network = self.api.create(Service::Network, "/networks", "network", network).await?;
        self.network = text(&network, "id")?;
        self.subnet =
            self.new_subnet(&self.network, "10.7.0.0/16", Some(("10.7.10.0", "10.7.255.254"))).await?;
        let outside = json!({ "network_id": self.public_network });
        let router = json!({ "name": "nodes", "external_gateway_info": outside });
        let router = self.api.create(Service::Network, "/routers", "router", router).await?;
        self.router = text(&router, "id")?;
        let leg = json!({ "subnet_id": self.subnet });
        let path = format!("/routers/{}/add_router_interface", self.router);
        self.api.put(Service::Network, &path, leg).await?;
        Ok(())
    }

    fn login(name: &str) -> Login {
        let name = name.to_owned();
        Login::Password { user: name.clone(), password: PASSWORD.to_owned(), project: name }
    }

    /// Its user, with a password.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Its application credential.
    pub fn credential_api(&self) -> Api {
        let (id, secret) = (self.credential.clone(), self.secret.clone());
        Api::new(self.endpoints.clone(), Login::ApplicationCredential { id, secret })
    }

    /// Another application credential, with what else is to be said of it, such as `expires_at`, `roles` or
    /// `access_rules`: its ID and secret.
    ///
    /// # Errors
    /// Keystone refuses.
    pub async fn new_credential(&self, name: &str, more: Value) -> Result<(String, String)> {
        let mut body = json!({ "name": name });
        if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
            body.extend(more);
        }
        let path = format!("/users/{}/application_credentials", self.user);
        let made = self.api.create(Service::Identity, &path, "application_credential", body).await?;
        Ok((text(&made, "id")?, text(&made, "secret")?))
    }

    /// A clouds.yaml with the application credential as [`CLOUD`].
    ///
    /// # Errors
    /// There is no Keystone.
    pub fn clouds_yaml(&self) -> Result<String> {
        let keystone = self.endpoints.base(Service::Identity)?;
        Ok(self.clouds_yaml_of(&keystone, &self.credential, &self.secret))
    }

    /// The same with another Keystone, such as one behind a proxy, or with another application credential.
    #[must_use]
    pub fn clouds_yaml_of(&self, keystone: &str, credential: &str, secret: &str) -> String {
        format!(
            "clouds:\n  {CLOUD}:\n    auth_type: v3applicationcredential\n    region_name: {REGION}\n    auth:\n      \
             auth_url: {keystone}\n      application_credential_id: {credential}\n      \
             application_credential_secret: {secret}\n"
        )
    }

    /// The cloud.conf of openstack-cloud-controller-manager and of cinder-csi-plugin.
    ///
    /// # Errors
    /// There is no Keystone.
    pub fn cloud_conf(&self) -> Result<String> {
        Ok(format!(
            "[Global]\nauth-url={}\nregion={REGION}\napplication-credential-id={}\napplication-credential-secret={}\n\
             [Route]\nrouter-id={}\n\
             [LoadBalancer]\nlb-provider=amphora\nsubnet-id={}\nfloating-network-id={}\nmanage-security-groups=true\n\
             [BlockStorage]\nignore-volume-az=true\n",
            self.endpoints.base(Service::Identity)?,
            self.credential,
            self.secret,
            self.router,
            self.subnet,
            self.public_network,
        ))
    }

    /// The settings of octavia-ingress-controller, for the cluster of this name that the kubeconfig leads to.
    ///
    /// # Errors
    /// There is no Keystone.
    pub fn ingress_config(&self, cluster: &str, kubeconfig: &Path) -> Result<String> {
        Ok(serde_yaml::to_string(&json!({
            "cluster-name": cluster,
            "kubernetes": { "kubeconfig": kubeconfig },
            "openstack": {
                "auth-url": self.endpoints.base(Service::Identity)?,
                "region": REGION,
                "application-credential-id": self.credential,
                "application-credential-secret": self.secret,
            },
            "octavia": {
                "provider": "amphora",
                "subnet-id": self.subnet,
                "floating-network-id": self.public_network,
                "manage-security-groups": true,
            },
        }))?)
    }

    /// Another subnet with DHCP off; `pool` is the range of addresses that are given out.
    ///
    /// # Errors
    /// Neutron refuses.
    pub async fn new_subnet(&self, network: &str, cidr: &str, pool: Option<(&str, &str)>) -> Result<String> {
        let version = if cidr.contains(':') { 6 } else { 4 };
        let mut subnet = json!({
            "name": "nodes", "network_id": network, "ip_version": version, "cidr": cidr, "enable_dhcp": false });
        if let (Some((start, end)), Some(subnet)) = (pool, subnet.as_object_mut()) {
            subnet.insert("allocation_pools".to_owned(), json!([{ "start": start, "end": end }]));
        }
        text(&self.api.create(Service::Network, "/subnets", "subnet", subnet).await?, "id")
    }

    /// A port in the network: with an address and with the ID of a device, where they are given. Its ID.
    ///
    /// # Errors
    /// Neutron refuses.
    pub async fn port(&self, address: Option<&str>, device: Option<&str>) -> Result<String> {
        let port = self.new_port(address, device);
        text(&self.api.create(Service::Network, "/ports", "port", port).await?, "id")
    }

    /// The body of such a port, for a call that creates several.
    pub(crate) fn new_port(&self, address: Option<&str>, device: Option<&str>) -> Value {
        let mut port = json!({ "network_id": self.network, "name": "node" });
        if let Some(port) = port.as_object_mut() {
            if let Some(address) = address {
                let fixed = json!([{ "subnet_id": self.subnet, "ip_address": address }]);
                port.insert("fixed_ips".to_owned(), fixed);
            }
            if let Some(device) = device {
                port.insert("device_id".to_owned(), json!(device));
                port.insert("device_owner".to_owned(), json!("compute:nova"));
            }
        }
        port
    }

    /// Waits until `field` of the object at `path` is `expected`, and returns it. A final error state is an error.
    ///
    /// # Errors
    /// It ended in error, or is not there within [`crate::wait::TIMEOUT`].
    pub async fn settle(
        &self,
        service: Service,
        path: &str,
        one: &str,
        field: &str,
        expected: &str,
    ) -> Result<Value> {
        crate::wait::until_slow(&format!("{path} {expected}"), async || {
            let response = self.api.get(service, path).await?;
            let found = response.get(one).with_context(|| format!("no {one} in {response}"))?;
            let status = text(found, field)?;
            ensure!(status == expected || !status.eq_ignore_ascii_case("error"), "{path} ended in {found}");
            Ok((status == expected).then(|| found.clone()))
        })
        .await
    }

    /// Waits until nothing is found at `path`.
    ///
    /// # Errors
    /// It is still there after [`crate::wait::TIMEOUT`].
    pub async fn gone(&self, service: Service, path: &str) -> Result<()> {
        crate::wait::until_slow(&format!("end of {path}"), async || {
            let found = self.api.find(service, path).await?;
            // A deleted load balancer is still listed for a while.
            let status = found.as_ref().and_then(|each| each.pointer("/loadbalancer/provisioning_status"));
            Ok((found.is_none() || status.is_some_and(|status| status == "DELETED")).then_some(()))
        })
        .await
    }
}
