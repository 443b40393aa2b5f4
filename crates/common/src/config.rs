//! Structured settings: one YAML file, read once at start.
//!
//! A setting that is not read has no effect, so an unknown field is an error: put
//! `#[serde(deny_unknown_fields)]` on each struct of a configuration.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_yaml::Error as Yaml;

/// One line that names the file, the line, the field and what is allowed. [`crate::runtime`] turns it into exit code 2.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{}: cannot be read: {why}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why; no `source`, since the message holds it already.
        why: std::io::Error,
    },
    /// The file says something that is not allowed.
    #[error("{}: {message}", place(path, *line))]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Line in the file, counted from 1; `None` if the error has no line.
        line: Option<u64>,
        /// The error and what is allowed, in one line.
        message: String,
    },
}

fn place(path: &Path, line: Option<u64>) -> String {
    match line {
        Some(line) => format!("{}:{line}", path.display()),
        None => path.display().to_string(),
    }
}

/// Bad flags or configuration, in one line that says what is allowed. Ends the process with exit code 2.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

impl Error {
    /// A fault that only the reader of the settings can tell: a selector that does not parse, two fields that contradict.
    pub fn invalid(path: &Path, message: impl Into<String>) -> Self {
        Error::Invalid { path: path.to_owned(), line: None, message: message.into() }
    }
}

/// Reads a YAML file. An empty one is the same as `{}`: all defaults.
///
/// # Errors
/// When the file cannot be read, is no YAML, or does not fit `T`.
pub fn load<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let text = std::fs::read_to_string(path).map_err(|why| Error::Read { path: path.to_owned(), why })?;
    parse(path, &text)
}

/// [`load`], of a text that is at hand; `path` is for messages.
///
/// # Errors
/// As [`load`].
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, Error> {
    let blank = text.lines().all(|line| matches!(line.trim(), "" | "---") || line.trim().starts_with('#'));
    serde_yaml::from_str(if blank { "{}" } else { text }).map_err(|error| Error::Invalid {
        path: path.to_owned(),
        line: error.location().map(|location| location.line()).filter(|line| *line > 0),
        message: describe(error.without_snippet()),
    })
}

/// The parser's own text is several lines with an excerpt and a place; ours is one line, and the place stands before it.
fn describe(error: &Yaml) -> String {
    match error {
        Yaml::SerdeUnknownField { field, expected, .. } => {
            format!("unknown field \"{field}\", expected {}", one_of(expected))
        }
        Yaml::SerdeUnknownVariant { variant, expected, .. } => {
            format!("unknown value \"{variant}\", expected {}", one_of(expected))
        }
        Yaml::SerdeMissingField { field, .. } => format!("missing field \"{field}\""),
        Yaml::SerdeInvalidType { unexpected, expected, .. } => {
            format!("invalid type: {unexpected}, expected {expected}")
        }
        Yaml::SerdeInvalidValue { unexpected, expected, .. } => {
            format!("invalid value: {unexpected}, expected {expected}")
        }
        Yaml::DuplicateMappingKey { key: Some(key), .. } => format!("field \"{key}\" stands there twice"),
        Yaml::Message { msg, .. } => one_line(msg),
        other => one_line(&other.to_string()),
    }
}

fn one_of(allowed: &[&str]) -> String {
    match allowed {
        [] => "none at all".to_owned(),
        [only] => format!("\"{only}\""),
        many => {
            format!("one of {}", many.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", "))
        }
    }
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("not valid").to_owned()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, default, rename_all = "camelCase")]
    struct Settings {
        role_label: String,
        ttl: u32,
        job: Job,
        mode: Option<Mode>,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Job {
        image: String,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum Mode {
        Off,
        On,
    }

    fn refused(text: &str) -> String {
        parse::<Settings>(Path::new("natgw.yaml"), text).unwrap_err().to_string()
    }

    #[test]
    fn a_good_file_is_read_and_an_empty_one_is_all_defaults() {
        let read: Settings = parse(Path::new("f"), "roleLabel: gateway\njob:\n  image: busybox\n").unwrap();
        assert_eq!((read.role_label.as_str(), read.job.image.as_str()), ("gateway", "busybox"));
        for blank in ["", "\n# nothing\n", "---\n", "{}"] {
            assert_eq!(parse::<Settings>(Path::new("f"), blank).unwrap(), Settings::default(), "{blank:?}");
        }
    }

    #[test]
    fn an_unknown_field_names_file_line_field_and_what_is_allowed() {
        assert_eq!(
            refused("ttl: 60\n\nrolLabel: x\n"),
            r#"natgw.yaml:3: unknown field "rolLabel", expected one of "roleLabel", "ttl", "job", "mode""#
        );
        assert_eq!(refused("job:\n  imag: x\n"), r#"natgw.yaml:2: unknown field "imag", expected "image""#);
    }

    #[test]
    fn wrong_types_values_and_syntax_are_one_line_with_a_place() {
        for (text, start) in [
            ("ttl: soon\n", "natgw.yaml:1: "),
            ("ttl: 1\nttl: 2\n", "natgw.yaml:2: field \"ttl\" stands there twice"),
            ("mode: maybe\n", "natgw.yaml:1: unknown value \"maybe\", expected one of \"off\", \"on\""),
            ("job: [1]\n", "natgw.yaml:1: "),
            ("job: {\n", "natgw.yaml:"),
            ("- a\n", "natgw.yaml:1: "),
        ] {
            let message = refused(text);
            assert!(message.starts_with(start), "{text:?} gives {message:?}");
            assert!(!message.contains('\n') && message.len() < 200, "{text:?} gives {message:?}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = load::<Settings>(Path::new("/nonexistent/natgw.yaml")).unwrap_err().to_string();
        assert!(error.starts_with("/nonexistent/natgw.yaml: cannot be read: "), "{error}");
    }
}
