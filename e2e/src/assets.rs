//! Programs that are built once, from pinned modules, outside of the checkout.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// The folder of the nodes' programs: kubelet, kube-proxy, kube-scheduler, kubectl, containerd and others. Missing ones are built (minutes, once;
/// with progress on standard error).
///
/// # Errors
/// When it cannot be built; the reason is on standard error.
pub fn cluster() -> Result<PathBuf> {
    built("cluster")
}

/// kubectl. Built as [`cluster`] is.
///
/// # Errors
/// As [`cluster`].
pub fn kubectl() -> Result<PathBuf> {
    Ok(built("kubectl")?.join("kubectl"))
}

/// The folder of prometheus-operator's resource definitions, `podmonitors.yaml` and `prometheusrules.yaml`. Downloaded once.
///
/// # Errors
/// As [`cluster`].
pub fn monitoring() -> Result<PathBuf> {
    built("monitoring")
}

/// `otelcol`: an OpenTelemetry collector, OTLP in, text out. Built as [`cluster`] is.
///
/// # Errors
/// As [`cluster`].
pub fn collector() -> Result<PathBuf> {
    Ok(built("collector")?.join("otelcol"))
}

/// Debian's promtool, of the package `prometheus`.
#[must_use]
pub fn promtool() -> PathBuf {
    "promtool".into()
}

/// The folder of callers of CNI plugins: `cnitool`, and `libcni` (e2e/assets/libcni). Built as [`cluster`] is.
///
/// # Errors
/// As [`cluster`].
pub fn cni() -> Result<PathBuf> {
    built("cni")
}

/// Multus' plugin. Built as [`cluster`] is.
///
/// # Errors
/// As [`cluster`].
pub fn multus() -> Result<PathBuf> {
    Ok(built("multus")?.join("multus"))
}

/// The folder of `flanneld` and its plugin `flannel`. Built as [`cluster`] is.
///
/// # Errors
/// As [`cluster`].
pub fn flannel() -> Result<PathBuf> {
    built("flannel")
}

/// The folder of OpenStack's drivers: `openstack-cloud-controller-manager`, `cinder-csi-plugin`, `csi-provisioner`,
/// `csi-snapshotter`, `csi-attacher`, `snapshot-controller`, and the resource definitions `volumesnapshotclasses.yaml`,
/// `volumesnapshotcontents.yaml`, `volumesnapshots.yaml`. Built as [`cluster`] is.
///
/// # Errors
/// As [`cluster`].
pub fn providers() -> Result<PathBuf> {
    built("providers")
}

/// The folder of ironcore's and ironcore-net's programs: `ironcore-apiserver`, `ironcore-controller-manager`, `ironcore-net-apiserver`,
/// `ironcore-net-controller-manager`, `ironcore-net-apinetlet`, and upstream's manifests, `ironcore-net-config`. Built as [`cluster`]
/// is.
///
/// # Errors
/// As [`cluster`].
pub fn ironcore() -> Result<PathBuf> {
    built("ironcore")
}

/// The folder of the control plane of that Kubernetes (`1.36`): `KUBEBUILDER_ASSETS`, or built as [`cluster`] is.
///
/// # Errors
/// As [`cluster`].
pub fn control_plane(kubernetes: &str) -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("KUBEBUILDER_ASSETS").filter(|folder| !folder.is_empty()) {
        return Ok(folder.into());
    }
    built(kubernetes)
}

fn built(what: &str) -> Result<PathBuf> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/assets.sh");
    let mut command = Command::new(script);
    // An existing cluster of the user is not used for this.
    command.arg(what).env_remove("E2E_EXISTING_CLUSTER").stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().context(script)?;
    ensure!(output.status.success(), "{script} {what}: {}; it says why above", output.status);
    Ok(String::from_utf8(output.stdout)?.trim_end().into())
}
