//! The manifests: flags, variables, ports and pods match each program, permissions are those that it needs, and the examples are valid.
//! `compose` renders and applies the manifests of all controllers, alone and together.

mod apinetlet;
mod compose;
mod deorbiter;
mod egress_router;
mod natgw;
mod routegc;

use std::path::Path;

use e2e::control_plane::ControlPlane;
use e2e::kustomize;
use serde_json::Value;

/// The control plane that these tests share, because each controller has a namespace of its own. An existing cluster may have them already.
async fn control_plane() -> ControlPlane {
    ControlPlane::builder().controller_flag("--controllers=*").shared("manifests").await.unwrap()
}

/// The objects that kustomize makes of a folder.
fn render(folder: &Path) -> Vec<Value> {
    kustomize::objects(&kustomize::render(folder).unwrap()).unwrap()
}

/// The lines of `kubectl apply`, with `-k` or `-f`.
fn apply(control_plane: &ControlPlane, from: &str, path: &Path, more: &[&str]) -> Vec<String> {
    kustomize::apply(control_plane, from, path, more).unwrap()
}
