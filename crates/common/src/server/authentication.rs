//! Bearer tokens, reviewed by the API server: who the user is (TokenReview), and whether the user may make this request
//! (SubjectAccessReview of a non-resource URL), as controller-runtime protects its metrics.
//!
//! The program needs `create` for `tokenreviews.authentication.k8s.io`, and for `subjectaccessreviews.authorization.k8s.io`
//! where access is reviewed: the ClusterRole `system:auth-delegator` contains both.

use std::{
    collections::{BTreeMap, HashMap},
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use http::{
    StatusCode,
    header::{AUTHORIZATION, HeaderName},
    request,
};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{Api, Client, api::PostParams};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::Refusal;
use crate::cluster::error_chain;

/// How long a review that admits is used again: controller-runtime's. A revoked token or right may work for so long.
const ADMITTED: Duration = Duration::from_secs(60);

/// How long a review that refuses is used again: a client that repeats it costs the API server one request in that time.
const REFUSED: Duration = Duration::from_secs(10);

/// Reviews that are kept. A server has a few clients; more tokens than that are guesses.
const REVIEWS: usize = 256;

type Token = [u8; 32];

/// Authenticates requests by bearer token, and authorizes them where [`TokenAuthentication::with_access_review`] says so.
pub struct TokenAuthentication {
    client: Client,
    audiences: Vec<String>,
    /// Read where a request has no `Authorization`.
    second: Option<HeaderName>,
    reviews_access: bool,
    users: Reviews<Token, Result<UserInfo, Refusal>>,
    access: Reviews<(Token, String, String), Result<(), Refusal>>,
}

impl std::fmt::Debug for TokenAuthentication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenAuthentication").field("audiences", &self.audiences).finish_non_exhaustive()
    }
}

impl TokenAuthentication {
    /// Every token that the API server accepts for one of these audiences; without any, for the API server itself.
    #[must_use]
    pub fn new(client: Client, audiences: Vec<String>) -> TokenAuthentication {
        let (users, access) = (Reviews::default(), Reviews::default());
        TokenAuthentication { client, audiences, second: None, reviews_access: false, users, access }
    }

    /// Also reads the token from this header. The API server removes `Authorization` from a request that it proxies to a
    /// Service, so a client that comes through it needs another one.
    #[must_use]
    pub fn or_header(mut self, header: HeaderName) -> TokenAuthentication {
        self.second = Some(header);
        self
    }

    /// Admits a user only if RBAC permits the request: the method in lower case as the verb, the path as a nonResourceURL.
    #[must_use]
    pub fn with_access_review(mut self) -> TokenAuthentication {
        self.reviews_access = true;
        self
    }

    /// The user of a request.
    pub(super) async fn user(&self, head: &request::Parts) -> Result<UserInfo, Refusal> {
        let second = || self.second.as_ref().and_then(|header| bearer(head, header));
        let token = bearer(head, &AUTHORIZATION)
            .or_else(second)
            .ok_or_else(|| Refusal::new(StatusCode::UNAUTHORIZED, "a bearer token is required"))?;
        let digest: Token = Sha256::digest(token).into();
        let user = match self.users.get(&digest) {
            Some(user) => user,
            None => self.users.keep(digest, self.review(token).await?),
        }?;
        if self.reviews_access {
            let key = (digest, head.method.as_str().to_ascii_lowercase(), head.uri.path().to_owned());
            match self.access.get(&key) {
                Some(access) => access,
                None => {
                    let access = self.review_access(&user, &key.1, &key.2).await?;
                    self.access.keep(key, access)
                }
            }?;
        }
        Ok(user)
    }

    /// The outer error: there is no review.
    async fn review(&self, token: &str) -> Result<Result<UserInfo, Refusal>, Refusal> {
        let audiences = Some(self.audiences.clone()).filter(|audiences| !audiences.is_empty());
        let review = TokenReview {
            spec: TokenReviewSpec { token: Some(token.to_owned()), audiences },
            ..TokenReview::default()
        };
        let review =
            Api::<TokenReview>::all(self.client.clone()).create(&PostParams::default(), &review).await;
        let status = review.map_err(|error| unavailable("TokenReview", &error))?.status.unwrap_or_default();
        let accepted = status.audiences.unwrap_or_default();
        // An authenticator that does not know audiences reports none.
        let for_us =
            self.audiences.is_empty() || accepted.iter().any(|audience| self.audiences.contains(audience));
        Ok(match status.user {
            Some(user) if status.authenticated == Some(true) && for_us => Ok(user),
            _ => Err(Refusal::new(StatusCode::UNAUTHORIZED, "the token is not valid here")),
        })
    }

