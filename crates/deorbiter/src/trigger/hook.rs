//! Cluster API's runtime hook BeforeClusterDelete: a Cluster that is being deleted keeps all of its machines until the Deorbit
//! of its cluster is done. For Clusters with a topology (ClusterClass), where the feature RuntimeSDK is on.
//!
//! ```text
//!   server       two paths over HTTPS: discovery, and BeforeClusterDelete
//!   protocol     the requests and responses
//!   cluster      the fields of a Cluster that are read
//!   decision     pure: wait, go on, refuse, create the Deorbit, or abort it
//!   handler      reads the Cluster and its Deorbits, and creates or aborts one; counts the responses
//! ```
//!
//! Requests are not authenticated, so a request only names a Cluster. The decision depends on that Cluster in the API server, above all
//! on whether it is being deleted.

pub mod cluster;
pub mod decision;
pub mod handler;
pub mod protocol;
pub mod server;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use common::api::deorbit_binding::DeorbitTemplate;
use common::config::ConfigError;
use common::runtime::Runtime;
use common::server::{Builder, ClientCertificates, Tls, TlsFiles};

use self::handler::Handler;
use super::rules;
use super::template::Template;

/// The template of a Cluster's Deorbit without a file: Cluster API's kubeconfig Secret, and the login of the Cluster's
/// OpenStackCluster.
const TEMPLATE: &str = "spec:
  kubeconfig: {secretRef: {name: '{.metadata.name}-kubeconfig', key: value}}
  openstack:
    identityRef:
      name: '{.infrastructure.spec.identityRef.name}'
      cloudName: '{.infrastructure.spec.identityRef.cloudName}'
";

/// The command line of the hook.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster API hook")]
pub struct HookArgs {
    /// Serve the runtime hook BeforeClusterDelete over TLS on this address, such as 0.0.0.0:9443; off without it
    #[arg(long, env = "PERIMETER_HOOK_ADDRESS", value_name = "ADDRESS")]
    pub hook_address: Option<SocketAddr>,
    /// Folder with tls.crt and tls.key, the mounted Secret of the hook's certificate; read again when they change
    #[arg(
        long,
        env = "PERIMETER_HOOK_CERT_DIR",
        default_value = "/etc/deorbiter/hook",
        value_name = "FOLDER"
    )]
    pub hook_cert_dir: PathBuf,
    /// YAML file with the template of the Deorbit of a Cluster, in the shape of a DeorbitBinding's `template`; its field paths
    /// read the Cluster, and its OpenStackCluster under `.infrastructure`. Without it: the Secret `<cluster>-kubeconfig`, and
    /// the OpenStackCluster's identityRef
    #[arg(long, env = "PERIMETER_HOOK_TEMPLATE", value_name = "FILE")]
    pub hook_template: Option<PathBuf>,
}

/// The template that is used.
///
/// # Errors
/// The file cannot be read, or is no template of a Deorbit.
pub fn template(file: Option<&Path>) -> Result<Template, ConfigError> {
    let (text, name) = match file {
        None => (TEMPLATE.to_owned(), "the built-in template".to_owned()),
        Some(file) => {
            let name = file.display().to_string();
            let text = std::fs::read_to_string(file);
            (text.map_err(|error| ConfigError(format!("--hook-template {name}: {error}")))?, name)
        }
    };
    let template: DeorbitTemplate = serde_yaml::from_str(&text).map_err(|error| {
        ConfigError(format!("{name}: {}", error.to_string().lines().next().unwrap_or_default()))
    })?;
    let template = rules::template(&template).map_err(|why| ConfigError(format!("{name}: {why}")))?;
    // It would be ignored: the Secrets and the Deorbit of a Cluster are in its own namespace.
    if template.names_namespace() {
        return Err(ConfigError(format!(
            "{name}: template.namespace: the Deorbit and its Secrets are in the namespace of the Cluster; leave it out"
        )));
    }
    Ok(template)
}

/// Serves the hook until the process shuts down; returns at once without an address. Every replica serves: what the hook writes
/// does not depend on who leads.
///
/// # Errors
/// [`ConfigError`] for a certificate or a template that cannot be used; an address that is in use.
pub async fn serve(runtime: &Runtime, args: &HookArgs) -> anyhow::Result<()> {
    let Some(address) = args.hook_address else { return Ok(()) };
    let template = template(args.hook_template.as_deref())?;
    let handler = Handler::new(runtime.client.clone(), template, runtime.metrics.registry())?;
    let file = |name| args.hook_cert_dir.join(name);
    let clients = ClientCertificates::Ignored;
    let tls = Tls::read(TlsFiles { certificate: file("tls.crt"), key: file("tls.key"), clients })
        .map_err(|error| ConfigError(format!("--hook-cert-dir: {error}")))?;
    let server = Builder::new("hook", server::LIMITS).tls(tls, &runtime.metrics)?.bind(address).await;
    let server = server.with_context(|| format!("hook on {address}"))?;
    server::serve(server, handler, runtime).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_template_is_valid() {
        let filled = template(None)
            .unwrap()
            .fill(&serde_json::json!({
                "metadata": { "name": "prod" },
                "infrastructure": { "spec": { "identityRef": { "name": "prod-cloud-config", "cloudName": "openstack" } } },
            }))
            .unwrap();
        assert_eq!(filled.spec["kubeconfig"]["secretRef"]["name"], "prod-kubeconfig");
        assert_eq!(filled.spec["openstack"]["identityRef"]["name"], "prod-cloud-config");
    }

    #[test]
    fn the_error_of_an_invalid_template_is_one_line_with_the_file() {
        let error = template(Some(Path::new("/nonexistent/template.yaml"))).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/template.yaml") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn a_template_with_a_namespace_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("template.yaml");
        for (namespace, is_good) in [("", true), ("namespace: elsewhere\n", false)] {
            std::fs::write(&file, format!("{namespace}{TEMPLATE}")).unwrap();
            match template(Some(file.as_path())) {
                Ok(_) => assert!(is_good),
                Err(error) => {
                    assert!(!is_good && error.to_string().contains("namespace of the Cluster"), "{error}");
                }
            }
        }
    }
}
