//! Whether this node is an EC2 instance, without a delay where it is not.
//!
//! The firmware is asked first ("Detect whether a host is an EC2 instance", EC2 User Guide). Nitro and bare metal instances
//! name their vendor, and that is certain. Instances on Xen only have a UUID that begins with `ec2`, which one Xen guest in
//! 4,096 has elsewhere: there the metadata service confirms. A host that is neither is never asked over the network.

use std::path::Path;
use std::time::{Duration, Instant};

use super::metadata::Metadata;
use super::transport::Transport;
use crate::config::settings::{Platform, Settings};

/// The service answers in 1 ms from the host below; half a second is an eternity to it and bearable to others.
const CONFIRM_TIMEOUT: Duration = Duration::from_millis(500);
/// The answer of the metadata service, in the run directory. A reboot ends it, as it ends the instance's type.
const CACHE: &str = "platform";
/// A service that was not there is asked again after this: the first pods may come before the network does.
const NEGATIVE_CACHE_TTL: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Firmware {
    Amazon,
    PerhapsAmazon,
    Other,
}

/// `settings.platform`, or what is found out: never `Auto`. `sys_root` is where `/sys` is.
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
                // Without a cache the next call asks again; that is no failure.
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
    // Only Xen guests have the one, only root reads the other; a vendor other than Xen settles it.
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
