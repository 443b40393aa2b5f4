//! Kubeconfigs: in files, in Secrets, and the Pod's service account.

use std::path::{Path, PathBuf};

use anyhow::Context;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};

use super::error_chain;
use crate::{
    args::ClientArgs,
    secret::{SecretData, SecretError},
};

/// The key of the kubeconfig in a Secret of the flags.
pub(super) const SECRET_KEY: &str = "kubeconfig";

/// A kubeconfig in a Secret.
#[derive(Clone)]
pub(super) struct KubeconfigIn {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl KubeconfigIn {
    /// The configuration in it, as [`of_text`] takes it.
    ///
    /// # Errors
    /// See [`SecretError`].
    pub(super) async fn configuration(&self) -> Result<Config, SecretError> {
        let secret = self.read().await?;
        let config = of_text(secret.text(SECRET_KEY)?).await;
        config.map_err(|error| secret.invalid(SECRET_KEY, error_chain(&*error)))
    }

    /// # Errors
    /// See [`SecretError`].
    pub(super) async fn read(&self) -> Result<SecretData, SecretError> {
        SecretData::read(&self.client, &self.namespace, &self.name).await
    }
}

/// The configuration of a kubeconfig that is not in a file.
///
/// # Errors
/// It is invalid, or names files or a program.
pub(super) async fn of_text(text: &str) -> anyhow::Result<Config> {
    of_kubeconfig(self_contained(text)?, None).await
}

/// The configuration of a context, or of the current one.
///
/// # Errors
/// It is invalid.
pub(super) async fn of_kubeconfig(
    kubeconfig: Kubeconfig,
    context: Option<&String>,
) -> anyhow::Result<Config> {
    let options = KubeConfigOptions { context: context.cloned(), ..KubeConfigOptions::default() };
    let kubeconfig = without_empty_fields(of_context(kubeconfig, context));
    with_own_proxy(kubeconfig, options).await.map_err(readable)
}

/// A kubeconfig that names no files and no program in its current context.
///
/// # Errors
/// It is invalid, or names some.
pub(super) fn self_contained(text: &str) -> anyhow::Result<Kubeconfig> {
    let kubeconfig = of_context(Kubeconfig::from_yaml(text).map_err(readable)?, None);
    let kubeconfig = without_empty_fields(kubeconfig);
    for cluster in kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref()) {
        anyhow::ensure!(
            cluster.certificate_authority.is_none(),
            "certificate-authority names a file; put its content into certificate-authority-data"
        );
    }
    for user in kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref()) {
        anyhow::ensure!(
            user.exec.is_none() && user.auth_provider.is_none(),
            "a user logs in by a program (exec, auth-provider); use a token or a client certificate"
        );
        let files =
            user.client_certificate.is_some() || user.client_key.is_some() || user.token_file.is_some();
        anyhow::ensure!(
            !files,
            "a user names files; put their content into client-certificate-data, client-key-data or token"
        );
    }
    Ok(kubeconfig)
}

/// `proxy_url` is only what the kubeconfig itself says.
async fn with_own_proxy(
    kubeconfig: Kubeconfig,
    options: KubeConfigOptions,
) -> Result<Config, KubeconfigError> {
    let proxied =
        kubeconfig.clusters.iter().filter_map(|one| one.cluster.as_ref()).any(|one| one.proxy_url.is_some());
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    // kube takes it from the environment, and ignores NO_PROXY.
    config.proxy_url = config.proxy_url.filter(|_| proxied);
    Ok(config)
}

/// The kubeconfig with only the cluster and the user of this context, or of the current one. kube reads no others.
fn of_context(mut kubeconfig: Kubeconfig, name: Option<&String>) -> Kubeconfig {
    let name = name.or(kubeconfig.current_context.as_ref());
    let context = kubeconfig.contexts.iter().find(|one| Some(&one.name) == name);
    if let Some(context) = context.and_then(|one| one.context.as_ref()) {
        kubeconfig.clusters.retain(|one| one.name == context.cluster);
        kubeconfig.auth_infos.retain(|one| Some(&one.name) == context.user.as_ref());
    }
    kubeconfig
}

/// A field that a template has left empty is removed.
fn without_empty_fields(mut kubeconfig: Kubeconfig) -> Kubeconfig {
    let filled = |text: &mut Option<String>| *text = text.take().filter(|text| !text.is_empty());
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        filled(&mut cluster.certificate_authority);
        filled(&mut cluster.proxy_url);
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        filled(&mut user.client_certificate);
        filled(&mut user.client_key);
        filled(&mut user.token_file);
    }
    kubeconfig
}

/// The configuration that the flags describe, without a Secret.
///
/// # Errors
/// A file cannot be read or used.
pub(super) async fn configuration(args: &ClientArgs) -> anyhow::Result<Config> {
    let context = args.given_context();
    let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let mut config = match &args.kubeconfig {
        Some(files) if !files.is_empty() => of_kubeconfig(merge(std::env::split_paths(files))?, context)
            .await
            .with_context(|| format!("kubeconfig {}", Path::new(files).display()))?,
        _ if in_pod && context.is_none() => Config::incluster().context("service account of this Pod")?,
        _ => {
            let none = "neither --kubeconfig nor KUBECONFIG is given, and ~/.kube/config cannot be used";
            let kubeconfig = Kubeconfig::read().map_err(readable).context(none)?;
            of_kubeconfig(kubeconfig, context).await.context(none)?
        }
    };
    impersonate(&mut config, args);
    Ok(config)
}

/// As the flags say. The API server refuses a group without a user, and an empty name is one that a template has left empty.
pub(super) fn impersonate(config: &mut Config, args: &ClientArgs) {
    if let Some(user) = args.impersonate.as_ref().filter(|user| !user.is_empty()) {
        let groups = args.impersonate_groups.iter().filter(|group| !group.is_empty());
        config.auth_info.impersonate = Some(user.clone());
        config.auth_info.impersonate_groups = Some(groups.cloned().collect());
    }
}

/// The one file of the flags.
///
/// # Errors
/// There is none, or there are several.
#[cfg(feature = "certificates")]
pub(super) fn only_file(args: &ClientArgs) -> anyhow::Result<PathBuf> {
    let files = args.kubeconfig.as_ref().map(std::env::split_paths).into_iter().flatten();
    let mut files = files.filter(|file| !file.as_os_str().is_empty());
    match (files.next(), files.next()) {
        (Some(file), None) => Ok(file),
        _ => anyhow::bail!(
            "a certificate that the cluster issues needs a kubeconfig to be written to: one file, or a Secret"
        ),
    }
}

/// Several kubeconfig files are merged: the first one that sets a field wins, as for kubectl.
fn merge(files: impl Iterator<Item = PathBuf>) -> anyhow::Result<Kubeconfig> {
    files.filter(|file| !file.as_os_str().is_empty()).try_fold(Kubeconfig::default(), |all, file| {
        let one = Kubeconfig::read_from(&file).map_err(readable)?;
        all.merge(one).with_context(|| format!("kubeconfig {}", file.display()))
    })
}

/// The parser's own text has an excerpt and the wrong value, which can be a secret.
pub(super) fn readable(error: KubeconfigError) -> anyhow::Error {
    match error {
        KubeconfigError::Parse(error) => {
            let line = error.location().map(|at| format!("line {}: ", at.line())).unwrap_or_default();
            anyhow::anyhow!("{line}this is no YAML, or a field of another kind than a kubeconfig has there")
        }
        error => {
            let text = error.to_string();
            anyhow::anyhow!("{}", text.lines().next().unwrap_or("kubeconfig cannot be read"))
        }
    }
}
