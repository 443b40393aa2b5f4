//! Detects CNI plugins whose datapath the driver vxlan cannot work beside.

use std::{collections::BTreeSet, io, path::Path};

use common::plan::Reason;
use serde::Serialize;
use serde_json::Value;

/// The kernel's network interfaces of the process' network namespace.
const INTERFACES: &str = "/sys/class/net";

/// A CNI plugin that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Unsupported {
    /// Its name.
    pub name: &'static str,
    /// The reason, and the alternative.
    because: &'static str,
    /// Interfaces by which it is detected.
    interfaces: &'static [&'static str],
    /// Types of plugins in a CNI configuration by which it is detected.
    types: &'static [&'static str],
}

/// A detected plugin, and an Event on the Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error(
    "driver vxlan does not work with {} ({detected_by} exists on this node): {}",
    cni.name,
    cni.because
)]
pub struct Detected {
    /// The plugin.
    pub cni: Unsupported,
    /// The interface or the file.
    pub detected_by: String,
}

impl Reason for Detected {
    fn code(&self) -> &'static str {
        "UnsupportedCni"
    }

    fn is_trouble(&self) -> bool {
        true
    }
}

const UNSUPPORTED: [Unsupported; 5] = [
    Unsupported {
        name: "Cilium",
        because: "its eBPF programs forward packets past the kernel's routes and nf_tables",
        interfaces: &["cilium_host", "cilium_net"],
        types: &["cilium-cni"],
    },
    Unsupported {
        name: "OVN-Kubernetes",
        because: "it forwards packets in Open vSwitch; use its EgressService",
        interfaces: &["ovn-k8s-mp0"],
        types: &["ovn-k8s-cni-overlay"],
    },
    Unsupported {
        name: "Antrea",
        because: "it forwards packets in Open vSwitch; use its Egress",
        interfaces: &["antrea-gw0"],
        types: &["antrea"],
    },
    Unsupported {
        name: "Kube-OVN",
        because: "it forwards packets in Open vSwitch; use its VpcEgressGateway",
        interfaces: &["ovn0"],
        types: &["kube-ovn"],
    },
    Unsupported {
        name: "Calico with eBPF",
        because: "its eBPF programs forward packets past the kernel's routes and nf_tables; use its standard Linux dataplane",
        interfaces: &["bpfin.cali", "bpfout.cali"],
        types: &[],
    },
];

/// The plugin that is detected by interfaces, or by the first file of the CNI configuration in lexical order, which is the one that
/// container runtimes use.
#[must_use]
pub fn detect(interfaces: &BTreeSet<String>, configuration: Option<(&str, &str)>) -> Option<Detected> {
    let by_interface = UNSUPPORTED.into_iter().find_map(|cni| {
        let interface = cni.interfaces.iter().find(|name| interfaces.contains(**name))?;
        Some(Detected { cni, detected_by: format!("interface {interface}") })
    });
    by_interface.or_else(|| {
        let (file, text) = configuration?;
        let types = types(text);
        let cni = UNSUPPORTED.into_iter().find(|cni| cni.types.iter().any(|one| types.contains(*one)))?;
        Some(Detected { cni, detected_by: format!("CNI configuration {file}") })
    })
}

/// The types of the plugins of a CNI configuration; empty if it is none.
fn types(text: &str) -> BTreeSet<String> {
    let configuration: Value = serde_json::from_str(text).unwrap_or_default();
    let chained = configuration.get("plugins").and_then(Value::as_array).into_iter().flatten();
    let plugins = chained.chain([&configuration]);
    plugins.filter_map(|plugin| plugin.get("type")?.as_str().map(str::to_owned)).collect()
}

/// Reads the interfaces of this node, and the CNI configuration if its folder is given and exists.
///
/// # Errors
/// The interfaces or the folder cannot be read.
pub fn read(folder: Option<&Path>) -> io::Result<Option<Detected>> {
    let interfaces = names(Path::new(INTERFACES))?;
    let Some(folder) = folder else { return Ok(detect(&interfaces, None)) };
    let files = match names(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeSet::new(),
        files => files?,
    };
    let is_configuration =
        |file: &&String| [".conf", ".conflist", ".json"].iter().any(|end| file.ends_with(end));
    let Some(file) = files.iter().find(is_configuration) else { return Ok(detect(&interfaces, None)) };
    let text = std::fs::read_to_string(folder.join(file))?;
    Ok(detect(&interfaces, Some((file, &text))))
}

fn names(folder: &Path) -> io::Result<BTreeSet<String>> {
    std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(interfaces: &[&str], configuration: Option<&str>) -> Option<&'static str> {
        let interfaces = interfaces.iter().map(|name| (*name).to_owned()).collect();
        let configuration = configuration.map(|text| ("10-x.conflist", text));
        detect(&interfaces, configuration).map(|detected| detected.cni.name)
    }

    #[test]
    fn unsupported_plugins_are_detected_by_interface_and_by_configuration() {
        assert_eq!(name(&["lo", "eth0", "cilium_host"], None), Some("Cilium"));
        assert_eq!(name(&["ovn-k8s-mp0"], None), Some("OVN-Kubernetes"));
        assert_eq!(name(&["antrea-gw0"], None), Some("Antrea"));
        assert_eq!(name(&["ovn0"], None), Some("Kube-OVN"));
        assert_eq!(name(&["bpfin.cali"], None), Some("Calico with eBPF"));
        assert_eq!(name(&["lo", "cni0", "flannel.1", "cali1234", "vxlan.calico"], None), None);
        let chained = r#"{"name": "x", "plugins": [{"type": "cilium-cni"}, {"type": "portmap"}]}"#;
        assert_eq!(name(&["lo"], Some(chained)), Some("Cilium"));
        assert_eq!(name(&["lo"], Some(r#"{"name": "x", "type": "kube-ovn"}"#)), Some("Kube-OVN"));
        for supported in [r#"{"plugins": [{"type": "flannel"}, {"type": "portmap"}]}"#, "no json", "[]", ""] {
            assert_eq!(name(&["lo"], Some(supported)), None);
        }
    }

    #[test]
    fn the_refusal_is_one_sentence_with_the_evidence() {
        let detected = detect(&BTreeSet::from(["ovn0".to_owned()]), None).unwrap().to_string();
        assert_eq!(
            detected,
            "driver vxlan does not work with Kube-OVN (interface ovn0 exists on this node): it forwards packets in Open vSwitch; \
             use its VpcEgressGateway"
        );
    }

    #[test]
    fn the_first_configuration_file_counts() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(read(Some(folder.path())).unwrap(), None);
        assert_eq!(read(Some(&folder.path().join("none"))).unwrap(), None);
        write("05-README", r#"{"type": "cilium-cni"}"#);
        write("20-cilium.conflist", r#"{"plugins": [{"type": "cilium-cni"}]}"#);
        assert_eq!(read(Some(folder.path())).unwrap().unwrap().cni.name, "Cilium");
        write("10-flannel.conflist", r#"{"plugins": [{"type": "flannel"}]}"#);
        assert_eq!(read(Some(folder.path())).unwrap(), None);
    }
}
