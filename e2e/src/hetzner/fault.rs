//! Faults that a test puts in the way of requests.

use http::Method;
use std::time::Duration;

use super::refusal::Code;

/// What the client sees of a faulty request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The API's error body for that code.
    Refuse(Code),
    /// That HTTP status with an HTML page, as a gateway in front of the API would send.
    Page(u16),
    /// No answer; the connection stays open until the client goes or the stand-in stops.
    Silence,
    /// The connection is closed without an answer.
    Cut,
    /// The true answer, that much later.
    Late(Duration),
}

/// A fault for the next requests of one kind.
#[derive(Clone, Debug)]
pub struct Injection {
    method: Option<Method>,
    path: String,
    left: usize,
    acts: bool,
    answer: Answer,
}

impl Injection {
    /// For the next request with that method (`*`: any) and path below `/v1` (`*`: any one segment, a last `**`: the rest).
    /// Nothing is done before the answer.
    pub fn new(method: &str, path: &str, answer: Answer) -> Self {
        // What is no method matches nothing rather than everything.
        let method = (method != "*").then(|| Method::from_bytes(method.as_bytes()).unwrap_or(Method::TRACE));
        Self { method, path: path.to_owned(), left: 1, acts: false, answer }
    }

    /// For that many requests instead of one.
    #[must_use]
    pub fn times(self, left: usize) -> Self {
        Self { left, ..self }
    }

    /// The request is carried out before it is answered wrongly (or, for `Late`, before the wait).
    #[must_use]
    pub fn after_acting(self) -> Self {
        Self { acts: true, ..self }
    }

    fn matches(&self, method: &Method, path: &str) -> bool {
        self.left > 0
            && self.method.as_ref().is_none_or(|wanted| wanted == method)
            && path_matches(&self.path, path)
    }
}

fn path_matches(pattern: &str, path: &str) -> bool {
    let mut wanted = pattern.trim_matches('/').split('/');
    let mut given = path.trim_matches('/').split('/');
    loop {
        match (wanted.next(), given.next()) {
            (Some("**"), _) | (None, None) => return true,
            (Some("*"), Some(_)) => {}
            (Some(wanted), Some(given)) if wanted == given => {}
            _ => return false,
        }
    }
}

/// A fault chosen for one request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault {
    pub answer: Answer,
    pub acts: bool,
}

/// Those still to come, first come first served.
#[derive(Debug, Default)]
pub(super) struct Injections(Vec<Injection>);

impl Injections {
    pub fn add(&mut self, injection: Injection) {
        self.0.push(injection);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn left(&self) -> usize {
        self.0.iter().map(|injection| injection.left).sum()
    }

    pub fn take(&mut self, method: &Method, path: &str) -> Option<Fault> {
        let injection = self.0.iter_mut().find(|injection| injection.matches(method, path))?;
        injection.left -= 1;
        let fault = Fault { answer: injection.answer, acts: injection.acts };
        self.0.retain(|injection| injection.left > 0);
        Some(fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        assert!(path_matches("/networks/*/actions/add_route", "/networks/1/actions/add_route"));
        assert!(path_matches("**", "/anything/at/all"));
        assert!(path_matches("/servers/**", "/servers/1"));
        assert!(!path_matches("/networks/*", "/networks"));
        assert!(!path_matches("/networks", "/networks/1"));
    }

    #[test]
    fn each_injection_is_used_up() {
        let mut injections = Injections::default();
        injections.add(Injection::new("POST", "/networks/**", Answer::Refuse(Code::Locked)).times(2));
        assert!(injections.take(&Method::GET, "/networks/1").is_none());
        assert!(injections.take(&Method::POST, "/networks/1").is_some());
        assert_eq!(injections.left(), 1);
        assert!(injections.take(&Method::POST, "/networks/1").is_some());
        assert!(injections.take(&Method::POST, "/networks/1").is_none());
    }
}
