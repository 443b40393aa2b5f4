//! A client certificate that the cluster issues. The kubeconfig, in a file or a Secret, holds it from one start to the next.
//!
//! ```text
//!   start   the kubeconfig's certificate is valid    ─▶ used
//!           else: a request with the bootstrap kubeconfig  ─▶ kubeconfig written, used
//!   later   70 to 90 % of its lifetime are over: a request with it ─▶ used by new connections, kubeconfig written
//! ```

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::Context;
use base64::{Engine as _, prelude::BASE64_STANDARD};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Config,
    api::{Patch, PatchParams},
    config::{AuthInfo, Kubeconfig, NamedAuthInfo},
};

use super::{
    Connections, Factory, MAIN, RETRIES, error_chain, invalid,
    kubeconfig::{self, KubeconfigIn, SECRET_KEY},
    signing_request::{self, Pair, Validity},
    unusable,
};
use crate::{
    args::{ClientArgs, IssuedCertificate},
    backoff::Backoff,
    secret::SecretError,
};

/// Of a request that failed, and of a kubeconfig that cannot be written.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(1), max: Duration::from_secs(300) };

/// How often the clock is read: timers do not run while a machine is suspended.
const INTERVAL: Duration = Duration::from_secs(30);

/// Where the kubeconfig is.
pub(super) enum Store {
    File(PathBuf),
    /// With the field manager of the writes.
    Secret(KubeconfigIn, &'static str),
}

impl Store {
    /// None: there is none yet.
    async fn read(&self) -> anyhow::Result<Option<Kubeconfig>> {
        match self {
            Store::File(path) => Ok(of_file(path).map_err(invalid)?),
            Store::Secret(secret, _) => {
                let secret = match secret.read().await {
                    Ok(secret) => secret,
                    Err(SecretError::Missing(_)) => return Ok(None),
                    Err(error) => return Err(unusable(error)),
                };
                match secret.data().get(SECRET_KEY) {
                    None => Ok(None),
                    Some(value) if value.is_empty() => Ok(None),
                    Some(_) => {
                        let text = secret.text(SECRET_KEY).map_err(unusable)?;
                        let read = kubeconfig::self_contained(text);
                        let invalid =
                            |error: anyhow::Error| unusable(secret.invalid(SECRET_KEY, error_chain(&*error)));
                        read.map(Some).map_err(invalid)
                    }
                }
            }
        }
    }

    async fn write(&self, kubeconfig: &Kubeconfig) -> anyhow::Result<()> {
        let text = serde_yaml::to_string(kubeconfig)?;
        match self {
            Store::File(path) => {
                replace(path, &text).with_context(|| format!("kubeconfig {}", path.display()))
            }
            Store::Secret(KubeconfigIn { client, namespace, name }, manager) => {
                let mut secret = Secret::default();
                secret.metadata.name = Some(name.clone());
                secret.data = Some([(SECRET_KEY.to_owned(), ByteString(text.into_bytes()))].into());
                let secrets = Api::<Secret>::namespaced(client.clone(), namespace);
                let parameters = PatchParams::apply(manager).force();
                let written = secrets.patch(name, &parameters, &Patch::Apply(secret)).await;
                written.map(drop).with_context(|| format!("Secret {namespace}/{name}"))
            }
        }
    }
}

/// None: the file does not exist, or is empty.
fn of_file(path: &Path) -> anyhow::Result<Option<Kubeconfig>> {
    match std::fs::read(path) {
        Ok(text) if text.is_empty() => return Ok(None),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        _ => {}
    }
    let read = Kubeconfig::read_from(path).map_err(kubeconfig::readable);
    read.map(Some).with_context(|| format!("kubeconfig {}", path.display()))
}

/// Replaces the file at once, so that a reader sees the old or the new content. Only the owner can read it.
fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut file = tempfile::NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

/// A kubeconfig, and the validity of its client certificate.
struct Current {
    kubeconfig: Kubeconfig,
    config: Config,
    /// None: the kubeconfig has another credential.
    validity: Option<Validity>,
}

impl Current {
    async fn new(kubeconfig: Kubeconfig, args: &ClientArgs) -> anyhow::Result<Current> {
        let mut config = kubeconfig::of_kubeconfig(kubeconfig.clone(), args.given_context()).await?;
        kubeconfig::impersonate(&mut config, args);
        let validity = certificate(&config)?.map(|pem| Validity::of_pem(&pem)).transpose()?;
        Ok(Current { kubeconfig, config, validity })
    }

    fn is_expired(&self) -> bool {
        self.validity.is_some_and(|validity| validity.is_expired(SystemTime::now()))
    }

