//! The prologue of every program: command line, then configuration, then refuse, run or command.
//!
//! A program's `main` is one call of [`main`]. What its flags mean is decided by one function, which reads files but touches
//! nothing else: an error of it is bad usage, with exit code 2.

use std::{future::Future, io::Write as _, net::Ipv4Addr, pin::Pin, process::ExitCode};

use clap::{Args, CommandFactory, FromArgMatches, ValueEnum, parser::ValueSource};

use crate::{
    args::{self, BindAddress, Program, RuntimeArgs},
    plan::{Action, Plan},
    runtime::{self, Runtime},
};

/// The flags of a program that can print its plan. `#[command(flatten)]` it into the program's own arguments.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Plan")]
pub struct PlanArgs {
    /// Print the actions of one reconciliation with their reasons, and run none of them
    #[arg(long, env = "PERIMETER_DRY_RUN", global = true)]
    pub dry_run: bool,
    /// Output format of --dry-run
    #[arg(long, env = "PERIMETER_OUTPUT", value_enum, default_value_t = Output::Text, value_name = "FORMAT", global = true)]
    pub output: Output,
}

/// How a plan is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For a person
    Text,
    /// One JSON object
    Json,
}

impl PlanArgs {
    /// Refuses `--output json` without `--dry-run`, which would have no effect.
    ///
    /// # Errors
    /// One line that says so.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.dry_run || self.output == Output::Text,
            "--output json is for --dry-run, which prints a plan"
        );
        Ok(())
    }
}

impl Output {
    /// The plan in this format.
    #[must_use]
    pub fn plan<A: Action>(self, plan: &Plan<A>) -> String {
        match self {
            Output::Text => plan.to_string(),
            Output::Json => format!("{:#}\n", plan.to_json()),
        }
    }
}

type Job = Box<dyn FnOnce(Runtime) -> Pin<Box<dyn Future<Output = anyhow::Result<()>>>>>;

/// The work that the command line requests: a controller or a command.
pub enum Work {
    /// The controller: see [`runtime::run`].
    Run(Job),
    /// The same, for a command that takes the lease, acts and ends: it may run on a host where a controller has the usual admin
    /// port, so without `--admin-address` it takes a free port of the loopback interface.
    RunToEnd(Job),
    /// A command without lease and admin server: see [`runtime::command`].
    Command(Job),
}

impl Work {
    /// [`Work::Run`].
    pub fn run(job: impl AsyncFnOnce(Runtime) -> anyhow::Result<()> + 'static) -> Work {
        Work::Run(boxed(job))
    }

    /// [`Work::RunToEnd`].
    pub fn run_to_end(job: impl AsyncFnOnce(Runtime) -> anyhow::Result<()> + 'static) -> Work {
        Work::RunToEnd(boxed(job))
    }

    /// [`Work::Command`].
    pub fn command(job: impl AsyncFnOnce(Runtime) -> anyhow::Result<()> + 'static) -> Work {
        Work::Command(boxed(job))
    }
}

fn boxed(job: impl AsyncFnOnce(Runtime) -> anyhow::Result<()> + 'static) -> Job {
    Box::new(|runtime| Box::pin(async move { job(runtime).await }))
}

/// Parses the command line and does what it asks for. `prepare` reads and checks everything that can be wrong before anything
/// is touched.
pub fn main<A: CommandFactory + FromArgMatches>(
    program: Program,
    prepare: impl FnOnce(A) -> anyhow::Result<(RuntimeArgs, Work)>,
) -> ExitCode {
    let command_line = A::command();
    let matches = command_line.clone().get_matches();
    let flags = args::in_force(&command_line, &matches);
    let args = A::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match prepare(args) {
        Err(error) => runtime::refuse(&program, &error),
        Ok((args, Work::Run(job))) => runtime::run(program, args, flags, job),
        Ok((mut args, Work::RunToEnd(job))) => {
            if matches.value_source("admin_address") == Some(ValueSource::DefaultValue) {
                args.admin.admin_address = BindAddress(Some((Ipv4Addr::LOCALHOST, 0).into()));
            }
            runtime::run(program, args, flags, job)
        }
        Ok((args, Work::Command(job))) => runtime::command(program, args, job),
    }
}

/// Prints the result of a command. A closed pipe (`| head`) is no failure.
pub fn print(text: &str) {
    let _closed = std::io::stdout().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        plan: PlanArgs,
    }

    #[test]
    fn json_is_refused_without_a_dry_run() {
        let check = |arguments: &[&str]| {
            let arguments = std::iter::once(&"natgw").chain(arguments);
            Cli::try_parse_from(arguments).unwrap().plan.check().map_err(|error| error.to_string())
        };
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&["--dry-run", "--output=json"]), Ok(()));
        assert!(check(&["--output=json"]).unwrap_err().contains("--dry-run"));
    }
}
