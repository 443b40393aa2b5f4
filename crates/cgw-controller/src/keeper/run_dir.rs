//! The folder that the keeper shares with its guard and its check script. Each keeper of a node has its own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::config::Router;
use super::process::Process;
use crate::api::address::{Vip, VipRange};

/// The folder and the names in it.
#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
}

/// The facts for the guard and the check script. The file is there from before the first VIP can be on the node until after the last
/// one is removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// 1.
    pub v: u8,
    /// The keeper.
    pub keeper: Process,
    /// keepalived, while it may run.
    pub keepalived: Option<Process>,
    /// All VIPs that keepalived may have added, also those of an earlier configuration.
    pub vips: Vec<VipRange>,
    /// The constant address of the adverts.
    pub anchor: IpAddr,
    /// Interface of the adverts.
    pub interface: String,
    /// Tunnel interface.
    pub tunnel_interface: String,
}

impl Record {
    /// The only version.
    pub const VERSION: u8 = 1;

    /// The record of a keeper that has not started keepalived yet.
    #[must_use]
    pub fn new(keeper: Process, router: &Router) -> Record {
        Record {
            v: Record::VERSION,
            keeper,
            keepalived: None,
            vips: router.vips.clone(),
            anchor: router.anchor(),
            interface: router.interface.clone(),
            tunnel_interface: router.tunnel_interface.clone(),
        }
    }

    /// Whether keepalived may have added the address.
    #[must_use]
    pub fn covers(&self, address: IpAddr) -> bool {
        address == self.anchor
            || Vip::new(address).is_ok_and(|vip| self.vips.iter().any(|range| range.contains(vip)))
    }
}

impl RunDir {
    /// The folder; nothing is created.
    #[must_use]
    pub fn new(path: PathBuf) -> RunDir {
        RunDir { path }
    }

    /// The folder itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// keepalived's configuration.
    #[must_use]
    pub fn configuration(&self) -> PathBuf {
        self.path.join("keepalived.conf")
    }

    /// The next configuration, until it is checked.
    #[must_use]
    pub fn next_configuration(&self) -> PathBuf {
        self.path.join("keepalived.conf.next")
    }

    /// keepalived's FIFO of state changes.
    #[must_use]
    pub fn fifo(&self) -> PathBuf {
        self.path.join("notify.fifo")
    }

    /// keepalived's file with its process ID.
    #[must_use]
    pub fn pid(&self) -> PathBuf {
        self.path.join("keepalived.pid")
    }

    /// keepalived's file with the process ID of its VRRP process.
    #[must_use]
    pub fn vrrp_pid(&self) -> PathBuf {
        self.path.join("vrrp.pid")
    }

    fn record_path(&self) -> PathBuf {
        self.path.join("record.json")
    }

    fn heartbeat_path(&self) -> PathBuf {
        self.path.join("heartbeat")
    }

    fn stripped_path(&self) -> PathBuf {
        self.path.join("stripped")
    }

