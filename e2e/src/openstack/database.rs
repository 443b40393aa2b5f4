//! MariaDB on a socket in the cloud's folder, without durability.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::site::Site;
use crate::program::{Launch, Program};

/// A call that does not wait for a disk. A table is a file, and there are hundreds of them.
const WITHOUT_FSYNC: &str = "/usr/bin/eatmydata";

impl Site {
    pub(super) fn socket(&self) -> PathBuf {
        self.dir.file("mysql.sock")
    }

    pub(super) fn database_launch(&self) -> Launch {
        Program::at(WITHOUT_FSYNC)
            .name("mariadb")
            .args(["--", "/usr/sbin/mariadbd", "--no-defaults"])
            .args(as_root().iter().copied())
            .arg(format!("--datadir={}", self.state().join("mysql").display()))
            .arg(format!("--socket={}", self.socket().display()))
            .arg(format!("--pid-file={}", self.dir.file("mysql.pid").display()))
            .args([
                "--skip-networking",
                "--skip-log-bin",
                "--performance-schema=OFF",
                "--max-connections=500",
            ])
            .args(["--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=0", "--sync-frm=0"])
            .args(["--innodb-flush-method=nosync", "--innodb-buffer-pool-size=128M"])
            // A start copies what is in the folder: one file for all tables, and small logs.
            .args([
                "--innodb-file-per-table=0",
                "--innodb-log-file-size=16M",
                "--aria-pagecache-buffer-size=8M",
            ])
            .args(["--aria-log-file-size=8M", "--innodb-temp-data-file-path=ibtmp1:4M:autoextend"])
            .args(["--character-set-server=utf8mb3", "--collation-server=utf8mb3_general_ci"])
    }

    /// Makes an empty database server.
    pub(super) fn create_database_server(&self) -> Result<()> {
        let output = Command::new(WITHOUT_FSYNC)
            .args(["--", "/usr/bin/mariadb-install-db", "--no-defaults", "--skip-test-db"])
            .args(as_root())
            .args(["--auth-root-authentication-method=normal", "--innodb-log-file-size=16M"])
            .args(["--innodb-file-per-table=0", "--aria-log-file-size=8M"])
            .arg(format!("--datadir={}", self.state().join("mysql").display()))
            .stdin(Stdio::null())
            .output()
            .context("mariadb-install-db through eatmydata (Debian: mariadb-server, eatmydata)")?;
        ensure!(output.status.success(), "mariadb-install-db: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Runs SQL, and returns what it selects: a line for each row, without a heading.
    pub(super) fn sql(&self, sql: &str) -> Result<String> {
        let mut client = Command::new("/usr/bin/mariadb")
            .args(["--no-defaults", "-uroot", "--skip-column-names", "--batch"])
            .arg(format!("--socket={}", self.socket().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("mariadb (Debian: mariadb-client)")?;
        client.stdin.take().context("a pipe")?.write_all(sql.as_bytes())?;
        let output = client.wait_with_output()?;
        ensure!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr).trim_end());
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// MariaDB runs as root only with an option.
fn as_root() -> &'static [&'static str] {
    if nix::unistd::Uid::effective().is_root() { &["--user=root"] } else { &[] }
}
