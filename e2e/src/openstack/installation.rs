//! The installed services of a release: the folder of `scripts/openstack.sh`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::Release;
use crate::program::{Launch, Program};

/// A Python environment with the services in it.
#[derive(Debug, Clone)]
pub(super) struct Installation {
    folder: PathBuf,
}

impl Installation {
    /// Installs what is missing (minutes, once; the progress is seen on standard error).
    pub(super) async fn locate(release: Release) -> Result<Self> {
        let folder = tokio::task::spawn_blocking(move || {
            let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/openstack.sh");
            let name = match release {
                Release::Main => "main",
                Release::Oldest => "oldest",
            };
            let mut command = Command::new(script);
            let output = command.arg(name).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
            let output = output.context(script)?;
            ensure!(output.status.success(), "{script} {name}: {}; it says why above", output.status);
            anyhow::Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim_end()))
        });
        Ok(Self { folder: folder.await?? })
    }

    pub(super) fn venv(&self) -> PathBuf {
        self.folder.join("venv")
    }

    /// The folder of the seeds: data that a start can begin with.
    pub(super) fn seeds(&self) -> PathBuf {
        self.folder.join("seeds")
    }

    /// A program of the environment, such as `nova-compute`.
    pub(super) fn script(&self, name: &str) -> Launch {
        // Not by its shebang, whose path has changed.
        Program::at(self.venv().join("bin/python"))
            .arg("-Wignore")
            .arg(self.venv().join("bin").join(name))
            .name(name)
    }

    /// A WSGI application behind uWSGI, one process that ends with its parent.
    pub(super) fn wsgi(&self, name: &str, port: u16, module: &str, threads: u8) -> Launch {
        Program::at(self.venv().join("bin/uwsgi"))
            .name(name)
            .arg("--virtualenv")
            .arg(self.venv())
            .args(["--need-app", "--die-on-term", "--enable-threads", "--http-chunked-input"])
            .args(["--disable-logging", "--log-5xx", "--buffer-size", "65535"])
            // A connection that is kept would sometimes be closed just as a client uses it again.
            .args(["--add-header", "Connection: close"])
            .args(["--http-socket".to_owned(), format!("127.0.0.1:{port}")])
            .args(["--threads".to_owned(), threads.to_string()])
            .args(["--module".to_owned(), format!("{module}:application")])
            .env("PYTHONWARNINGS", "ignore")
    }
}
