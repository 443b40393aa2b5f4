//! The initial data of a cloud: schemas, the services' users, the catalogue, a network outside, a flavour, images.
//!
//! Creating them takes minutes, copying them a second. So they are created once for each installation, by services that are then stopped, and
//! stored with it. Ports and folders, which differ at each start, are replaced in the copy.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::text;
use super::conf::{self, broker_url, database_url};
use super::site::Site;
use super::{Knobs, PASSWORD, Part, Parts, REGION, Release, Service, catalogue};

/// Properties of the cloud that created a seed, and of the seed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Facts {
    /// The folder of the services' files.
    state: PathBuf,
    socket: PathBuf,
    broker: Option<u16>,
    /// The ports, by the types of the catalogue.
    ports: Vec<(String, u16)>,
    /// The network outside, of which floating IPs are.
    pub(super) public_network: String,
    /// The network that amphorae boot in.
    pub(super) amphora_network: Option<String>,
    /// The image that servers are made of.
    pub(super) image: Option<String>,
}

/// Copies the seed to the site's folder. Creates the seed if it does not exist.
pub(super) async fn plant(site: &Site, release: Release) -> Result<Facts> {
    let seeds = site.installation.seeds();
    std::fs::create_dir_all(&seeds).with_context(|| seeds.display().to_string())?;
    let seed = seeds.join(name(site.parts));
    if !seed.is_dir() {
        let path = seeds.join(".lock");
        let file = File::create(&path).with_context(|| path.display().to_string())?;
        // Another test program may be creating it.
        let locked = tokio::task::spawn_blocking(move || Flock::lock(file, FlockArg::LockExclusive)).await?;
        let _guard = locked.map_err(|(_, error)| error).context("the lock of the seeds")?;
        if !seed.is_dir() {
            make(site.parts, release, &seed).await.context("a seed of the cloud")?;
        }
    }
    copy(&seed.join("state"), &site.state())?;
    Ok(serde_json::from_slice(&std::fs::read(seed.join("facts.json"))?)?)
}

/// Replaces ports and folders in the copied databases, and deletes the workers' last reports.
pub(super) fn adapt(site: &Site, facts: &Facts) -> Result<()> {
    let mut sql = String::new();
    for service in site.endpoints.services() {
        let (name, new) = (format!("{service:?}"), site.endpoints.port(service)?);
        let old = facts.ports.iter().find(|(each, _)| *each == name).context("a port of the seed")?.1;
        sql += &format!("update keystone.endpoint set url = replace(url, ':{old}', ':@{new}');\n");
    }
    // The sign keeps a new port from being taken for another's old one.
    sql += "update keystone.endpoint set url = replace(url, '@', '');\n";
    if let (Some(old), Some(new)) = (facts.broker, site.broker) {
        let (broker, socket) = (broker_url(new.amqp), site.socket());
        sql += &format!(
            "update nova_api.cell_mappings set transport_url = '{broker}' where transport_url = '{}';\n\
             update nova_api.cell_mappings set database_connection = replace(database_connection, '{}', '{}');\n\
             update glance.image_locations set value = replace(value, '{}', '{}');\n\
             update nova.services set last_seen_up = '2000-01-01', updated_at = '2000-01-01';\n\
             update cinder.services set updated_at = '2000-01-01';\n",
            broker_url(old),
            facts.socket.display(),
            socket.display(),
            facts.state.display(),
            site.state().display(),
        );
    }
    site.sql(&sql).map(drop)
}

/// A hash of all inputs.
fn name(parts: Parts) -> String {
    let mut hasher = DefaultHasher::new();
    conf::FILES.hash(&mut hasher);
    for source in [include_str!("seed.rs"), include_str!("catalogue.rs"), include_str!("database.rs")] {
        source.hash(&mut hasher);
    }
    let server = Command::new("/usr/sbin/mariadbd").arg("--version").output();
    server.map(|output| output.stdout).unwrap_or_default().hash(&mut hasher);
    let parts = match parts {
        Parts::KeystoneNeutron => "keystone-neutron",
        Parts::All => "all",
    };
    format!("{parts}-{:016x}", hasher.finish())
}

