//! Versions of the protocol.

use super::call::Command;
use super::error::{Code, Error};

/// A supported version, ordered by age.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 0.3.0
    #[default]
    V0_3_0,
    /// 0.3.1
    V0_3_1,
    /// 0.4.0: CHECK.
    V0_4_0,
    /// 1.0.0: no `version` in `ips`.
    V1_0_0,
    /// 1.1.0: STATUS, GC, more of interfaces and routes.
    V1_1_0,
}

impl Version {
    /// All, oldest first.
    pub const ALL: [Self; 5] = [Self::V0_3_0, Self::V0_3_1, Self::V0_4_0, Self::V1_0_0, Self::V1_1_0];

    /// The version for calls without one.
    pub const NEWEST: Self = Self::V1_1_0;

    /// Its text in configurations.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// `cniVersion` of a configuration.
    ///
    /// # Errors
    ///
    /// Code 1, with the supported versions.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|version| version.as_str() == text).ok_or_else(|| {
            // libcni reads a configuration without cniVersion as 0.1.0.
            let found =
                if text.is_empty() { "missing, which means 0.1.0".to_owned() } else { format!("{text:?}") };
            let spoken = Self::ALL.map(Self::as_str).join(", ");
            Error::new(
                Code::IncompatibleVersion,
                format!("cniVersion is {found}: this plugin supports {spoken}"),
            )
        })
    }

    /// Whether this version has `command`.
    ///
    /// # Errors
    ///
    /// Code 1, with the first version that has it.
    pub fn has(self, command: Command) -> Result<(), Error> {
        let since = match command {
            Command::Add | Command::Del | Command::Version => Self::V0_3_0,
            Command::Check => Self::V0_4_0,
            Command::Status | Command::Gc => Self::V1_1_0,
        };
        if self >= since {
            return Ok(());
        }
        let (command, version, since) = (command.as_str(), self.as_str(), since.as_str());
        Err(Error::new(
            Code::IncompatibleVersion,
            format!("cniVersion {version} has no {command}: it needs {since}"),
        ))
    }
}

/// `cniVersion` of the input, for the response to an invalid configuration; the newest version if it has none.
#[must_use]
pub fn requested(stdin: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Versioned {
        #[serde(rename = "cniVersion")]
        version: Option<String>,
    }
    serde_json::from_slice::<Versioned>(stdin)
        .ok()
        .and_then(|versioned| versioned.version)
        .filter(|version| !version.is_empty())
        .unwrap_or_else(|| Version::NEWEST.as_str().to_owned())
}

/// The response to VERSION, which has the version of the request, [`requested`] (SPEC.md, "VERSION: probe plugin version support"). It
/// depends on neither settings nor pod.
#[must_use]
pub fn supported_json(requested: &str) -> String {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Output<'a> {
        cni_version: &'a str,
        supported_versions: [&'static str; 5],
    }
    let output = Output { cni_version: requested, supported_versions: Version::ALL.map(Version::as_str) };
    serde_json::to_string(&output).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Version, requested, supported_json};
    use crate::cni::{Code, Command};

    #[test]
    fn every_version_is_parsed() {
        for version in Version::ALL {
            assert_eq!(Version::parse(version.as_str()).unwrap(), version);
        }
        assert!(Version::ALL.is_sorted());
    }

    #[test]
    fn other_versions_are_refused_with_the_supported_ones() {
        for text in ["", "0.1.0", "0.2.0", "1.2.0", "1.1", " 1.0.0", "1.0.0-rc1"] {
            let error = Version::parse(text).unwrap_err();
            assert_eq!(error.code, Code::IncompatibleVersion);
            assert!(error.message.contains("0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"), "{error}");
        }
    }

    #[test]
    fn operations_need_their_version() {
        for (command, versions) in [
            (Command::Add, 5),
            (Command::Del, 5),
            (Command::Version, 5),
            (Command::Check, 3),
            (Command::Status, 1),
            (Command::Gc, 1),
        ] {
            let has = Version::ALL.iter().filter(|version| version.has(command).is_ok()).count();
            assert_eq!(has, versions, "{}", command.as_str());
        }
        assert_eq!(Version::V0_3_1.has(Command::Check).unwrap_err().code, Code::IncompatibleVersion);
    }

    #[test]
    fn version_responds_in_the_requested_version() {
        let output: serde_json::Value = serde_json::from_str(&supported_json("0.4.0")).unwrap();
        assert_eq!(
            output,
            json!({"cniVersion": "0.4.0", "supportedVersions": ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]})
        );
    }

    #[test]
    fn the_version_of_an_invalid_configuration_is_found() {
        assert_eq!(requested(br#"{"cniVersion": "0.4.0", "ip": 7}"#), "0.4.0");
        for stdin in [&b""[..], b"{", b"[]", b"{}", br#"{"cniVersion": 1}"#, br#"{"cniVersion": ""}"#] {
            assert_eq!(requested(stdin), "1.1.0");
        }
    }
}
