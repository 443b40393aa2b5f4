//! The role `ctl`: commands of an administrator.
//!
//! * [`args`]: the command line; bad input is refused there, before anything is sent.
//! * [`call`]: a command as a request to the HTTP API, and the response as text.
//! * [`connection`]: how the controller is reached.
//! * [`trace`]: why a pod leaves with its source address.

pub mod args;
pub mod call;
pub mod connection;
pub mod trace;

use anyhow::Context;
use common::{
    args::RuntimeArgs,
    cache::ObjectKey,
    command::{self, Work},
    runtime::Runtime,
};

use args::{Args, Command, Output};
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
    if let Command::Trace { pod, namespace } = &args.command {
        let pod = ObjectKey::new(namespace, pod);
        let explanation = trace::run(&runtime.client, &args.controller.controller_namespace, &pod).await?;
        command::print(&match args.output {
            Output::Text => explanation.to_string(),
            Output::Json => format!("{:#}\n", trace::to_json(&explanation)),
        });
        return Ok(());
    }
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