    fn renewal(&self) -> SystemTime {
        self.validity.map_or(SystemTime::UNIX_EPOCH, |validity| validity.renewal(fastrand::f64()))
    }
}

/// The client certificate of the configuration, in PEM.
fn certificate(config: &Config) -> anyhow::Result<Option<Vec<u8>>> {
    let AuthInfo { client_certificate_data: data, client_certificate: file, .. } = &config.auth_info;
    match (data, file) {
        (Some(data), _) => Ok(Some(BASE64_STANDARD.decode(data).context("client-certificate-data")?)),
        (None, Some(file)) => {
            Ok(Some(std::fs::read(file).with_context(|| format!("client certificate {file}"))?))
        }
        (None, None) => Ok(None),
    }
}

/// The kubeconfig with this certificate instead of the credential of the context, and without the files that it names.
fn with_pair(
    mut kubeconfig: Kubeconfig,
    context: Option<&String>,
    pair: &Pair,
) -> anyhow::Result<Kubeconfig> {
    let current = context.or(kubeconfig.current_context.as_ref()).cloned();
    let context = kubeconfig.contexts.iter_mut().filter(|one| Some(&one.name) == current.as_ref());
    let context =
        context.filter_map(|one| one.context.as_mut()).next().context("kubeconfig without a context")?;
    let user = context.user.get_or_insert_with(|| "default".to_owned()).clone();
    for cluster in kubeconfig.clusters.iter_mut().filter(|one| one.name == context.cluster) {
        let Some(cluster) = &mut cluster.cluster else { continue };
        if let Some(file) = cluster.certificate_authority.take().filter(|file| !file.is_empty()) {
            let ca = std::fs::read(&file).with_context(|| format!("certificate-authority {file}"))?;
            cluster.certificate_authority_data.get_or_insert_with(|| BASE64_STANDARD.encode(ca));
        }
    }
    kubeconfig.current_context = current;
    kubeconfig.auth_infos.retain(|one| one.name != user);
    let auth_info = AuthInfo {
        client_certificate_data: Some(BASE64_STANDARD.encode(&pair.certificate)),
        client_key_data: Some(BASE64_STANDARD.encode(&pair.key).into()),
        ..AuthInfo::default()
    };
    kubeconfig.auth_infos.push(NamedAuthInfo {
        name: user,
        auth_info: Some(auth_info),
        ..NamedAuthInfo::default()
    });
    Ok(kubeconfig)
}

/// The input of each request.
struct Requests {
    certificate: IssuedCertificate,
    args: ClientArgs,
    factory: Factory,
}

impl Requests {
    /// A new certificate, with the credential of `current`, or of the bootstrap kubeconfig if that is not valid.
    async fn renew(&self, current: Option<&Current>) -> anyhow::Result<Current> {
        let bootstrap = match (&self.certificate.bootstrap_kubeconfig, current) {
            (Some(path), current) if current.is_none_or(Current::is_expired) => self.bootstrap(path).await?,
            _ => None,
        };
        let current = bootstrap
            .as_ref()
            .or(current)
            .context("there is neither a kubeconfig with a valid credential nor a bootstrap kubeconfig")?;
        let connections = Connections::new(&current.config)?;
        let client = self.factory.client(&current.config, &connections, None, Some(RETRIES))?;
        let pair = signing_request::request(&client, &self.certificate, self.factory.program.name).await?;
        let kubeconfig = with_pair(current.kubeconfig.clone(), self.args.given_context(), &pair)?;
        Current::new(kubeconfig, &self.args).await
    }

