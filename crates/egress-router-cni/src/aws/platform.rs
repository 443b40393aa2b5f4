//! Detects whether this node is an EC2 instance, without a delay on other nodes.
//!
//! The firmware is read first ("Detect whether a host is an EC2 instance", EC2 User Guide). Nitro and bare metal instances
//! name their vendor, and that is certain. Instances on Xen only have a UUID that begins with `ec2`, which one Xen guest in
//! 4,096 has elsewhere: there the metadata service must confirm it. Other hosts send no request.

use std::path::Path;
use std::time::{Duration, Instant};

use super::metadata::Metadata;
use crate::config::settings::{Platform, Settings};
use crate::http::Transport;

/// The service responds within 1 ms from the host; half a second is ample for it, and acceptable elsewhere.
const CONFIRM_TIMEOUT: Duration = Duration::from_millis(500);
/// The cached result, in the run directory. It is lost at a reboot, which may also change the instance's type.
const CACHE: &str = "platform";
/// A negative result is cached for this time, because the first pods may start before the network is up.
const NEGATIVE_CACHE_TTL: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Firmware {
    Amazon,
    PerhapsAmazon,
    Other,
}

/// `settings.platform`, or the detected platform; never `Auto`. `sys_root` is the path of `/sys`.
pub fn platform(transport: &dyn Transport, endpoint: &str, settings: &Settings, sys_root: &Path) -> Platform {
    match settings.platform {
        Platform::Auto => {}
        configured => return configured,
    }
    match firmware(sys_root) {
        Firmware::Amazon => Platform::Aws,
        Firmware::Other => Platform::None,
        Firmware::PerhapsAmazon => {
            let cache = settings.run_directory.join(CACHE);
            cached(&cache).unwrap_or_else(|| {
                let there = Metadata::new(transport, endpoint, Instant::now() + CONFIRM_TIMEOUT).is_there();
                // Without the cache the next call sends the request again; this is not a failure.
                let _ = std::fs::create_dir_all(&settings.run_directory);
                let _ = std::fs::write(&cache, if there { "aws\n" } else { "none\n" });
                if there { Platform::Aws } else { Platform::None }
            })
        }
    }
}

fn cached(file: &Path) -> Option<Platform> {
    match std::fs::read_to_string(file).ok()?.trim() {
        "aws" => Some(Platform::Aws),
        "none" => {
            let age = std::fs::metadata(file).ok()?.modified().ok()?.elapsed().ok()?;
            (age < NEGATIVE_CACHE_TTL).then_some(Platform::None)
        }
        _ => None,
    }
}

fn firmware(sys_root: &Path) -> Firmware {
    let read = |path: &str| {
        let text = std::fs::read_to_string(sys_root.join(path)).unwrap_or_default();
        text.trim().to_ascii_lowercase()
    };
    let vendor = read("class/dmi/id/sys_vendor");
    if vendor == "amazon ec2" {
        return Firmware::Amazon;
    }
    // Only Xen guests have the first file; only root can read the second. A vendor other than Xen decides.
    if !(vendor.is_empty() || vendor == "xen") {
        return Firmware::Other;
    }
    let hypervisor = read("hypervisor/uuid");
    if begins_as_ec2(&hypervisor) || (vendor == "xen" && begins_as_ec2(&read("class/dmi/id/product_uuid"))) {
        return Firmware::PerhapsAmazon;
    }
    Firmware::Other
}

/// SMBIOS from 2.6 on writes the first group of a UUID with its lowest byte first, and some firmware does: `45e12aec-…` is
/// `ec2ae145-…`.
fn begins_as_ec2(uuid: &str) -> bool {
    uuid.starts_with("ec2") || (uuid.get(6..8) == Some("ec") && uuid.get(4..5) == Some("2"))
}

#[cfg(test)]
mod tests;