async fn make(parts: Parts, release: Release, seed: &Path) -> Result<()> {
    let site = Site::new(parts, release, Knobs::default()).await?;
    for folder in
        ["mysql", "keystone/fernet", "keystone/credential", "neutron/lock", "nova/lock", "cinder/lock"]
    {
        std::fs::create_dir_all(site.state().join(folder))?;
    }
    for folder in
        ["placement/lock", "glance/images", "glance/staging", "glance/tasks", "glance/lock", "octavia"]
    {
        std::fs::create_dir_all(site.state().join(folder))?;
    }
    site.create_database_server()?;
    site.write_conf(None)?;
    if parts == Parts::All {
        authority(&site.state().join("octavia"))?;
    }
    site.start_stores().await?;
    migrate(&site).await?;
    site.start(Part::Keystone)?;
    site.wait_until_ready(Part::Keystone).await?;
    catalogue::write(&site.admin(), site.endpoints.services()).await?;
    site.start_services().await?;
    let facts = furnish(&site).await?;
    if parts == Parts::All {
        site.start_workers().await?;
        // Known to the scheduler from now on; its identity is a file in the state folder.
        let discover = ["--config-file", "nova.conf", "cell_v2", "discover_hosts"];
        site.tool(manage(&site, "nova-manage", &discover)).await?;
    }
    for &part in Part::services(parts) {
        site.kill(part)?;
    }
    if parts == Parts::All {
        site.kill(Part::NovaCompute)?;
        site.kill(Part::CinderVolume)?;
    }
    site.stop(Part::Database).await?;
    let new = seed.with_extension("new");
    if new.exists() {
        // Of one that was killed: the lock is ours.
        std::fs::remove_dir_all(&new)?;
    }
    std::fs::create_dir_all(&new)?;
    copy(&site.state(), &new.join("state"))?;
    std::fs::write(new.join("facts.json"), serde_json::to_vec_pretty(&facts)?)?;
    std::fs::rename(&new, seed)?;
    Ok(())
}

/// Copies a folder that no process writes to.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").args(["-a", "--reflink=auto", "--"]).arg(from).arg(to).status()?;
    ensure!(status.success(), "cp {} {}: {status}", from.display(), to.display());
    Ok(())
}

