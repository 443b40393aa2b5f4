//! All ipvlans of a master have the mode of the last one (ipvlan_set_port_mode in linux/drivers/net/ipvlan/ipvlan_main.c): another mode would
//! silently change that of running pods, which then lose packets. So each attachment reserves its mode.
//!
//! The reservations are ordered by master and mode, so that an ADD reads those of other modes, usually none:
//! `<run directory>/ipvlan/<index of the master>-<mode>/`.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::cni::Error;
use crate::config::interface::{IpvlanMode, Kind, mode_name};
use crate::lock::Lock;
use crate::record::{self, Folder, Owner};

/// Timeout of the master's lock, which is held for reading and writing a few small files.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The folder of all reservations.
const FOLDER: &str = "ipvlan";

const MODES: [IpvlanMode; 3] = [IpvlanMode::L2, IpvlanMode::L3, IpvlanMode::L3s];

/// Checks that no other pod has an ipvlan of another mode on the master with this index. Returns the owners of void reservations of other
/// modes: without the pod's namespace, a reservation is void.
///
/// # Errors
/// Code 7: another pod has one. Code 5: a reservation cannot be read.
pub fn check(
    run_directory: &Path,
    master: u32,
    mode: IpvlanMode,
    desired: &Owner,
) -> Result<Vec<Owner>, Error> {
    let mut void = Vec::new();
    for other in MODES.into_iter().filter(|other| *other != mode) {
        let mut all = record::readable(folder(run_directory, master, other).all::<Owner>())?;
        all.retain(|one| (&one.container_id, &one.interface) != (&desired.container_id, &desired.interface));
        for one in all {
            if one.netns.is_gone() {
                void.push(one);
                continue;
            }
            return Err(Error::invalid_config(format!(
                "all ipvlans of a master share one mode, and container {} has one of mode {mode} on this master: \
                     set interfaceArgs.mode to {mode}, or use another master",
                one.container_id,
                mode = mode_name(Kind::Ipvlan(other)),
            )));
        }
    }
    Ok(void)
}

/// Reserves a mode on the master with this index, before the link is created. Of two calls with different modes, the second fails.
///
/// # Errors
/// As [`check`]; code 11: the master's lock is not free; code 5.
pub fn reserve(run_directory: &Path, master: u32, mode: IpvlanMode, desired: &Owner) -> Result<(), Error> {
    let _lock = Lock::of_master(run_directory, master, Instant::now() + LOCK_TIMEOUT)?;
    for void in check(run_directory, master, mode, desired)? {
        release(run_directory, &void.container_id, &void.interface)?;
    }
    // A killed ADD of the same attachment may have reserved another mode.
    release(run_directory, &desired.container_id, &desired.interface)?;
    folder(run_directory, master, mode).write(desired)
}

fn folder(run_directory: &Path, master: u32, mode: IpvlanMode) -> Folder {
    Folder::new(run_directory, &format!("{FOLDER}/{master}-{}", mode_name(Kind::Ipvlan(mode))), false)
}

/// Removes the reservations of an attachment, of whichever master and mode.
///
/// # Errors
/// Code 5, with the path.
pub fn release(run_directory: &Path, container_id: &str, interface: &str) -> Result<(), Error> {
    // Most nodes have no ipvlan.
    let folders = fs::read_dir(run_directory.join(FOLDER)).into_iter().flatten().flatten();
    for folder in folders {
        let name = Path::new(FOLDER).join(folder.file_name());
        Folder::new(run_directory, &name.to_string_lossy(), false).remove(container_id, interface)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cni::Code;
    use crate::record::PodNetns;
    use crate::sys::Namespace;

    fn owner(container_id: &str) -> Owner {
        let identity = Namespace::current().unwrap().identity().unwrap();
        Owner {
            container_id: container_id.into(),
            ifname: "net1".into(),
            network: "n".into(),
            interface: "net1".into(),
            netns: PodNetns { path: "/proc/thread-self/ns/net".into(), identity },
        }
    }

    #[test]
    fn another_mode_is_refused_until_the_last_pod_is_gone() {
        let run = tempfile::tempdir().unwrap();
        let reserve = |master, mode, container| reserve(run.path(), master, mode, &owner(container));
        for container in ["a", "b"] {
            reserve(7, IpvlanMode::L2, container).unwrap();
        }
        let error = reserve(7, IpvlanMode::L3, "c").unwrap_err();
        assert_eq!(error.code, Code::InvalidConfig);
        assert!(error.message.contains("set interfaceArgs.mode to l2"), "{error}");
        reserve(8, IpvlanMode::L3, "c").unwrap();
        // A killed ADD of the same attachment, with another configuration.
        reserve(8, IpvlanMode::L3s, "c").unwrap();
        reserve(8, IpvlanMode::L3s, "d").unwrap();
        for container in ["a", "b"] {
            assert!(reserve(7, IpvlanMode::L3, "c").is_err());
            release(run.path(), container, "net1").unwrap();
        }
        reserve(7, IpvlanMode::L3, "c").unwrap();
    }

    #[test]
    fn a_reservation_of_a_pod_that_is_gone_is_void_and_removed() {
        let run = tempfile::tempdir().unwrap();
        let mut gone = owner("a");
        gone.netns.identity.1 += 1;
        reserve(run.path(), 7, IpvlanMode::L2, &gone).unwrap();
        reserve(run.path(), 7, IpvlanMode::L3, &owner("b")).unwrap();
        assert_eq!(fs::read_dir(run.path().join("ipvlan/7-l2")).unwrap().count(), 0);
    }

    #[test]
    fn a_reservation_without_a_network_is_in_force() {
        let run = tempfile::tempdir().unwrap();
        let mut stored = serde_json::to_value(owner("a")).unwrap();
        stored.as_object_mut().unwrap().retain(|key, _| key != "ifname" && key != "network");
        fs::create_dir_all(run.path().join("ipvlan/7-l2")).unwrap();
        fs::write(run.path().join("ipvlan/7-l2/a@net1.json"), stored.to_string()).unwrap();
        assert!(reserve(run.path(), 7, IpvlanMode::L3, &owner("b")).is_err());
    }

    #[test]
    fn of_concurrent_calls_with_different_modes_those_of_one_mode_succeed() {
        let run = tempfile::tempdir().unwrap();
        let done: Vec<_> = std::thread::scope(|scope| {
            let calls: Vec<_> = (0..12)
                .map(|number| {
                    let (run, mode) = (run.path(), MODES[number % 3]);
                    scope.spawn(move || reserve(run, 7, mode, &owner(&format!("c{number}"))).map(|()| mode))
                })
                .collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        let won: Vec<_> = done.iter().flatten().collect();
        assert_eq!(won.len(), 4, "{done:?}");
        assert!(won.iter().all(|mode| *mode == won[0]), "{done:?}");
    }
}
