//! The log flags of the Go program, which are zap's, as those of this project. Their values are in upper or lower case, as there.

use clap::{ArgAction, Args as Group, ValueEnum};
use common::args::{LogArgs, LogFormat};

/// Flags with the names of the Go program.
#[derive(Group, Clone, Debug)]
#[command(next_help_heading = "Logs")]
pub struct ZapArgs {
    /// As --zap-encoder=console --zap-log-level=debug, or with false json and info
    #[arg(long, env = "PERIMETER_ZAP_DEVEL", default_missing_value = "true", num_args = 0..=1, require_equals = true,
        action = ArgAction::Set, value_name = "BOOL")]
    pub zap_devel: Option<bool>,
    /// As --log-format, which wins
    #[arg(long, env = "PERIMETER_ZAP_ENCODER", value_enum, ignore_case = true, value_name = "ENCODER")]
    pub zap_encoder: Option<Encoder>,
    /// As --log-filter, which wins: debug, info, error, panic, or a verbosity (1 and more is debug)
    #[arg(long, env = "PERIMETER_ZAP_LOG_LEVEL", value_name = "LEVEL", value_parser = level)]
    pub zap_log_level: Option<&'static str>,
    /// Times are RFC 3339 with microseconds; another encoding is refused
    #[arg(long, env = "PERIMETER_ZAP_TIME_ENCODING", value_name = "ENCODING", value_parser = time_encoding)]
    pub zap_time_encoding: Option<String>,
    /// Errors are logged in one line with their causes, without stack traces; only panic is not refused
    #[arg(long, env = "PERIMETER_ZAP_STACKTRACE_LEVEL", value_name = "LEVEL", value_parser = ["panic"], ignore_case = true)]
    pub zap_stacktrace_level: Option<String>,
}

/// A format of log lines, in zap's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Encoder {
    /// One JSON object a line
    Json,
    /// For a person
    Console,
}

fn level(text: &str) -> Result<&'static str, String> {
    match text.to_ascii_lowercase().as_str() {
        "debug" => Ok("debug"),
        "info" | "0" => Ok("info"),
        "error" | "panic" => Ok("error"),
        other if other.parse::<u32>().is_ok() => Ok("debug"),
        _ => Err("it has to be debug, info, error, panic or a number".to_owned()),
    }
}

fn time_encoding(text: &str) -> Result<String, String> {
    match text.to_ascii_lowercase().as_str() {
        "rfc3339" | "rfc3339nano" | "iso8601" => Ok(text.to_owned()),
        _ => Err("times are written as RFC 3339 only".to_owned()),
    }
}

impl ZapArgs {
    /// Sets the flags of this project that are not given.
    pub fn fill(&self, log: &mut LogArgs) {
        let of_devel = self.zap_devel.map(|devel| if devel { Encoder::Console } else { Encoder::Json });
        let format = self.zap_encoder.or(of_devel).map(|encoder| match encoder {
            Encoder::Json => LogFormat::Json,
            Encoder::Console => LogFormat::Plain,
        });
        log.log_format = log.log_format.or(format);
        let of_devel = self.zap_devel.map(|devel| if devel { "debug" } else { "info" });
        let filter = self.zap_log_level.or(of_devel).map(str::to_owned);
        log.log_filter = log.log_filter.take().or(filter);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        zap: ZapArgs,
    }

    fn filled(arguments: &[&str]) -> (Option<LogFormat>, Option<String>) {
        let zap = Cli::try_parse_from(std::iter::once(&"apinetlet").chain(arguments)).unwrap().zap;
        let mut log = LogArgs::default();
        zap.fill(&mut log);
        (log.log_format, log.log_filter)
    }

    #[test]
    fn zaps_flags_set_format_and_filter() {
        assert_eq!(filled(&[]), (None, None));
        assert_eq!(filled(&["--zap-devel"]), (Some(LogFormat::Plain), Some("debug".into())));
        assert_eq!(
            filled(&["--zap-devel=false", "--zap-log-level=error"]),
            (Some(LogFormat::Json), Some("error".into()))
        );
        assert_eq!(
            filled(&["--zap-encoder=console", "--zap-log-level=3"]),
            (Some(LogFormat::Plain), Some("debug".into()))
        );
    }

    #[test]
    fn values_in_upper_case_are_understood() {
        let (json, info) = (Some(LogFormat::Json), Some("info".to_owned()));
        assert_eq!(filled(&["--zap-encoder=JSON", "--zap-log-level=INFO"]), (json, info));
        assert_eq!(filled(&["--zap-time-encoding=ISO8601", "--zap-stacktrace-level=Panic"]), (None, None));
    }

    #[test]
    fn the_flags_of_this_project_win() {
        let zap = Cli::try_parse_from(["apinetlet", "--zap-devel=true"]).unwrap().zap;
        let mut log = LogArgs { log_format: Some(LogFormat::Json), log_filter: Some("warn".into()) };
        zap.fill(&mut log);
        assert_eq!((log.log_format, log.log_filter.as_deref()), (Some(LogFormat::Json), Some("warn")));
    }

    #[test]
    fn a_flag_without_an_effect_is_refused() {
        for wrong in ["--zap-time-encoding=epoch", "--zap-stacktrace-level=info", "--zap-log-level=loud"] {
            assert!(Cli::try_parse_from(["apinetlet", wrong]).is_err(), "{wrong}");
        }
        assert!(Cli::try_parse_from(["apinetlet", "--zap-time-encoding=iso8601"]).is_ok());
    }
}