    /// In the context of the flags: the kubeconfig with the certificate is made from it and is used in this context. Without it, each
    /// start would request a certificate and then fail.
    async fn bootstrap(&self, path: &Path) -> anyhow::Result<Option<Current>> {
        let Some(kubeconfig) = of_file(path).map_err(invalid)? else { return Ok(None) };
        let args = ClientArgs { context: self.args.context.clone(), ..ClientArgs::default() };
        let current = Current::new(kubeconfig, &args).await;
        let named = current.with_context(|| format!("bootstrap kubeconfig {}", path.display()));
        Ok(Some(named.map_err(invalid)?))
    }
}

/// The configuration with a valid certificate, which is requested and written if there is none. That of the connections is renewed, if
/// the arguments say so.
///
/// # Errors
/// [`ConfigError`](crate::config::ConfigError) where a kubeconfig cannot be used; another error where the certificate is not issued,
/// or the kubeconfig cannot be read or written at present.
pub(super) async fn obtain(
    certificate: &IssuedCertificate,
    store: Store,
    args: &ClientArgs,
    factory: &Factory,
) -> anyhow::Result<(Config, Connections)> {
    let requests =
        Requests { certificate: certificate.clone(), args: args.clone(), factory: factory.clone() };
    let current = match store.read().await? {
        None => None,
        Some(kubeconfig) => {
            let current = Current::new(kubeconfig, args).await;
            Some(current.map_err(invalid)?)
        }
    };
    let is_usable = |current: &Current| match current.validity {
        Some(_) => !current.is_expired(),
        // A token, for example. It serves to request a certificate, if one is wanted.
        None => !certificate.rotate,
    };
    let current = match current {
        Some(current) if is_usable(&current) => current,
        current => {
            let new = requests.renew(current.as_ref()).await.context("client certificate")?;
            store.write(&new.kubeconfig).await?;
            tracing::info!(user = certificate.user, "client certificate issued");
            new
        }
    };
    let config = current.config.clone();
    let connections = Connections::new(&config)?;
    if certificate.rotate {
        tokio::spawn(rotate(requests, store, current, connections.clone()));
    }
    Ok((config, connections))
}

/// Renews the certificate for as long as the process runs.
async fn rotate(requests: Requests, store: Store, mut current: Current, connections: Connections) {
    let cluster = match requests.factory.api {
        MAIN => "the cluster",
        name => name,
    };
    let mut renewal = current.renewal();
    loop {
        until(renewal).await;
        let failed = format!("the client certificate for {cluster} is not renewed");
        let renew = || async {
            let new = requests.renew(Some(&current)).await?;
            connections.replace(&new.config)?;
            Ok(new)
        };
        let new = until_done(&failed, renew).await;
        tracing::info!("client certificate for {cluster} renewed");
        renewal = new.renewal();
        let failed = format!("the renewed client certificate for {cluster} is not stored");
        until_stored(&failed, renewal, || store.write(&new.kubeconfig)).await;
        current = new;
        // By a clock that is ahead, a new certificate is due at once.
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Waits for this time of the clock.
async fn until(time: SystemTime) {
    while let Ok(remaining) = time.duration_since(SystemTime::now()) {
        tokio::time::sleep(remaining.clamp(Duration::from_millis(1), INTERVAL)).await;
    }
}

/// Tries to write the kubeconfig until it is stored, or until its certificate has to be renewed: where no write succeeds, as in a
/// read-only folder, the certificate in use must not expire.
async fn until_stored<F: Future<Output = anyhow::Result<()>>>(
    failed: &str,
    renewal: SystemTime,
    write: impl Fn() -> F,
) {
    let due = async {
        tokio::time::sleep(INTERVAL).await;
        until(renewal).await;
    };
    tokio::select! {
        () = until_done(failed, write) => {}
        () = due => {}
    }
}

/// Tries again after each failure, which is logged as `failed`.
async fn until_done<T, F: Future<Output = anyhow::Result<T>>>(failed: &str, work: impl Fn() -> F) -> T {
    let mut failures = 0;
    loop {
        match work().await {
            Ok(done) => return done,
            Err(error) => tracing::warn!(error = error_chain(&*error), "{failed}"),
        }
        failures += 1;
        tokio::time::sleep(BACKOFF.delay(failures)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::{config::ConfigError, metrics::Metrics};

    #[tokio::test]
    async fn a_bootstrap_kubeconfig_without_the_context_is_refused_before_the_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bootstrap");
        let text = "current-context: a\nclusters: [{name: a, cluster: {server: 'http://127.0.0.1:9'}}]\nusers: []\n\
                    contexts: [{name: a, context: {cluster: a}}]\n";
        std::fs::write(&path, text).unwrap();
        let renew = async |context: &str| {
            let certificate = IssuedCertificate {
                bootstrap_kubeconfig: Some(path.clone()),
                rotate: false,
                user: "u".to_owned(),
                group: "g".to_owned(),
            };
            let args = ClientArgs { context: Some(context.to_owned()), ..ClientArgs::default() };
            let factory =
                Factory { program: crate::program!(), metrics: Metrics::new("test").unwrap(), api: MAIN };
            Requests { certificate, args, factory }.renew(None).await.err().unwrap()
        };
        let refused = renew("missing").await;
        let text = error_chain(&*refused);
        assert!(
            refused.is::<ConfigError>() && text.contains("missing") && text.contains("/bootstrap"),
            "{text}"
        );
        // No server responds to the requests of these.
        for context in ["a", ""] {
            let text = error_chain(&*renew(context).await);
            assert!(text.contains("CertificateSigningRequest cannot be created"), "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_retried_with_backoff_until_it_succeeds() {
        let (start, tries) = (tokio::time::Instant::now(), Cell::new(0));
        let work = || async {
            tries.set(tries.get() + 1);
            anyhow::ensure!(tries.get() == 4, "refused");
            Ok("issued")
        };
        assert_eq!(until_done("the certificate is not issued", work).await, "issued");
        assert_eq!(start.elapsed(), Duration::from_secs(1 + 2 + 4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_kubeconfig_that_cannot_be_written_does_not_prevent_the_next_renewal() {
        let tries = Cell::new(0);
        let write = || async {
            tries.set(tries.get() + 1);
            Err::<(), _>(anyhow::anyhow!("read-only file system"))
        };
        let stored = until_stored("the certificate is not stored", SystemTime::UNIX_EPOCH, write);
        let ended = tokio::time::timeout(Duration::from_secs(60 * 60), stored).await;
        assert!(ended.is_ok() && tries.get() > 1, "{} tries", tries.get());
    }
}
