//! `CNI_ARGS`: `KEY=value;KEY=value`, as kubelet's runtimes and Multus write it.

/// What is read from it; other keys are ignored, as `IgnoreUnknown` asks and every Kubernetes runtime sends.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Args {
    /// `K8S_POD_NAMESPACE`.
    pub pod_namespace: Option<String>,
    /// `K8S_POD_NAME`.
    pub pod_name: Option<String>,
    /// `K8S_POD_UID`.
    pub pod_uid: Option<String>,
    /// `MAC`, the older form of `runtimeConfig.mac`.
    pub mac: Option<String>,
    /// `IP`, the older form of `runtimeConfig.ips`.
    pub ip: Option<String>,
}
