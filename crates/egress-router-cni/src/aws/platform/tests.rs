use std::cell::Cell;

use super::*;
use crate::http::{Cause, NoResponse, Request, Response};

struct Service {
    asked: Cell<u32>,
    status: Option<u16>,
}

impl Service {
    fn answering(status: Option<u16>) -> Self {
        Self { asked: Cell::new(0), status }
    }
}

impl Transport for Service {
    fn send(&self, request: &Request<'_>) -> Result<Response, NoResponse> {
        assert!(request.timeout <= CONFIRM_TIMEOUT);
        self.asked.set(self.asked.get() + 1);
        self.status
            .map(|status| Response { status, body: b"token".to_vec() })
            .ok_or_else(|| NoResponse { why: "refused".into(), cause: Cause::Temporary })
    }
}

struct Node {
    root: tempfile::TempDir,
    settings: Settings,
}

impl Node {
    fn new(files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let file = root.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let settings = Settings { run_directory: root.path().join("run"), ..Settings::default() };
        Self { root, settings }
    }

    fn platform(&self, service: &Service) -> Platform {
        platform(service, "http://metadata.invalid", &self.settings, self.root.path())
    }
}

const XEN: (&str, &str) = ("class/dmi/id/sys_vendor", "Xen\n");
const UUID: (&str, &str) = ("hypervisor/uuid", "ec2e1916-9099-7caf-fd21-012345abcdef\n");

#[test]
fn on_nitro_the_vendor_decides_without_a_request() {
    let service = Service::answering(None);
    let node = Node::new(&[("class/dmi/id/sys_vendor", "Amazon EC2\n")]);
    assert_eq!(node.platform(&service), Platform::Aws);
    assert_eq!(service.asked.get(), 0);
}

#[test]
fn other_hardware_causes_no_request() {
    let service = Service::answering(Some(200));
    let hosts: [&[(&str, &str)]; 4] = [
        &[],
        &[("class/dmi/id/sys_vendor", "Dell Inc.\n")],
        // A random UUID on hardware that is not Xen.
        &[
            ("class/dmi/id/sys_vendor", "QEMU\n"),
            ("class/dmi/id/product_uuid", "ec2e1916-0000-0000-0000-000000000000\n"),
        ],
        &[XEN, ("hypervisor/uuid", "11111111-9099-7caf-fd21-012345abcdef\n")],
    ];
    for files in hosts {
        assert_eq!(Node::new(files).platform(&service), Platform::None, "{files:?}");
    }
    assert_eq!(service.asked.get(), 0);
}

#[test]
fn a_xen_guest_is_confirmed_once() {
    let service = Service::answering(Some(200));
    let node = Node::new(&[XEN, UUID]);
    assert_eq!(node.platform(&service), Platform::Aws);
    assert_eq!(node.platform(&service), Platform::Aws);
    assert_eq!(service.asked.get(), 1);
}

#[test]
fn a_uuid_with_swapped_bytes_is_detected() {
    let service = Service::answering(Some(200));
    let node = Node::new(&[XEN, ("class/dmi/id/product_uuid", "45E12AEC-DCD1-B213-94ED-012345ABCDEF\n")]);
    assert_eq!(node.platform(&service), Platform::Aws);
}

#[test]
fn a_foreign_xen_guest_sends_one_request() {
    for status in [None, Some(404)] {
        let service = Service::answering(status);
        let node = Node::new(&[XEN, UUID]);
        assert_eq!(node.platform(&service), Platform::None);
        assert_eq!(node.platform(&service), Platform::None);
        assert_eq!(service.asked.get(), 1);
        // The cached negative result expires.
        let old = std::time::SystemTime::now() - NEGATIVE_CACHE_TTL - Duration::from_secs(1);
        let file =
            std::fs::File::options().write(true).open(node.settings.run_directory.join(CACHE)).unwrap();
        file.set_modified(old).unwrap();
        assert_eq!(node.platform(&service), Platform::None);
        assert_eq!(service.asked.get(), 2);
    }
}

#[test]
fn the_setting_overrides_the_detection() {
    let service = Service::answering(None);
    let mut node = Node::new(&[("class/dmi/id/sys_vendor", "Amazon EC2\n")]);
    node.settings.platform = Platform::None;
    assert_eq!(node.platform(&service), Platform::None);
    node.settings.platform = Platform::Aws;
    assert_eq!(
        Node { root: tempfile::tempdir().unwrap(), settings: node.settings }.platform(&service),
        Platform::Aws
    );
}