/// Octavia signs the certificates of its amphorae with it, and refuses a key that is not locked.
fn authority(folder: &Path) -> Result<()> {
    let output = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-days", "3650", "-subj", "/CN=amphorae"])
        .args(["-passout", "pass:octavia", "-keyout"])
        .arg(folder.join("ca.key"))
        .arg("-out")
        .arg(folder.join("ca.pem"))
        .output()
        .context("openssl")?;
    ensure!(output.status.success(), "openssl: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn manage(site: &Site, program: &str, args: &[&str]) -> crate::program::Launch {
    let conf = |arg: &str| {
        if arg.ends_with(".conf") { site.conf(arg).into_os_string() } else { arg.into() }
    };
    site.installation.script(program).args(args.iter().map(|arg| conf(arg)))
}

/// Empty databases with the services' schemas; two at a time, for that many cores are the least that anyone has.
async fn migrate(site: &Site) -> Result<()> {
    let run = async |program: &str, args: &[&str]| site.tool(manage(site, program, args)).await.map(drop);
    let keystone = async {
        site.sql("create database keystone")?;
        let user = nix::unistd::User::from_uid(nix::unistd::Uid::effective())?.context("who are we?")?.name;
        let keystone = async |args: &[&str]| {
            run("keystone-manage", &[&["--config-file", "keystone.conf"], args].concat()).await
        };
        keystone(&["db_sync"]).await?;
        let owner = ["--keystone-user", &user, "--keystone-group", &user];
        keystone(&[&["fernet_setup"], owner.as_slice()].concat()).await?;
        keystone(&[&["credential_setup"], owner.as_slice()].concat()).await?;
        let url = site.endpoints.base(Service::Identity)?;
        keystone(&[
            "bootstrap",
            "--bootstrap-password",
            PASSWORD,
            "--bootstrap-admin-url",
            &url,
            "--bootstrap-internal-url",
            &url,
            "--bootstrap-public-url",
            &url,
            "--bootstrap-region-id",
            REGION,
        ])
        .await
    };
    let neutron = async {
        site.sql("create database neutron")?;
        run("neutron-db-manage", &["--config-file", "neutron.conf", "upgrade", "heads"]).await
    };
    if site.parts == Parts::KeystoneNeutron {
        return tokio::try_join!(keystone, neutron).map(drop);
    }
    for name in ["placement", "cinder", "nova_api", "nova", "nova_cell0", "glance", "octavia"] {
        site.sql(&format!("create database {name}"))?;
    }
    let nova =
        async |args: &[&str]| run("nova-manage", &[&["--config-file", "nova.conf"], args].concat()).await;
    let cell0 = database_url(&site.socket(), "nova_cell0");
    let first = async {
        keystone.await?;
        run("placement-manage", &["--config-file", "placement.conf", "db", "sync"]).await?;
        run("cinder-manage", &["--config-file", "cinder.conf", "db", "sync"]).await?;
        nova(&["api_db", "sync"]).await?;
        nova(&["cell_v2", "map_cell0", "--database_connection", &cell0]).await?;
        nova(&["db", "sync"]).await?;
        nova(&["cell_v2", "create_cell", "--name", "cell1"]).await
    };
    let second = async {
        neutron.await?;
        run("glance-manage", &["--config-file", "glance-api.conf", "db_sync"]).await?;
        run("octavia-db-manage", &["--config-file", "octavia.conf", "upgrade", "head"]).await
    };
    tokio::try_join!(first, second).map(drop)
}

/// Shared resources: an external network; with Nova a flavour, an image, and those of amphorae.
async fn furnish(site: &Site) -> Result<Facts> {
    let admin = site.admin();
    let network = async |name: &str, cidr: &str, more: Value| {
        let mut body = json!({ "name": name });
        if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
            body.extend(more);
        }
        let network = admin.create(Service::Network, "/networks", "network", body).await?;
        let network = text(&network, "id")?;
        let subnet = json!({ "name": name, "network_id": network, "ip_version": 4, "cidr": cidr, "enable_dhcp": false });
        admin.create(Service::Network, "/subnets", "subnet", subnet).await?;
        anyhow::Ok(network)
    };
    // Ranges for benchmarks and for documentation: unassigned.
    let outside = json!({
        "router:external": true, "provider:network_type": "flat", "provider:physical_network": "public" });
    let mut facts = Facts {
        state: site.state(),
        socket: site.socket(),
        broker: site.broker.map(|ports| ports.amqp),
        ports: Vec::new(),
        public_network: network("public", "198.18.0.0/16", outside).await?,
        amphora_network: None,
        image: None,
    };
    for service in site.endpoints.services() {
        facts.ports.push((format!("{service:?}"), site.endpoints.port(service)?));
    }
    if site.parts == Parts::All {
        facts.amphora_network = Some(network("amphorae", "192.0.2.0/24", json!({})).await?);
        let flavour = json!({ "name": "m1.nano", "id": "42", "ram": 64, "vcpus": 1, "disk": 1 });
        admin.create(Service::Compute, "/flavors", "flavor", flavour).await?;
        facts.image = Some(image(site, "nothing", &[]).await?);
        image(site, "amphora", &["amphora"]).await?;
    }
    Ok(facts)
}

/// An image of 64 KiB of zeros.
async fn image(site: &Site, name: &str, tags: &[&str]) -> Result<String> {
    let body = json!({
        "name": name, "disk_format": "raw", "container_format": "bare", "visibility": "public", "tags": tags });
    let admin = site.admin();
    let image = text(&admin.post(Service::Image, "/images", body).await?, "id")?;
    admin.upload(Service::Image, &format!("/images/{image}/file"), vec![0; 65536]).await?;
    Ok(image)
}
