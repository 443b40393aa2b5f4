//! The role `ctl`: commands of an administrator.
//!
//! * [`args`]: the command line; bad input is refused there, before anything is sent.
//! * [`call`]: a command as a request to the HTTP API, and the response as text.
//! * [`connection`]: how the controller is reached.

pub mod args;
pub mod call;
pub mod connection;

use anyhow::Context;
use common::{
    args::RuntimeArgs,
    command::{self, Work},
    runtime::Runtime,
};

use args::Args;
use call::Call;
use connection::{Connection, Response};

/// Checks the command line and returns the work of the command.
///
/// # Errors
/// A flag cannot be used.
pub fn prepare(args: Args) -> anyhow::Result<(RuntimeArgs, Work)> {
    let runtime = args.runtime();
    Ok((runtime, Work::command(async move |runtime| run(&args, &runtime).await)))
}

async fn run(args: &Args, runtime: &Runtime) -> anyhow::Result<()> {
    let Some(call) = Call::of(&args.command) else { return Ok(()) };
    let connection = Connection::open(&args.controller, runtime).await?;
    let Response { status, body } = connection.send(&call).await?;
    anyhow::ensure!(
        status.is_success(),
        "{} {} at the controller failed: {status}: {}",
        call.method,
        call.path,
        call::message(&body)
    );
    let text = call::rendered(&args.command, args.output, &body)
        .with_context(|| format!("the response to {} {} is not the controller's", call.method, call.path))?;
    command::print(&text);
    Ok(())
}
