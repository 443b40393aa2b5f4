//! Executes the programs of Open vSwitch and iptables: with arguments, never with a shell, and never longer than the timeout.

use std::{
    io::{ErrorKind, Read, Write as _},
    process::{Child, Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::Config;
use crate::agent::driver::Error;

/// How long a stopped program may take between the end of its output and its exit, before its status is read again.
const EXIT_POLL: Duration = Duration::from_millis(1);
/// The last bytes of a program's error output that an error repeats.
const MOST_STDERR: usize = 500;

/// Programs of Open vSwitch and iptables on this node.
#[derive(Clone, Debug)]
pub struct Programs<'a>(pub &'a Config);

impl Programs<'_> {
    /// Whether ovs-vswitchd has the bridge.
    #[must_use]
    pub fn has_bridge(&self) -> bool {
        self.0.run_dir.join(format!("{}.mgmt", self.0.bridge)).exists()
    }

    /// All flows of the bridge.
    ///
    /// # Errors
    /// The program failed.
    pub fn dump_flows(&self) -> Result<String, Error> {
        let mut command = self.ofctl();
        command.args(["dump-flows", &self.0.bridge]);
        self.run(&format!("reading the flows of {}", self.0.bridge), command, None)
    }

    /// Changes flows. The switch takes all changes, or none.
    ///
    /// # Errors
    /// The program failed; no flow was changed.
    pub fn bundle(&self, changes: &str) -> Result<(), Error> {
        let mut command = self.ofctl();
        command.args(["bundle", &self.0.bridge, "-"]);
        self.run(&format!("writing flows of {}", self.0.bridge), command, Some(changes)).map(drop)
    }

    /// The table Interface of OVSDB as JSON.
    ///
    /// # Errors
    /// The program failed.
    pub fn interfaces(&self) -> Result<String, Error> {
        let mut command = Command::new("ovs-vsctl");
        command
            .arg(format!("--timeout={}", self.0.timeout.as_secs().max(1)))
            .arg(format!("--db=unix:{}", self.0.run_dir.join("db.sock").display()))
            .args(["-f", "json", "--columns=name,ofport,external_ids,mac_in_use", "list", "Interface"]);
        self.run("reading the interfaces of OVSDB", command, None)
    }

    /// All chains of iptables.
    ///
    /// # Errors
    /// The program failed.
    pub fn save(&self) -> Result<String, Error> {
        self.run("reading the chains of iptables", Command::new("iptables-save"), None)
    }

    /// Changes chains: one transaction for each table.
    ///
    /// # Errors
    /// The program failed; the table that it names, and those after it, were not changed.
    pub fn restore(&self, input: &str) -> Result<(), Error> {
        let mut command = Command::new("iptables-restore");
        // Waits for kube-proxy and openshift-sdn, which hold the same lock.
        command.args(["-w", "5", "--noflush"]);
        self.run("writing chains of iptables", command, Some(input)).map(drop)
    }

    fn ofctl(&self) -> Command {
        let mut command = Command::new("ovs-ofctl");
        // The bridge of openshift-sdn refuses every other version.
        command
            .env("OVS_RUNDIR", &self.0.run_dir)
            .args(["-O", "OpenFlow13"])
            .arg(format!("--timeout={}", self.0.timeout.as_secs().max(1)));
        command
    }

    fn run(&self, operation: &str, mut command: Command, input: Option<&str>) -> Result<String, Error> {
        let error =
            |cause: String, is_permanent| Error { operation: operation.to_owned(), cause, is_permanent };
        let program = command.get_program().to_string_lossy().into_owned();
        let deadline = Instant::now() + self.0.timeout;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|cause| {
            error(format!("starting {program}: {cause}"), cause.kind() == ErrorKind::NotFound)
        })?;
        let writer = child.stdin.take().map(|mut stdin| {
            let input = input.unwrap_or_default().to_owned();
            // A program that ends early closes the pipe; its status and error output say why.
            thread::spawn(move || drop(stdin.write_all(input.as_bytes())))
        });
        let stdout = child.stdout.take().map(reader);
        let stderr = child.stderr.take().map(reader);
        let status = wait(&mut child, deadline);
        // Waits for the threads only if the program has ended, which closes the pipes.
        let status = status.map_err(|cause| error(format!("{program}: {cause}"), false))?;
        let (stdout, stderr) = (output(stdout), output(stderr));
        if let Some(writer) = writer {
            let _ = writer.join();
        }
        if status.success() {
            return Ok(stdout);
        }
        let stderr: String = stderr.split_whitespace().collect::<Vec<_>>().join(" ");
        let start = stderr.len().saturating_sub(MOST_STDERR);
        let start = (start..=stderr.len()).find(|at| stderr.is_char_boundary(*at)).unwrap_or_default();
        let tail = stderr.get(start..).unwrap_or_default();
        Err(error(format!("{program} exited with {status}: {tail}"), false))
    }
}

fn reader(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn output(reader: Option<JoinHandle<String>>) -> String {
    reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
}

/// Waits for the program, and kills it at the deadline.
fn wait(child: &mut Child, deadline: Instant) -> Result<std::process::ExitStatus, String> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if Instant::now() < deadline => thread::sleep(EXIT_POLL),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("the timeout expired".into());
            }
            Err(error) => return Err(format!("waiting for the program: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(timeout: Duration, program: &str, args: &[&str], input: Option<&str>) -> Result<String, Error> {
        let config = Config { timeout, ..Config::default() };
        let mut command = Command::new(program);
        command.args(args);
        Programs(&config).run("running a program", command, input)
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn input_and_output_are_larger_than_a_pipe() {
        let input = "flow add\n".repeat(100_000);
        assert_eq!(run(LONG, "cat", &[], Some(&input)).unwrap(), input);
    }

    #[test]
    fn failure_has_the_error_output() {
        let error = run(LONG, "ls", &["/nonexistent/file"], None).unwrap_err();
        assert!(
            error.to_string().starts_with("running a program failed: ls exited with exit status: 2"),
            "{error}"
        );
        assert!(error.cause.contains("No such file") && !error.is_permanent, "{error}");
    }

    #[test]
    fn program_that_does_not_end_is_killed() {
        let error = run(Duration::from_millis(50), "sleep", &["1000"], None).unwrap_err();
        assert_eq!(error.cause, "sleep: the timeout expired");
    }

    #[test]
    fn missing_program_is_permanent() {
        let error = run(LONG, "/nonexistent/program", &[], None).unwrap_err();
        assert!(error.is_permanent && error.cause.starts_with("starting /nonexistent/program: "), "{error}");
    }

    #[test]
    fn input_that_is_not_read_is_no_failure() {
        assert_eq!(run(LONG, "true", &[], Some(&"x".repeat(1 << 20))).unwrap(), "");
    }
}
