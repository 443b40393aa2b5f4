//! The login: all clones of a client share one token, which one caller renews while the others wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderValue, Method};
use jiff::Timestamp;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Metrics;
use super::catalog;
use super::credentials::Credentials;
use super::endpoint_override::EndpointOverride;
use super::error::Error;
use super::keystone::{self, Token};
use super::service::Service;
use crate::cloud::http::{Budget, Endpoint, Limits, Response, Trust, Wire, json_request};

/// Nova takes long for a page of detailed servers, and a write in Neutron waits for its database.
const LIMITS: Limits = Limits { exchange: Duration::from_secs(60), bytes: 32 << 20 };
/// For a login with its retries; all callers wait for it.
const LOGIN: Duration = Duration::from_secs(60);
/// For a renewal while the old token is still valid: the callers must not wait long for it.
const EARLY: Duration = Duration::from_secs(10);
/// Time between two attempts of an early renewal, at least.
const PAUSE: Duration = Duration::from_secs(10);

/// The data that every exchange needs, and the shared login.
pub(super) struct Shared {
    pub wire: Wire,
    pub user_agent: HeaderValue,
    credentials: Credentials,
    identity: Endpoint,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    /// The last failure and its time: for callers that were waiting at that time.
    failed: Option<(Instant, Error)>,
    /// Before this the token is not renewed early again.
    pause: Option<Instant>,
}

/// A token and the endpoints of its catalogue.
pub(super) struct Session {
    pub token: Token,
    endpoints: BTreeMap<Service, Result<Endpoint, Error>>,
    /// Services that the catalogue lists.
    listed: Vec<Service>,
    /// Whether servers of another region's Nova may have ports in our Neutron.
    pub shares_neutron: bool,
}

impl Session {
    /// The endpoint of a service; the error says what the catalogue has instead.
    pub fn endpoint(&self, service: Service) -> Result<&Endpoint, Error> {
        match self.endpoints.get(&service) {
            Some(Ok(endpoint)) => Ok(endpoint),
            Some(Err(error)) => Err(error.clone()),
            None => Err(Error::service(format!("OpenStack {service}"), "the catalogue was not read for it")),
        }
    }

    /// Whether the catalogue lists a service.
    pub fn lists(&self, service: Service) -> bool {
        self.listed.contains(&service)
    }

    /// All usable endpoints.
    fn reached(&self) -> impl Iterator<Item = &Endpoint> {
        self.endpoints.values().filter_map(|endpoint| endpoint.as_ref().ok())
    }
}

/// The exposed endpoints on hosts that are not known yet, one for each host: a renewed token must not repeat the warnings.
fn newly_exposed<'a>(
    known: impl Iterator<Item = &'a Endpoint>,
    now: impl Iterator<Item = &'a Endpoint>,
) -> Vec<&'a Endpoint> {
    let mut hosts: BTreeSet<&str> = known.map(Endpoint::host).collect();
    now.filter(|endpoint| endpoint.is_exposed() && hosts.insert(endpoint.host())).collect()
}

impl Shared {
    pub fn new(credentials: &Credentials, user_agent: &str, metrics: &Metrics) -> Result<Shared, Error> {
        let call = "OpenStack client";
        let identity = Endpoint::parse(&credentials.auth_url)
            .map_err(|cause| Error::setup(call, format!("auth_url: {cause}")))?;
        identity.warn_if_exposed();
        if credentials.trust == Trust::InsecureSkipVerify {
            tracing::warn!(
                auth_url = credentials.auth_url,
                "TLS certificates of this cloud are not verified: an attacker on the network can take the credential"
            );
        }
        let wire = |trust: &Trust| Wire::new("openstack", trust, LIMITS, metrics.0.clone());
        let wire = match wire(&credentials.trust) {
            // Without TLS, no trusted authorities are needed.
            Err(_) if credentials.trust == Trust::System && !identity.tls() => wire(&Trust::Plain),
            end => end,
        }
        .map_err(|cause| Error::setup(call, cause.to_string()))?;
        let user_agent = HeaderValue::try_from(user_agent)
            .map_err(|_| Error::setup(call, "the user agent has characters that a header cannot carry"))?;
        let credentials = credentials.clone();
        Ok(Shared { wire, user_agent, credentials, identity, state: Mutex::default() })
    }

    /// The credentials; their `Debug` shows no secret.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// The texts that no message may contain.
    pub fn secrets<'a>(&'a self, session: Option<&'a Session>) -> Vec<&'a str> {
        let mut secrets = vec![self.credentials.login.secret()];
        secrets.extend(session.map(|session| session.token.text()));
        secrets
    }

