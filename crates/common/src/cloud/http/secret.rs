//! A credential that no log shows.

use std::fmt;
use std::path::{Path, PathBuf};

use ::http::HeaderValue;
use thiserror::Error;

/// A token, or the place where it is read from. Neither `Debug` nor `Display` nor an error of it shows the value.
#[derive(Clone)]
pub struct Secret(Source);

#[derive(Clone)]
enum Source {
    Value(String),
    File(PathBuf),
}

/// Why there is no usable secret. Names places, never values.
#[derive(Debug, Error)]
pub enum SecretError {
    /// The environment variable is not set.
    #[error("environment variable {0} is not set: set it to the API token")]
    Unset(String),
    /// The file cannot be read.
    #[error("cannot read the API token from {}: {cause}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// Nothing but white space.
    #[error("the API token in {0} is empty")]
    Empty(String),
    /// A line break or another character that a header cannot carry.
    #[error("the API token in {0} has characters that no token has: is it a whole file of something else?")]
    Garbled(String),
}

impl Secret {
    /// A value in memory. White space around it is dropped; an empty or garbled one is refused.
    pub fn new(value: &str) -> Result<Secret, SecretError> {
        checked(value, "memory").map(|value| Secret(Source::Value(value)))
    }

    /// The value of an environment variable, read now: an environment does not rotate.
    pub fn from_env(name: &str) -> Result<Secret, SecretError> {
        let value = std::env::var(name).map_err(|_| SecretError::Unset(name.to_owned()))?;
        checked(&value, name).map(|value| Secret(Source::Value(value)))
    }

    /// The content of a file. It is read now, so that a mistake is seen at the start, and again for each request, so that
    /// a rotated Secret volume is used without a restart: a read of a hundred bytes from memory is nothing beside the call.
    pub fn from_file(path: &Path) -> Result<Secret, SecretError> {
        let secret = Secret(Source::File(path.to_owned()));
        secret.read().map(|_| secret)
    }

    /// The value as it is now.
    fn read(&self) -> Result<String, SecretError> {
        match &self.0 {
            Source::Value(value) => Ok(value.clone()),
            Source::File(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|cause| SecretError::Unreadable { path: path.clone(), cause })?;
                checked(&text, &path.display().to_string())
            }
        }
    }

    /// `Bearer <value>`, marked sensitive so that `Debug` of a request does not show it either.
    pub(super) fn bearer(&self) -> Result<HeaderValue, SecretError> {
        let mut header = HeaderValue::try_from(format!("Bearer {}", self.read()?))
            .map_err(|_| SecretError::Garbled(self.to_string()))?;
        header.set_sensitive(true);
        Ok(header)
    }
}

fn checked(value: &str, place: &str) -> Result<String, SecretError> {
    let value = value.trim();
    if value.is_empty() {
        return Err(SecretError::Empty(place.to_owned()));
    }
    if !value.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(SecretError::Garbled(place.to_owned()));
    }
    Ok(value.to_owned())
}

/// The source of the secret, never its value.
impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Value(_) => f.write_str("[redacted]"),
            Source::File(path) => write!(f, "[redacted, from {}]", path.display()),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALUE: &str = "s3cr3t-value";

    fn file(content: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        file
    }

    #[test]
    fn nothing_shows_the_value() {
        let file = file(VALUE);
        for secret in [Secret::new(VALUE).unwrap(), Secret::from_file(file.path()).unwrap()] {
            assert!(!format!("{secret} {secret:?} {:?}", secret.bearer().unwrap()).contains(VALUE));
            assert_eq!(secret.bearer().unwrap().as_bytes(), format!("Bearer {VALUE}").as_bytes());
        }
    }

    #[test]
    fn a_file_is_read_again_each_time() {
        let file = file("first\n");
        let secret = Secret::from_file(file.path()).unwrap();
        assert_eq!(secret.bearer().unwrap(), "Bearer first");
        std::fs::write(file.path(), "  second\n").unwrap();
        assert_eq!(secret.bearer().unwrap(), "Bearer second");
    }

    #[test]
    fn what_is_no_token_is_refused_without_being_shown() {
        assert!(matches!(Secret::new(" \n"), Err(SecretError::Empty(_))));
        for garbled in ["two\nlines-s3cr3t", "s3cr3t with space", "s3cr3t-ü"] {
            let error = Secret::new(garbled).unwrap_err();
            assert!(matches!(error, SecretError::Garbled(_)));
            assert!(!format!("{error} {error:?}").contains("s3cr3t"));
        }
        assert!(matches!(Secret::from_env("PERIMETER_TEST_IS_NEVER_SET"), Err(SecretError::Unset(_))));
        let missing = file(VALUE).path().to_owned();
        assert!(matches!(Secret::from_file(&missing), Err(SecretError::Unreadable { .. })));
    }
}
