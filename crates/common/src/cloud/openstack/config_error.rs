//! A credential that cannot be used, before anything is sent.

use std::fmt;

/// Which text is wrong, at which field, and what is allowed; in one line, without any value of a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct ConfigError {
    place: String,
    why: String,
}

impl ConfigError {
    /// `place`: the file, Secret or section.
    pub(super) fn new(place: impl fmt::Display, why: impl Into<String>) -> ConfigError {
        ConfigError { place: place.to_string(), why: why.into() }
    }

    /// Where it is: a file or Secret, and the cloud in it.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }
}