    /// A valid token. It is renewed early, so that no call fails first. If the early renewal fails, the old token is used while it is
    /// valid, unless Keystone refuses the credential itself.
    pub async fn session(&self) -> Result<Arc<Session>, Error> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        let now = Instant::now();
        let Some(session) = state.session.clone().filter(|session| now < session.token.expires) else {
            return self.log_in(&mut state, asked, LOGIN).await;
        };
        if now < session.token.renew || state.pause.is_some_and(|pause| now < pause) {
            return Ok(session);
        }
        match self.log_in(&mut state, asked, EARLY).await {
            // The error of a proxy is not a refusal.
            Err(error)
                if !error.is_unauthorized() && !error.is_forbidden() && !error.is_credential_gone() =>
            {
                tracing::warn!(%error, "the token could not be renewed; the old one is used until it expires");
                state.pause = Some(Instant::now() + error.retry_after().unwrap_or_default().max(PAUSE));
                Ok(session)
            }
            end => end,
        }
    }

    /// Another token than `refused`: the one that another caller has obtained, or a new one.
    pub async fn renewed(&self, refused: &Arc<Session>) -> Result<Arc<Session>, Error> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        match &state.session {
            Some(session) if !Arc::ptr_eq(session, refused) && Instant::now() < session.token.renew => {
                Ok(session.clone())
            }
            _ => self.log_in(&mut state, asked, LOGIN).await,
        }
    }

    /// Logs in, unless another caller failed to do so while this one waited for the lock: the result would be the same, and repeated
    /// attempts with a wrong password can lock the user.
    async fn log_in(
        &self,
        state: &mut State,
        asked: Instant,
        within: Duration,
    ) -> Result<Arc<Session>, Error> {
        if let Some((at, error)) = &state.failed
            && *at > asked
        {
            return Err(error.clone());
        }
        match self.token(within, state.session.as_deref()).await {
            Ok(token) => {
                let session = Arc::new(self.session_of(token));
                let known = state.session.iter().flat_map(|before| before.reached());
                newly_exposed(known.chain([&self.identity]), session.reached())
                    .iter()
                    .for_each(|endpoint| endpoint.warn_if_exposed());
                *state = State { session: Some(session.clone()), ..State::default() };
                Ok(session)
            }
            Err(error) => {
                state.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    fn session_of(&self, token: Token) -> Session {
        let Credentials { interface, region, endpoint_overrides, .. } = &self.credentials;
        let none = EndpointOverride::default();
        let override_of = |service: Service| endpoint_overrides.get(&service).unwrap_or(&none);
        let region_of = |service: Service| override_of(service).region.as_deref().or(region.as_deref());
        let url_of = |service: Service| override_of(service).url.as_deref();
        let found = |service: Service| -> Result<Endpoint, String> {
            if let Some(url) = url_of(service) {
                let base = catalog::base(service, url, &token.project)
                    .ok_or_else(|| format!("its endpoint in the credentials, {url}, cannot be used"))?;
                return Endpoint::parse(&base)
                    .map_err(|cause| format!("its endpoint in the credentials, {url}: {cause}"));
            }
            let interface = override_of(service).interface.unwrap_or(*interface);
            let url = token.catalog.choose(service, interface, region_of(service), &token.project)?;
            Endpoint::parse(&url).map_err(|cause| format!("its endpoint in the catalogue, {url}: {cause}"))
        };
        let endpoint = |service: Service| {
            let call = format!("OpenStack {service}");
            let is_outdated =
                url_of(service).is_none() && token.catalog.is_outdated(service, region_of(service));
            found(service).map_err(|why| match is_outdated {
                true => Error::outdated(call, why),
                false => Error::service(call, why),
            })
        };
        let mut endpoints: BTreeMap<_, _> =
            Service::ALL.into_iter().map(|service| (service, endpoint(service))).collect();
        endpoints.insert(Service::Identity, Ok(self.identity.clone()));
        let is_listed = |service: &Service| {
            url_of(*service).is_some() || token.catalog.lists(*service, region_of(*service))
        };
        let listed = Service::ALL.into_iter().filter(is_listed).collect();
        let shares_neutron = token.catalog.shares_neutron(
            region_of(Service::Compute),
            region_of(Service::Network),
            url_of(Service::Network),
        );
        Session { token, endpoints, listed, shares_neutron }
    }

    /// `POST /v3/auth/tokens`. It changes nothing permanently, so it is retried like a read. `before`: the session whose token may still
    /// be valid.
    async fn token(&self, within: Duration, before: Option<&Session>) -> Result<Token, Error> {
        let call = format!(
            "{} POST {}",
            Service::Identity,
            self.identity
                .at("/auth/tokens")
                .map_or_else(|_| "/v3/auth/tokens".to_owned(), |uri| uri.path().to_owned(),)
        );
        let mut budget = Budget::with_timeout(within);
        loop {
            let asked = Instant::now();
            let end = match self.request(&call, &budget).await {
                Ok(response) if response.status.is_success() => {
                    let login = &self.credentials.login;
                    return keystone::token(&response, login, asked, Timestamp::now())
                        .map_err(|why| Error::decode(&call, why));
                }
                Ok(response) => Error::login(&call, &response, &self.secrets(before)),
                Err(error) => error,
            };
            let Some(wait) = budget.next_wait(end.retry()) else { return Err(end) };
            tracing::debug!(error = %end, after = ?wait, "the login is retried");
            tokio::time::sleep(wait).await;
        }
    }

    async fn request(&self, call: &str, budget: &Budget) -> Result<Response, Error> {
        let uri = self.identity.at("/auth/tokens").map_err(|cause| Error::setup(call, cause.to_string()))?;
        let path = uri.path().to_owned();
        let body = keystone::request(&self.credentials.login);
        let request = json_request(&Method::POST, uri, &self.user_agent, Some(&body));
        let deadline = budget.deadline().min(self.wire.deadline());
        let end = self.wire.exchange(request, Service::Identity.name(), &path, deadline).await;
        end.map_err(|cause| Error::transport(call, cause))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exposed_host_is_reported_once() {
        let parse = |url: &&str| Endpoint::parse(url).unwrap();
        let identity = [parse(&"http://10.0.0.1:5000/v3")];
        let first: Vec<Endpoint> =
            ["http://10.0.0.1:9696", "http://10.0.0.2:8774", "http://10.0.0.2:8776", "https://10.0.0.3:9876"]
                .iter()
                .map(parse)
                .collect();
        let new = newly_exposed(identity.iter(), first.iter());
        assert_eq!(new.iter().map(|one| one.url()).collect::<Vec<_>>(), ["http://10.0.0.2:8774"]);
        assert!(
            newly_exposed(identity.iter().chain(&first), first.iter()).is_empty(),
            "a renewal reports nothing"
        );
    }
}