    async fn review_access(
        &self,
        user: &UserInfo,
        verb: &str,
        path: &str,
    ) -> Result<Result<(), Refusal>, Refusal> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: user.username.clone(),
                uid: user.uid.clone(),
                groups: user.groups.clone(),
                extra: user.extra.clone().map(|extra: BTreeMap<_, _>| extra),
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(path.to_owned()),
                    verb: Some(verb.to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let review = Api::<SubjectAccessReview>::all(self.client.clone())
            .create(&PostParams::default(), &review)
            .await;
        let status = review.map_err(|error| unavailable("SubjectAccessReview", &error))?.status;
        Ok(match status {
            Some(status) if status.allowed => Ok(()),
            _ => {
                let user = user.username.as_deref().unwrap_or_default();
                Err(Refusal::new(StatusCode::FORBIDDEN, format!("user {user} may not {verb} {path}")))
            }
        })
    }
}

fn bearer<'a>(head: &'a request::Parts, header: &HeaderName) -> Option<&'a str> {
    let (scheme, token) = head.headers.get(header)?.to_str().ok()?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

/// The error is for the log: it is no matter of the client.
fn unavailable(kind: &str, error: &kube::Error) -> Refusal {
    tracing::warn!(error = error_chain(error), "{kind} failed: a request cannot be authenticated");
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "requests cannot be authenticated at present; try again")
}

/// Results of reviews with the time until which they are used.
struct Reviews<K, V>(Mutex<HashMap<K, (Instant, V)>>);

impl<K, V> Default for Reviews<K, V> {
    fn default() -> Self {
        Reviews(Mutex::default())
    }
}

impl<K: Eq + Hash, T: Clone> Reviews<K, Result<T, Refusal>> {
    fn get(&self, key: &K) -> Option<Result<T, Refusal>> {
        let reviews = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reviews.get(key).filter(|(until, _)| *until > Instant::now()).map(|(_, result)| result.clone())
    }

    fn keep(&self, key: K, result: Result<T, Refusal>) -> Result<T, Refusal> {
        let now = Instant::now();
        let mut reviews = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reviews.len() >= REVIEWS {
            reviews.retain(|_, (until, _)| *until > now);
        }
        // Still full: an admitted client keeps its review, and a refused one is reviewed each time.
        if reviews.len() >= REVIEWS {
            reviews.retain(|_, (_, result)| result.is_ok());
        }
        if reviews.len() < REVIEWS {
            let until = now + if result.is_ok() { ADMITTED } else { REFUSED };
            reviews.insert(key, (until, result.clone()));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn reviews_end_and_their_number_is_limited() {
        let reviews = Reviews::default();
        let refused = || Err::<u32, _>(Refusal::new(StatusCode::UNAUTHORIZED, "no"));
        let (admitted, guess) = (reviews.keep(0, Ok(7)), reviews.keep(1, refused()));
        assert_eq!((reviews.get(&0), reviews.get(&1)), (Some(admitted), Some(guess)));
        tokio::time::advance(REFUSED).await;
        assert_eq!((reviews.get(&0), reviews.get(&1)), (Some(Ok(7)), None));
        for token in 2..2 * REVIEWS {
            let _refused = reviews.keep(token, refused());
        }
        assert!(reviews.0.lock().unwrap().len() <= REVIEWS);
        assert_eq!(reviews.get(&0), Some(Ok(7)), "guesses do not replace an admitted client");
        tokio::time::advance(ADMITTED).await;
        assert_eq!(reviews.get(&0), None);
    }

    #[test]
    fn a_bearer_token_is_read_whatever_the_case_of_its_scheme() {
        let token = |header: Option<&str>| {
            let mut request = http::Request::builder();
            if let Some(header) = header {
                request = request.header(AUTHORIZATION, header);
            }
            let (head, ()) = request.body(()).unwrap().into_parts();
            bearer(&head, &AUTHORIZATION).map(str::to_owned)
        };
        assert_eq!(token(Some("Bearer a.b")), Some("a.b".to_owned()));
        assert_eq!(token(Some("bearer a.b")), Some("a.b".to_owned()));
        for header in [None, Some("Bearer "), Some("Basic YTpi"), Some("a.b")] {
            assert_eq!(token(header), None, "{header:?}");
        }
    }
}
