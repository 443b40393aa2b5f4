//! Dispatches the operation. The response is JSON on standard output and the exit code.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::process::ExitCode;

use crate::cni::version::{requested, supported_json};
use crate::cni::{Call, Code, Command, Error};
use crate::config::network::Network;
use crate::config::settings::Settings;
use crate::log::Log;
use crate::verb::{self, Context};

/// A network configuration with the `prevResult` of a long chain has a few KiB.
const MAX_LENGTH: u64 = 4 * 1024 * 1024;

const ABOUT: &str = "egress-router: a CNI plugin that gives a pod a static, cluster-external egress interface.

A container runtime starts it, with CNI_COMMAND (ADD, DEL, CHECK, STATUS, GC, VERSION) and the other CNI variables in the environment and a
network configuration on standard input. You can also run:

  egress-router install ...    copies the program onto a node
  egress-router --dry-run      with CNI_COMMAND=ADD: prints the steps of the ADD and changes nothing
  egress-router --version
  egress-router --help
";

/// The whole program.
#[must_use]
pub fn run() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let first = args.next();
    match first.as_ref().and_then(|arg| arg.to_str()) {
        None if first.is_none() => call(false),
        Some("--dry-run") => call(true),
        Some("install") => crate::install::run(args),
        Some("--version" | "-V") => print(&format!("egress-router {}\n", env!("CARGO_PKG_VERSION"))),
        Some("--help" | "-h") => print(ABOUT),
        _ => {
            let unknown = first.unwrap_or_default();
            let _ =
                writeln!(std::io::stderr(), "egress-router: unknown command: {}\n{ABOUT}", unknown.display());
            ExitCode::from(2)
        }
    }
}

fn call(dry_run: bool) -> ExitCode {
    let get = |name: &str| std::env::var_os(name);
    let call = match Call::from_env(get) {
        Ok(Some(call)) => call,
        Ok(None) => {
            let _ = std::io::stderr().write_all(ABOUT.as_bytes());
            // Started at a terminal without CNI_COMMAND: this is not a failure.
            return ExitCode::SUCCESS;
        }
        Err(error) => return fail(&error, &requested(&read().unwrap_or_default())),
    };
    let stdin = match read() {
        Ok(stdin) => stdin,
        Err(error) => return fail(&error, &requested(b"")),
    };
    if call.command == Command::Version {
        return print(&supported_json(&requested(&stdin)));
    }
    match output(&call, &stdin, dry_run, get) {
        Ok(output) => print(&output),
        Err(error) => fail(&error, &requested(&stdin)),
    }
}

fn output(
    call: &Call,
    stdin: &[u8],
    dry_run: bool,
    get: impl Fn(&str) -> Option<OsString>,
) -> Result<String, Error> {
    let network = Network::parse(stdin, call)?;
    network.version.has(call.command)?;
    let log = Log::open(network.log_file.as_deref(), network.log_level.as_deref());
    let (settings, unread) = if call.command.is_teardown() {
        let (settings, wrong) = Settings::for_teardown(get);
        (Ok(settings), wrong)
    } else {
        (Settings::load(get), None)
    };
    if let Some(wrong) = &unread {
        log.error(format_args!("{wrong}: this call uses the default of each setting that cannot be read"));
    }
    let output = settings.and_then(|settings| {
        let context = Context { call, network: &network, settings: &settings, log: &log };
        log.debug(format_args!("{call} in {:?}, network {}", call.netns, network.name));
        // It may be in another directory, which the settings would name.
        dispatch(&context, dry_run).map_err(|error| match unread {
            Some(wrong) => error.with("also", &wrong),
            None => error,
        })
    });
    match &output {
        Ok(output) => log.verbose(format_args!("{call}: done {output}")),
        Err(error) => log.error(format_args!("{call}: code {}: {error}", error.code.number())),
    }
    output
}

fn dispatch(context: &Context<'_>, dry_run: bool) -> Result<String, Error> {
    let nothing = |()| String::new();
    match context.call.command {
        Command::Add if dry_run => verb::add::dry_run(context),
        _ if dry_run => Err(Error::new(Code::InvalidEnvironment, "--dry-run supports only CNI_COMMAND=ADD")),
        Command::Add => verb::add::add(context),
        Command::Del => verb::del::del(context).map(nothing),
        Command::Check => verb::check::check(context).map(nothing),
        Command::Status => verb::status::status(context).map(nothing),
        Command::Gc => verb::gc::gc(context).map(nothing),
        Command::Version => Ok(supported_json(&requested(b""))),
    }
}

/// Reads all of standard input. At a terminal it returns nothing, because reading would never end.
fn read() -> Result<Vec<u8>, Error> {
    let stdin = std::io::stdin();
    let mut text = Vec::new();
    if stdin.is_terminal() {
        return Ok(text);
    }
    stdin.lock().take(MAX_LENGTH + 1).read_to_end(&mut text).map_err(|error| {
        Error::new(Code::Io, "cannot read the network configuration on standard input").details(error)
    })?;
    if text.len() as u64 > MAX_LENGTH {
        let message = format!("the network configuration on standard input has more than {MAX_LENGTH} bytes");
        return Err(Error::new(Code::Decode, message));
    }
    Ok(text)
}

fn print(output: &str) -> ExitCode {
    match std::io::stdout().write_all(output.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        // The runtime has exited. It will call DEL.
        Err(_) => ExitCode::FAILURE,
    }
}

fn fail(error: &Error, version: &str) -> ExitCode {
    let _ = std::io::stdout().write_all(error.to_json(version).as_bytes());
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn call_output(verb: &str, settings: &Path, config: &str) -> Result<String, Error> {
        let get = |name: &str| match name {
            "CNI_COMMAND" => Some(OsString::from(verb)),
            "CNI_CONTAINERID" => Some("c0ffee".into()),
            "CNI_IFNAME" => Some("net1".into()),
            "CNI_NETNS" => Some("/proc/none".into()),
            "EGRESS_ROUTER_SETTINGS" => Some(settings.into()),
            _ => None,
        };
        output(&Call::from_env(get)?.unwrap(), config.as_bytes(), false, get)
    }

    #[test]
    fn invalid_settings_do_not_block_del() {
        let directory = tempfile::tempdir().unwrap();
        let (run, state) = (directory.path().join("run"), directory.path().join("state"));
        let settings = directory.path().join("settings.json");
        let text = serde_json::json!({"runDirectory": run, "stateDirectory": state, "platfrom": "aws"});
        fs::write(&settings, text.to_string()).unwrap();
        let record = run.join("attachments/c0ffee@net1.json");
        let config = r#"{"cniVersion": "1.1.0", "name": "n", "type": "egress-router", "log_level": "panic",
            "ip": {"addresses": ["192.0.2.9/24"]}, "cni.dev/valid-attachments": []}"#;
        for verb in ["DEL", "GC"] {
            fs::create_dir_all(record.parent().unwrap()).unwrap();
            fs::write(&record, r#"{"network": "n"}"#).unwrap();
            let output = call_output(verb, &settings, config);
            if verb == "DEL" {
                assert_eq!(output, Ok(String::new()));
                assert!(!record.exists(), "it is in the directory of the settings");
            } else {
                // The failure comes first, then the settings as a possible cause.
                let error = output.unwrap_err();
                assert!(error.message.contains("c0ffee@net1.json"), "{error}");
                assert!(error.details.contains("platfrom"), "{error}");
            }
        }
        for verb in ["ADD", "STATUS"] {
            let error = call_output(verb, &settings, config).unwrap_err();
            assert!(error.message.contains("settings.json") && error.message.contains("platfrom"), "{error}");
        }
    }
}
