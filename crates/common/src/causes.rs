//! What an error says to a person.

use std::error::Error;

/// An error and what caused it, down to the last ("connection refused"), in one line, nothing said twice. What an API server
/// answered is in its own words, without the rest of its Status.
#[must_use]
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = said(error);
    let mut last = error;
    while let Some(cause) = last.source().filter(|_| !is_answer(last)) {
        let more = said(cause);
        // Many errors already say what their cause says.
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        last = cause;
    }
    text
}

fn said(error: &(dyn Error + 'static)) -> String {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) if status.message.is_empty() => {
            format!("the API server answered {} {}", status.code, status.reason)
        }
        Some(kube::Error::Api(status)) => status.message.clone(),
        // Its own words are "ServiceError: " and its cause.
        Some(kube::Error::Service(cause)) => cause.to_string(),
        _ => error.to_string(),
    }
}

fn is_answer(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref::<kube::Error>(), Some(kube::Error::Api(_)))
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn causes_are_told_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot write")]
        struct Outer(#[source] std::io::Error);
        #[derive(Debug, thiserror::Error)]
        #[error("cannot write: {0}")]
        struct Said(#[source] std::io::Error);
        assert_eq!(with_causes(&Outer(std::io::Error::other("disk"))), "cannot write: disk");
        assert_eq!(with_causes(&Said(std::io::Error::other("disk"))), "cannot write: disk");
    }

    #[test]
    fn an_api_server_is_quoted_not_dumped() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot patch")]
        struct Outer(#[source] kube::Error);
        let refused =
            |message| kube::Error::Api(Box::new(Status::failure(message, "Forbidden").with_code(403)));
        assert_eq!(with_causes(&refused("nodes \"a\" is forbidden")), "nodes \"a\" is forbidden");
        assert_eq!(with_causes(&Outer(refused("forbidden"))), "cannot patch: forbidden");
        assert_eq!(with_causes(&refused("")), "the API server answered 403 Forbidden");
        let unreachable = kube::Error::Service(Box::new(std::io::Error::other("connection refused")));
        assert_eq!(with_causes(&unreachable), "connection refused");
    }
}
