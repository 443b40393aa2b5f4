//! The test environment of Perimeter.
//!
//! ```text
//!   natgw ── fault_proxy ── control_plane   (real etcd, kube-apiserver, kube-controller-manager; hollow nodes)
//!     └───── fault_proxy ── hetzner         (a simulated API, as strict as the real one)
//!
//!   routegc, deorbiter ── openstack       (real Keystone, Neutron, Nova, Cinder, Octavia)
//!
//!   apinetlet ── ironcore                 (real API servers of ironcore and ironcore-net; a stand-in for the MachinePool)
//!
//!   egress-router ── egress_router        (a node, its pods, another node, a LAN, an outside: namespaces with packets)
//!
//!   natgw, cgw ── cluster                 (real nodes: kubelet, containerd, kube-proxy; a host in the Internet)
//! ```

pub mod assets;
pub mod cgw;
pub mod cluster;
pub mod control_plane;
pub mod deorbiter;
pub mod egress_router;
pub mod fault_proxy;
pub mod hetzner;
pub mod hollow_node;
pub mod ironcore;
pub mod kustomize;
#[cfg(feature = "controllers")]
pub mod machine_pool;
#[cfg(feature = "controllers")]
pub mod natgw;
pub mod netns;
#[cfg(feature = "controllers")]
pub mod onmetal;
pub mod openstack;
pub mod program;
pub mod providers;
pub mod rights;
#[cfg(feature = "controllers")]
pub mod routegc;
pub mod slots;
mod state_dir;
pub mod sweep;
pub mod wait;
