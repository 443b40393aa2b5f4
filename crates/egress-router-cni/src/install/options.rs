//! The command line of `egress-router install`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The help text.
pub const USAGE: &str = "\
egress-router install [options]: puts the program and its files onto a node. Files are replaced whole, and only where they
differ.

  --bin-dir DIR           the runtime's folder of plugins (default /host/opt/cni/bin)
  --kubeconfig-out FILE   writes a kubeconfig from the pod's service account, for the node's root alone
  --service-account DIR   where that is (default /var/run/secrets/kubernetes.io/serviceaccount)
  --server URL            the API server in it (default: from KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT)
  --settings FILE         the node's settings to install, if they are valid
  --settings-out FILE     where to
  --watch                 keeps running until SIGTERM, and rewrites files when the token or the settings change or a file is missing
  --interval SECONDS      poll interval of --watch (default 10)
  --uninstall             removes what install writes with the same options";

/// Options of `egress-router install`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// `--bin-dir`.
    pub bin_dir: PathBuf,
    /// `--kubeconfig-out`.
    pub kubeconfig_out: Option<PathBuf>,
    /// `--service-account`.
    pub service_account: PathBuf,
    /// `--server`.
    pub server: Option<String>,
    /// `--settings` and `--settings-out`.
    pub settings: Option<(PathBuf, PathBuf)>,
    /// `--watch`.
    pub watch: bool,
    /// `--interval`.
    pub interval: Duration,
    /// `--uninstall`.
    pub uninstall: bool,
}

impl Options {
    /// Parses the arguments: `--key value` or `--key=value`.
    ///
    /// # Errors
    ///
    /// A message for the user.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut options = Self {
            bin_dir: "/host/opt/cni/bin".into(),
            kubeconfig_out: None,
            service_account: "/var/run/secrets/kubernetes.io/serviceaccount".into(),
            server: None,
            settings: None,
            watch: false,
            // Tokens are renewed many minutes before they expire; this delay matters only after a change of the settings.
            interval: Duration::from_secs(10),
            uninstall: false,
        };
        let (mut settings, mut settings_out) = (None, None);
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let text = argument.into_string().map_err(|text| format!("{} is not UTF-8", text.display()))?;
            let (key, mut given) = match text.split_once('=') {
                Some((key, value)) => (key.to_owned(), Some(OsString::from(value))),
                None => (text, None),
            };
            if given.is_some() && matches!(key.as_str(), "--watch" | "--uninstall") {
                return Err(format!("{key} has no value"));
            }
            let mut value = || {
                let value = given.take().or_else(|| arguments.next()).filter(|value| !value.is_empty());
                value.ok_or_else(|| format!("{key} needs a value"))
            };
            match key.as_str() {
                "--watch" => options.watch = true,
                "--uninstall" => options.uninstall = true,
                "--bin-dir" => options.bin_dir = value()?.into(),
                "--kubeconfig-out" => options.kubeconfig_out = Some(value()?.into()),
                "--service-account" => options.service_account = value()?.into(),
                "--settings" => settings = Some(PathBuf::from(value()?)),
                "--settings-out" => settings_out = Some(PathBuf::from(value()?)),
                "--server" => options.server = Some(value()?.to_string_lossy().into_owned()),
                "--interval" => {
                    let seconds = value()?.to_str().and_then(|text| text.parse::<u64>().ok());
                    let seconds = seconds.filter(|seconds| *seconds > 0);
                    let seconds =
                        seconds.ok_or("--interval must be a whole number of seconds, at least 1")?;
                    options.interval = Duration::from_secs(seconds);
                }
                _ => return Err(format!("unknown option {key:?}")),
            }
        }
        options.settings = match (settings, settings_out, options.uninstall) {
            (Some(settings), Some(out), _) => Some((settings, out)),
            (None, None, _) => None,
            // Removal needs no source.
            (None, Some(out), true) => Some((PathBuf::new(), out)),
            _ => return Err("--settings and --settings-out need each other".to_owned()),
        };
        if options.watch && options.uninstall {
            return Err("--watch and --uninstall contradict each other".to_owned());
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;
    use std::time::Duration;

    use super::Options;

    fn parse(arguments: &[&str]) -> Result<Options, String> {
        Options::parse(arguments.iter().map(OsString::from))
    }

    #[test]
    fn a_value_may_be_separate_or_after_an_equals_sign() {
        let one = parse(&["--bin-dir=/b", "--settings=/s", "--settings-out=/o", "--interval=1", "--watch"])
            .unwrap();
        let other = parse(&[
            "--watch",
            "--bin-dir",
            "/b",
            "--settings",
            "/s",
            "--settings-out",
            "/o",
            "--interval",
            "1",
        ]);
        assert_eq!(one, other.unwrap());
        assert_eq!(
            (one.bin_dir.as_path(), one.interval, one.watch),
            (Path::new("/b"), Duration::from_secs(1), true)
        );
        assert_eq!(parse(&[]).unwrap().bin_dir, Path::new("/host/opt/cni/bin"));
    }

    #[test]
    fn an_invalid_command_line_is_refused_with_a_message() {
        for (arguments, word) in [
            (&["--bindir=/b"][..], "--bindir"),
            (&["--bin-dir"], "needs a value"),
            (&["--bin-dir="], "needs a value"),
            (&["--watch=1"], "no value"),
            (&["--settings=/s"], "need each other"),
            (&["--settings-out=/s"], "need each other"),
            (&["--interval=0"], "at least 1"),
            (&["--interval=x"], "at least 1"),
            (&["--watch", "--uninstall"], "contradict"),
            (&["now"], "unknown option"),
        ] {
            assert!(parse(arguments).unwrap_err().contains(word), "{arguments:?}");
        }
        assert!(parse(&["--uninstall", "--settings-out=/s"]).is_ok());
    }
}
