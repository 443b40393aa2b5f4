use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use super::*;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Simple {
    #[serde(flatten)]
    owner: Owner,
    number: u32,
}

impl AsRef<Owner> for Simple {
    fn as_ref(&self) -> &Owner {
        &self.owner
    }
}

fn simple(container_id: &str, interface: &str, number: u32) -> Simple {
    let netns = PodNetns { path: "/run/netns/x".into(), identity: (1, 2) };
    let (container_id, interface) = (container_id.to_owned(), interface.to_owned());
    let owner = Owner { container_id, ifname: interface.clone(), network: "n".into(), interface, netns };
    Simple { owner, number }
}

#[test]
fn a_pod_counts_as_gone_only_if_this_is_certain() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("netns");
    std::os::unix::fs::symlink("netns", &path).unwrap();
    let unknown = PodNetns { path: path.clone(), identity: (1, 2) };
    assert_eq!(unknown.open().unwrap_err().code, Code::Io, "a link that leads to itself");
    fs::remove_file(&path).unwrap();
    assert!(unknown.open().unwrap().is_none());
    fs::write(&path, "").unwrap();
    assert!(unknown.open().unwrap().is_none(), "another file");
    let own = Namespace::current().unwrap();
    let lives = PodNetns { path: "/proc/thread-self/ns/net".into(), identity: own.identity().unwrap() };
    assert!(lives.open().unwrap().is_some());
}

#[test]
fn a_record_is_written_read_and_removed() {
    for durable in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let folder = Folder::new(directory.path(), "some/where", durable);
        folder.ready().unwrap();
        assert_eq!(fs::read_dir(directory.path().join("some/where")).unwrap().count(), 0);
        assert_eq!(folder.read::<Simple>("c", "net1"), Ok(None));
        assert_eq!(folder.all::<Simple>(), (Vec::new(), Vec::new()));
        folder.write(&simple("c", "net1", 1)).unwrap();
        folder.write(&simple("c", "net1", 2)).unwrap();
        let path = directory.path().join("some/where/c@net1.json");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert_eq!(folder.read("c", "net1"), Ok(Some(simple("c", "net1", 2))));
        assert_eq!(folder.all::<Simple>().0.len(), 1);
        folder.remove("c", "net1").unwrap();
        folder.remove("c", "net1").unwrap();
        assert_eq!(folder.read::<Simple>("c", "net1"), Ok(None));
    }
}

#[test]
fn long_container_ids_with_the_same_prefix_have_different_records() {
    let directory = tempfile::tempdir().unwrap();
    let folder = Folder::new(directory.path(), "a", false);
    let ids = [MAX_LENGTH - 1, MAX_LENGTH, 300].map(|length| ["1", "2"].map(|end| "x".repeat(length) + end));
    for (number, id) in (1..).zip(ids.iter().flatten()) {
        folder.write(&simple(id, "a-name-of-15-by", number)).unwrap();
    }
    for (number, id) in (1..).zip(ids.iter().flatten()) {
        let own = simple(id, "a-name-of-15-by", number);
        assert_eq!(folder.of_container::<Simple>(id), (vec![own], Vec::new()));
    }
    for (left, id) in (0..6).rev().zip(ids.iter().flatten()) {
        folder.remove(id, "a-name-of-15-by").unwrap();
        assert_eq!(folder.read::<Simple>(id, "a-name-of-15-by"), Ok(None));
        assert_eq!(folder.all::<Simple>().0.len(), left);
    }
}

#[test]
fn a_folder_that_cannot_be_created_is_an_error() {
    let error = Folder::new(Path::new("/proc/none"), "a", false).ready().unwrap_err();
    assert_eq!(error.code, Code::Io);
    assert!(error.message.contains("/proc/none"), "{error}");
}

#[test]
fn an_invalid_record_is_reported_and_others_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let folder = Folder::new(directory.path(), "a", false);
    folder.write(&simple("c", "net1", 1)).unwrap();
    fs::write(directory.path().join("a/d@net1.json"), "{").unwrap();
    assert!(folder.read::<Simple>("d", "net1").unwrap_err().message.contains("d@net1.json"));
    let (records, errors) = folder.all::<Simple>();
    assert_eq!((records.len(), errors.len()), (1, 1));
}

#[test]
fn a_locked_record_is_for_one_call_and_others_are_not_locked() {
    let directory = tempfile::tempdir().unwrap();
    let folder = Folder::new(directory.path(), "a", true);
    let end = Instant::now() + Duration::from_secs(300);
    assert!(folder.lock::<Simple>("c", "net1", end).unwrap().is_none(), "no record has been written yet");
    folder.write(&simple("c", "net1", 1)).unwrap();
    folder.write(&simple("d", "net1", 2)).unwrap();
    let first = folder.lock::<Simple>("c", "net1", end).unwrap().unwrap();
    assert_eq!(folder.lock::<Simple>("c", "net1", Instant::now()).unwrap_err().code, Code::TryAgain);
    let other = folder.lock::<Simple>("d", "net1", Instant::now()).unwrap().unwrap();
    assert_eq!((first.record.number, other.record.number), (1, 2));
    // The call that waits gets the record as the first one leaves it.
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| folder.lock::<Simple>("c", "net1", end).unwrap());
        folder.write(&simple("c", "net1", 3)).unwrap();
        drop(first);
        assert_eq!(waits.join().unwrap().unwrap().record.number, 3);
        let waits = scope.spawn(|| folder.lock::<Simple>("d", "net1", end).unwrap());
        folder.remove("d", "net1").unwrap();
        drop(other);
        assert!(waits.join().unwrap().is_none());
    });
}
