//! The initial content of Keystone: roles, the services' users, and the catalogue.

use anyhow::Result;
use serde_json::json;

use super::api::text;
use super::{Api, PASSWORD, REGION, Service};

/// Roles that a new Keystone does not have. Octavia's policy asks for its own.
const ROLES: [&str; 2] = ["load-balancer_member", "load-balancer_admin"];

/// Writes it, through Keystone's own API.
pub(super) async fn write(admin: &Api, services: impl Iterator<Item = Service>) -> Result<()> {
    for role in ROLES {
        admin.create(Service::Identity, "/roles", "role", json!({ "name": role })).await?;
    }
    let project = json!({ "name": "service", "domain_id": "default" });
    let project = text(&admin.create(Service::Identity, "/projects", "project", project).await?, "id")?;
    for service in services {
        for (index, (name, kind, path)) in service.entries().iter().enumerate() {
            // The second entry of a service is another name for it, not another user.
            if index == 0 {
                let user = json!({ "name": name, "domain_id": "default", "password": PASSWORD });
                let user = text(&admin.create(Service::Identity, "/users", "user", user).await?, "id")?;
                for role in ["admin", "service"] {
                    grant(admin, &project, &user, role).await?;
                }
            }
            let entry = json!({ "name": name, "type": kind });
            let entry = text(&admin.create(Service::Identity, "/services", "service", entry).await?, "id")?;
            for interface in ["public", "internal", "admin"] {
                let url = admin.endpoints().address(service)? + path;
                let endpoint =
                    json!({ "service_id": entry, "interface": interface, "region_id": REGION, "url": url });
                admin.create(Service::Identity, "/endpoints", "endpoint", endpoint).await?;
            }
        }
    }
    Ok(())
}

/// A region with services of these types at other addresses: proxies, or simulated services.
pub(super) async fn region(admin: &Api, name: &str, services: &[(&str, String)]) -> Result<()> {
    let region = json!({ "region": { "id": name } });
    admin.post(Service::Identity, "/regions", region).await?;
    for (kind, url) in services {
        let known = admin.get(Service::Identity, &format!("/services?type={kind}")).await?;
        let id = match known.pointer("/services/0") {
            Some(known) => text(known, "id")?,
            None => {
                let service = json!({ "type": kind, "name": kind });
                text(&admin.create(Service::Identity, "/services", "service", service).await?, "id")?
            }
        };
        let endpoint = json!({ "endpoint": {
            "service_id": id, "interface": "public", "region_id": name, "url": url } });
        admin.post(Service::Identity, "/endpoints", endpoint).await?;
    }
    Ok(())
}

/// Gives a user a role in a project.
pub(super) async fn grant(admin: &Api, project: &str, user: &str, role: &str) -> Result<()> {
    let found = admin.get(Service::Identity, &format!("/roles?name={role}")).await?;
    let role = text(found.pointer("/roles/0").unwrap_or(&found), "id")?;
    admin
        .put(Service::Identity, &format!("/projects/{project}/users/{user}/roles/{role}"), json!({}))
        .await?;
    Ok(())
}
