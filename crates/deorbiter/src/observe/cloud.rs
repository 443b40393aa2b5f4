//! Reads from OpenStack what records and cluster name: by ID where there are few, by one whole list where there are many.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use common::api::deorbit::{Choice, Kind};
use common::cloud::openstack::{self as api, Error, Service};

use super::snapshot::{self as seen, Cluster, Run};
use crate::names;
use crate::plan::found;
use crate::record::Recorded;

/// So many single requests cost about as much as a list of a whole project.
const BY_ID: usize = 32;

/// The most servers of Nodes that are requested in one reconciliation. One that exists is enough, and few are gone.
const SERVERS: usize = 8;

/// Reads what the plan needs.
///
/// # Errors
/// The first response that is neither an object nor a proven absence.
pub async fn read(cloud: &api::Cloud, run: &Run, cluster: Option<&Cluster>) -> Result<seen::Cloud, Error> {
    let project = cloud.project_id().await?;
    let seen = seen::Cloud {
        project: project.clone(),
        region: cloud.region().map(str::to_owned),
        credential: cloud.application_credential().await?,
        ..seen::Cloud::default()
    };
    // Everything else is gone; or the credential is refused, and its access rules may refuse the rest.
    if run.book.credential.is_some() || run.verify_credential(seen.clone()).is_err() {
        return Ok(seen);
    }
    let ids = found::ids(&run.records, cluster);
    let of = |kind: Kind| ids.get(&kind).cloned().unwrap_or_default();
    let whole = run.book.discovering;
    let balancers = of(Kind::LoadBalancer);
    let by_name = whole || has_ingresses(run, cluster) || has_unnamed(run, cluster);
    let octavia = !balancers.is_empty() || (by_name && cloud.has_service(Service::LoadBalancer).await?);
    let along = octavia || !of(Kind::FloatingIP).is_empty() || !of(Kind::SecurityGroup).is_empty();
    let mut out = seen::Cloud {
        own_server: own_server(cloud, &project, run, cluster).await?,
        volumes: block_storage(cloud, &project, Kind::Volume, &of(Kind::Volume), run, cluster).await?,
        snapshots: block_storage(cloud, &project, Kind::Snapshot, &of(Kind::Snapshot), run, cluster).await?,
        whole,
        ..seen
    };
    if octavia {
        out.load_balancers = load_balancers(cloud, &project, &balancers, by_name).await?;
    }
    if along || whole {
        let floating_ips = cloud.floating_ips().await?.into_iter();
        out.floating_ips = floating_ips.map(|one| (one.id.clone(), one)).collect();
        let security_groups = cloud.security_groups().await?.into_iter();
        out.security_groups = security_groups.map(|one| (one.id.clone(), one)).collect();
    }
    Ok(out)
}

