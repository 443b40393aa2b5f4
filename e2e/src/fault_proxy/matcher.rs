//! Selects the requests that a rule applies to.

use std::fmt;
use std::sync::Arc;

use http::Method;

use super::call::Call;

type Predicate = Arc<dyn Fn(&Call) -> bool + Send + Sync>;

/// Matches requests that meet all conditions. `after` and `times` limit how often a rule applies.
#[derive(Clone, Default)]
pub struct Matcher {
    methods: Vec<Method>,
    predicates: Vec<Predicate>,
    after: u64,
    times: Option<u64>,
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matcher")
            .field("methods", &self.methods)
            .field("predicates", &self.predicates.len())
            .field("after", &self.after)
            .field("times", &self.times)
            .finish()
    }
}

impl Matcher {
    /// Every request.
    pub fn any() -> Matcher {
        Matcher::default()
    }

    /// Every POST, PUT, PATCH and DELETE.
    pub fn writes() -> Matcher {
        Matcher::any().when(Call::is_write)
    }

    /// Every other request.
    pub fn reads() -> Matcher {
        Matcher::any().when(|call| !call.is_write())
    }

    /// Every Kubernetes watch.
    pub fn watches() -> Matcher {
        Matcher::any().when(Call::is_watch)
    }

    /// Of this method; given twice, of one of them.
    #[must_use]
    pub fn method(mut self, method: Method) -> Matcher {
        self.methods.push(method);
        self
    }

    /// With a path (without the query) that matches `pattern`, in which each `*` stands for any run of characters,
    /// slashes included: `/api/v1/nodes*`, `/networks/*/actions/add_route`.
    #[must_use]
    pub fn path(self, pattern: &str) -> Matcher {
        let pattern = pattern.to_owned();
        self.when(move |call| like(&pattern, &call.path))
    }

    /// Of this RBAC verb: `watch`, `list`, `create`.
    #[must_use]
    pub fn verb(self, verb: &str) -> Matcher {
        let verb = verb.to_owned();
        self.when(move |call| call.kube().is_some_and(|request| request.verb == verb))
    }

    /// Of this Kubernetes resource, written as a Role writes it: `nodes`, `nodes/status`.
    #[must_use]
    pub fn resource(self, resource: &str) -> Matcher {
        let resource = resource.to_owned();
        self.when(move |call| call.kube().is_some_and(|request| request.full_resource() == resource))
    }

    /// For which `predicate` is true.
    #[must_use]
    pub fn when<P>(mut self, predicate: P) -> Matcher
    where
        P: Fn(&Call) -> bool + Send + Sync + 'static,
    {
        self.predicates.push(Arc::new(predicate));
        self
    }

    /// The rule skips the first `count` that match. Requests are counted, and events for faults of events.
    #[must_use]
    pub fn after(mut self, count: u64) -> Matcher {
        self.after = count;
        self
    }

    /// The rule applies at most `count` times.
    #[must_use]
    pub fn times(mut self, count: u64) -> Matcher {
        self.times = Some(count);
        self
    }

    /// Whether the request meets all conditions; the limits are not applied.
    pub fn matches(&self, call: &Call) -> bool {
        (self.methods.is_empty() || self.methods.contains(&call.method))
            && self.predicates.iter().all(|predicate| predicate(call))
    }

    /// Whether a rule that matched `matched` times before, and was applied `applied` times, applies now.
    pub(super) fn applies(&self, matched: u64, applied: u64) -> bool {
        matched >= self.after && self.times.is_none_or(|times| applied < times)
    }
}

/// Whether `text` is `pattern` with each `*` replaced by any text.
fn like(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let Some(tail) = pieces.pop() else { return true };
    for piece in pieces {
        // The leftmost match leaves the most for the other pieces.
        let Some((_, after)) = text.split_once(piece) else { return false };
        text = after;
    }
    text.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::like;

    #[test]
    fn stars_stand_for_any_run() {
        for (pattern, text, expected) in [
            ("/a", "/a", true),
            ("/a", "/a/b", false),
            ("/a*", "/a/b", true),
            ("*", "", true),
            ("/n/*/actions/*", "/n/5/actions/add", true),
            ("/n/*/actions/*", "/n/5/action/add", false),
            ("*/status", "/x/status/y", false),
            ("*/status", "/x/status", true),
            ("/a*a", "/a", false),
            ("*ab*ab", "abab", true),
            ("*ab*ab", "ab", false),
        ] {
            assert_eq!(like(pattern, text), expected, "{pattern} {text}");
        }
    }
}