    /// Creates the folder, and locks it for this process.
    ///
    /// # Errors
    /// The file system's; `WouldBlock` if another keeper runs in this folder.
    pub fn lock(&self) -> io::Result<File> {
        fs::create_dir_all(&self.path)?;
        let lock =
            OpenOptions::new().create(true).truncate(false).write(true).open(self.path.join("lock"))?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(fs::TryLockError::WouldBlock) => {
                Err(io::Error::new(io::ErrorKind::WouldBlock, "another keeper runs in this folder"))
            }
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// The record, if there is one.
    ///
    /// # Errors
    /// The file system's; `InvalidData` for a file that is no record of this version.
    pub fn record(&self) -> io::Result<Option<Record>> {
        let Some(text) = read(&self.record_path())? else { return Ok(None) };
        let record: Record = serde_json::from_str(&text)?;
        if record.v == Record::VERSION {
            return Ok(Some(record));
        }
        let error = format!("version {} is not supported, {} is", record.v, Record::VERSION);
        Err(io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Replaces the record in one step.
    ///
    /// # Errors
    /// The file system's.
    pub fn write_record(&self, record: &Record) -> io::Result<()> {
        let next = self.path.join("record.json.next");
        fs::write(&next, serde_json::to_vec(record)?)?;
        fs::rename(next, self.record_path())
    }

    /// Records that the guard has removed so many addresses.
    ///
    /// # Errors
    /// The file system's.
    pub fn add_stripped(&self, count: usize) -> io::Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(self.stripped_path())?;
        writeln!(file, "{count}")
    }

    /// The number of addresses that the guard has removed since the last call.
    ///
    /// # Errors
    /// The file system's.
    pub fn take_stripped(&self) -> io::Result<usize> {
        let path = self.stripped_path();
        let Some(text) = read(&path)? else { return Ok(0) };
        fs::remove_file(path)?;
        Ok(text.lines().filter_map(|count| count.parse::<usize>().ok()).sum())
    }

    /// The time of the last heartbeat by CLOCK_MONOTONIC, if there was one.
    ///
    /// # Errors
    /// The file system's; `InvalidData` for another file.
    pub fn heartbeat(&self) -> io::Result<Option<Duration>> {
        let Some(text) = read(&self.heartbeat_path())? else { return Ok(None) };
        parse_heartbeat(&text).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Opens the file of heartbeats, and writes the first one.
    ///
    /// # Errors
    /// The file system's.
    pub fn heartbeats(&self, first: Duration) -> io::Result<Heartbeats> {
        // A rename, since a guard must not read an empty file.
        let next = self.path.join("heartbeat.next");
        let mut options = OpenOptions::new();
        let file = options.create(true).truncate(true).write(true).open(&next)?;
        let heartbeats = Heartbeats { file };
        heartbeats.write(first)?;
        fs::rename(next, self.heartbeat_path())?;
        Ok(heartbeats)
    }

    /// Removes record and heartbeat: there is nothing to guard.
    ///
    /// # Errors
    /// The file system's.
    pub fn clear(&self) -> io::Result<()> {
        [self.record_path(), self.heartbeat_path()].iter().try_for_each(|path| match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        })
    }
}

/// The open file of heartbeats.
#[derive(Debug)]
pub struct Heartbeats {
    file: File,
}

impl Heartbeats {
    /// Replaces the heartbeat. `now`: CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(&self, now: Duration) -> io::Result<()> {
        // Of constant length, so that the file is overwritten in one write.
        self.file.write_all_at(format!("{:020}\n", now.as_nanos()).as_bytes(), 0)
    }
}

fn parse_heartbeat(text: &str) -> Option<Duration> {
    text.strip_suffix('\n')?.parse().ok().map(Duration::from_nanos)
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_and_heartbeats_are_read_back_until_they_are_cleared() {
        let folder = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(folder.path().join("51"));
        let _lock = run_dir.lock().unwrap();
        assert_eq!(run_dir.lock().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!((run_dir.record().unwrap(), run_dir.heartbeat().unwrap()), (None, None));
        let keeper = Process { pid: 7, start: 9 };
        let record = Record::new(keeper, &Router::sample("192.168.50.201-192.168.50.202"));
        run_dir.write_record(&record).unwrap();
        assert_eq!(run_dir.record().unwrap().as_ref(), Some(&record));
        for (address, covered) in [
            ("192.168.50.202", true),
            ("169.254.51.1", true),
            ("192.168.50.203", false),
            ("127.0.0.1", false),
        ] {
            assert_eq!(record.covers(address.parse().unwrap()), covered, "{address}");
        }
        let first = Duration::from_secs(5);
        let heartbeats = run_dir.heartbeats(first).unwrap();
        assert_eq!(run_dir.heartbeat().unwrap(), Some(first));
        let second = Duration::from_nanos(7_123_456_789);
        heartbeats.write(second).unwrap();
        assert_eq!(run_dir.heartbeat().unwrap(), Some(second));
        run_dir.clear().unwrap();
        run_dir.clear().unwrap();
        assert_eq!((run_dir.record().unwrap(), run_dir.heartbeat().unwrap()), (None, None));
    }

    #[test]
    fn other_texts_are_no_heartbeat() {
        for text in ["", "1", "1 2\n", "x\n", "99999999999999999999\n"] {
            assert_eq!(parse_heartbeat(text), None, "{text}");
        }
    }
}
