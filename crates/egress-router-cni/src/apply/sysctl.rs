//! Sysctls of the calling thread's network namespace, which `/proc/sys/net` shows.

use std::fs::OpenOptions;
use std::io::{self, Write};

/// Writes `value` to the sysctl whose name has these parts.
///
/// # Errors
/// InvalidInput: the path would be outside of `/proc/sys`.
pub fn write(name: &[String], value: &str) -> io::Result<()> {
    let mut path = String::from("/proc/sys");
    for part in name {
        if part.is_empty() || part == "." || part == ".." || part.contains('/') {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        path.push('/');
        path.push_str(part);
    }
    // Neither created nor truncated, so that another file is not changed.
    OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use crate::sys::isolated::isolated;

    fn name(parts: &[&str]) -> Vec<String> {
        parts.iter().map(|part| (*part).to_owned()).collect()
    }

    #[test]
    fn a_thread_writes_sysctls_of_its_namespace() {
        let forwarding = "/proc/sys/net/ipv4/conf/lo/forwarding";
        let before = std::fs::read_to_string(forwarding).unwrap();
        let other = if before.trim() == "1" { "0" } else { "1" };
        isolated(move || {
            super::write(&name(&["net", "ipv4", "conf", "lo", "forwarding"]), other).unwrap();
            assert_eq!(std::fs::read_to_string(forwarding).unwrap().trim(), other);
        });
        assert_eq!(std::fs::read_to_string(forwarding).unwrap(), before);
    }

    #[test]
    fn no_name_leads_elsewhere() {
        for parts in [&["net", "..", "x"][..], &["net/ipv4"], &["", "x"], &["."]] {
            let error = super::write(&name(parts), "1").unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{parts:?}");
        }
        let error = super::write(&name(&["net", "ipv4", "conf", "missing", "forwarding"]), "1").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    }
}