/// A server of this project that a Node names. None where there is none among the first Nodes, where the Nodes name another region, and
/// where Nova is not available to this login: then the resources of the cluster have to prove that the login is its own.
async fn own_server(
    cloud: &api::Cloud,
    project: &str,
    run: &Run,
    cluster: Option<&Cluster>,
) -> Result<Option<String>, Error> {
    if let Some(known) = &run.book.proof.server {
        return Ok(Some(known.clone()));
    }
    let here = |region: &str| region.is_empty() || cloud.region().is_none_or(|own| own == region);
    let named = cluster.into_iter().flat_map(Cluster::known_nodes).filter_map(|node| node.server.as_ref());
    for (_, id) in named.filter(|(region, _)| here(region)).take(SERVERS) {
        match cloud.server(id).await {
            Ok(Some(server)) if server.tenant_id.as_deref().is_none_or(|owner| owner == project) => {
                return Ok(Some(server.id));
            }
            Ok(_) => {}
            Err(error) if error.is_forbidden() || error.is_no_service() || error.is_too_old() => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Classifies an error for the plan: a service that does not respond, responds with 5xx, or limits the rate of requests is unavailable,
/// since no user can fix that. A wrong login or region counts as refused.
#[must_use]
pub fn unread(error: &Error) -> seen::Unread {
    let why = error.lasting();
    match error.status() {
        Some(_) if error.is_credential_gone() => seen::Unread::CredentialGone(why),
        Some(status) if status >= 500 || error.is_retryable() => seen::Unread::Failing(why),
        // Without a status: no response, or a list that changed while it was read; or a login, region or Secret that cannot be used.
        None if error.is_retryable() => seen::Unread::NoResponse(why),
        _ => seen::Unread::Refused(why),
    }
}

/// Whether load balancers of Ingresses are needed, which can only be found by name.
fn has_ingresses(run: &Run, cluster: Option<&Cluster>) -> bool {
    !run.spec.cluster_name.is_empty()
        && run.spec.resources.ingresses == Choice::Delete
        && cluster.is_some_and(|cluster| {
            cluster.ingresses.iter().any(|ingress| ingress.class.as_deref() == Some(names::INGRESS_CLASS))
        })
}

/// Whether there are Services without the ID of their load balancer, or records of such Services.
fn has_unnamed(run: &Run, cluster: Option<&Cluster>) -> bool {
    let gone = run
        .records
        .iter()
        .any(|record| record.kind == Kind::LoadBalancer && record.id.is_none() && record.kept.is_none());
    gone || cluster.is_some_and(|cluster| {
        cluster.services.iter().any(|one| one.class.is_none() && one.load_balancer.is_none())
    })
}

/// Names of what a driver may have created before its object got the ID.
fn late(records: &[Arc<Recorded>], cluster: Option<&Cluster>, kind: Kind) -> HashSet<String> {
    let recorded =
        records.iter().filter(|record| record.kind == kind && record.id.is_none() && record.kept.is_none());
    let mut names: HashSet<String> = recorded.map(|record| names::made_for(kind, &record.uid)).collect();
    if let (Kind::Volume, Some(cluster)) = (kind, cluster) {
        let waiting = cluster.claims.iter().filter(|claim| cluster.awaits_volume(claim));
        names.extend(waiting.map(|claim| names::made_for(kind, &claim.meta.uid)));
    }
    names
}

/// The volumes or the snapshots that are needed. `kind` is one of the two.
async fn block_storage(
    cloud: &api::Cloud,
    project: &str,
    kind: Kind,
    ids: &BTreeSet<String>,
    run: &Run,
    cluster: Option<&Cluster>,
) -> Result<BTreeMap<String, seen::BlockStorage>, Error> {
    let (late, whole) = (late(&run.records, cluster, kind), run.book.discovering);
    let of_volume = |one: api::Volume| volume(one, project);
    let of_snapshot = |one: api::Snapshot| snapshot(one, project);
    if ids.len() > BY_ID || !late.is_empty() || whole {
        let asked = |id: &str, name: &str| whole || ids.contains(id) || late.contains(name);
        let named = |one: &api::Volume| asked(&one.id, one.name.as_deref().unwrap_or_default());
        let all = match kind {
            Kind::Volume => cloud.volumes(|one| named(&one).then(|| of_volume(one)).flatten()).await?,
            _ => {
                let kept = |one: api::Snapshot| asked(&one.id, &one.name).then(|| of_snapshot(one)).flatten();
                cloud.snapshots(kept).await?
            }
        };
        return Ok(all.into_iter().collect());
    }
    let mut out = BTreeMap::new();
    for id in ids {
        out.extend(match kind {
            Kind::Volume => cloud.volume(id).await?.and_then(of_volume),
            _ => cloud.snapshot(id).await?.and_then(of_snapshot),
        });
    }
    Ok(out)
}

async fn load_balancers(
    cloud: &api::Cloud,
    project: &str,
    ids: &BTreeSet<String>,
    all: bool,
) -> Result<BTreeMap<String, api::LoadBalancer>, Error> {
    let own = |one: api::LoadBalancer| load_balancer(one, project);
    if ids.len() > BY_ID || all {
        return Ok(cloud.load_balancers().await?.into_iter().filter_map(own).collect());
    }
    let mut out = BTreeMap::new();
    for id in ids {
        match cloud.load_balancer(id).await {
            Ok(found) => out.extend(found.and_then(own)),
            // A Service can be annotated with a load balancer of another project, which the list does not have. Where the right itself is
            // missing, the list is refused as well.
            Err(error) if error.is_forbidden() => {
                return Ok(cloud.load_balancers().await?.into_iter().filter_map(own).collect());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(out)
}

/// Whether this metadata keeps a volume or a snapshot.
#[must_use]
pub fn is_kept(metadata: &BTreeMap<String, String>) -> bool {
    metadata.get(names::JANITOR_KEEP).is_some_and(|value| value == "true")
}

/// Whether a resource belongs to the project of the login, as far as the service reports that. An administrator gets those of all
/// projects by their IDs: they prove nothing about the project, and a list does not have them.
fn is_of(project: &str, owner: &str) -> bool {
    owner.is_empty() || owner == project
}

/// None for one of another project.
fn volume(one: api::Volume, project: &str) -> Option<(String, seen::BlockStorage)> {
    let volume = seen::BlockStorage {
        name: one.name.unwrap_or_default(),
        status: one.status,
        volume: String::new(),
        keep: is_kept(&one.metadata),
        cluster: one.metadata.get(names::CSI_CLUSTER).cloned(),
    };
    is_of(project, &one.project_id).then_some((one.id, volume))
}

fn snapshot(one: api::Snapshot, project: &str) -> Option<(String, seen::BlockStorage)> {
    let snapshot = seen::BlockStorage {
        name: one.name,
        status: one.status,
        volume: one.volume_id,
        keep: is_kept(&one.metadata),
        cluster: one.metadata.get(names::CSI_CLUSTER).cloned(),
    };
    is_of(project, &one.project_id).then_some((one.id, snapshot))
}

fn load_balancer(one: api::LoadBalancer, project: &str) -> Option<(String, api::LoadBalancer)> {
    is_of(project, &one.project_id).then(|| (one.id.clone(), one))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// The error of a login to a Keystone that responds with this status, and asks for a wait that is too long to retry.
    async fn login_error(status: &'static str) -> Error {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}/v3", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 4096];
                let length = stream.read(&mut request).await.unwrap();
                assert_ne!(length, 0, "no request");
                let response = format!("HTTP/1.1 {status}\r\nRetry-After: 600\r\nContent-Length: 0\r\n\r\n");
                stream.write_all(response.as_bytes()).await.unwrap();
                open.push(stream);
            }
        });
        let login = json!({"auth_url": url, "application_credential_id": "c", "application_credential_secret": "s3cr3t"});
        let cloud = json!({"auth_type": "v3applicationcredential", "auth": login});
        let clouds = json!({"clouds": {"openstack": cloud}}).to_string();
        let secret = BTreeMap::from([("clouds.yaml".to_owned(), clouds.into_bytes())]);
        let credentials = api::Credentials::from_secret(&secret, "openstack", None).unwrap();
        let metrics = api::Metrics::register(&prometheus::Registry::new()).unwrap();
        api::Cloud::new(&credentials, "test", &metrics).unwrap().project_id().await.unwrap_err()
    }

    /// After a refusal all limits of the run restart: a cloud that limits the rate once an hour would keep it from ending.
    #[tokio::test]
    async fn a_service_that_limits_the_rate_of_requests_is_unavailable_and_refuses_nothing() {
        for (status, reason) in [
            ("429 Too Many Requests", "ServerError"),
            ("413 Payload Too Large", "ServerError"),
            ("503 Service Unavailable", "ServerError"),
            ("501 Not Implemented", "ServerError"),
            ("401 Unauthorized", "Refused"),
            ("403 Forbidden", "Refused"),
        ] {
            assert_eq!(unread(&login_error(status).await).reason(), reason, "{status}");
        }
    }

    /// The StorageClass may be gone, or be that of another driver: external-provisioner goes by the annotation too.
    #[test]
    fn the_volume_of_a_claim_that_names_its_provisioner_is_read_whatever_its_class() {
        for (in_scope, is_read) in [(Some(true), true), (Some(false), false), (None, false)] {
            let meta = seen::Meta { uid: "u".into(), ..seen::Meta::default() };
            let class = Some("gone".to_owned());
            let claim = seen::Claim { meta, class, provisioner_in_scope: in_scope, volume: None };
            let cluster = Cluster { claims: vec![claim], ..Cluster::default() };
            let names = late(&[], Some(&cluster), Kind::Volume);
            assert_eq!(names.contains("pvc-u"), is_read, "{in_scope:?}");
        }
    }

    fn parsed<T: serde::de::DeserializeOwned>(owner: (&str, Value)) -> T {
        let mut one = json!({"id": "i", "name": "n", "status": "available", "size": 1, "volume_id": "v",
            "provisioning_status": "ACTIVE"});
        one[owner.0] = owner.1;
        serde_json::from_value(one).unwrap()
    }

    /// S2: it would prove that the login is for the cluster's project, and what is searched there by name is another cluster's.
    #[test]
    fn a_resource_of_another_project_that_an_administrator_is_shown_is_none_of_the_login_s_project() {
        for (owner, is_shown) in [(json!("p"), true), (json!("q"), false), (Value::Null, true)] {
            let of = |key: &'static str| (key, owner.clone());
            let found = [
                volume(parsed(of("os-vol-tenant-attr:tenant_id")), "p").is_some(),
                snapshot(parsed(of("os-extended-snapshot-attributes:project_id")), "p").is_some(),
                load_balancer(parsed(of("project_id")), "p").is_some(),
            ];
            assert_eq!(found, [is_shown; 3], "{owner}");
        }
    }
}
