//! Every combination as a server-side dry run at a real API server.

use std::collections::HashSet;

use e2e::assets;
use e2e::control_plane::ControlPlane;
use e2e::kustomize::{self, manifests};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ObjectMeta, Patch, PatchParams, PostParams,
    ValidationDirective,
};
use serde_json::Value;

use super::combinations::{CONTROLLERS, EDGE, rendered};

/// Requests to the API server at the same time.
const PARALLEL: usize = 16;

async fn would_apply(client: &Client, object: &Value) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(object.clone())?;
    let types = object.types.clone().ok_or_else(|| anyhow::anyhow!("no kind"))?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(&types)?);
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let params = PatchParams {
        dry_run: true,
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply("e2e").force()
    };
    let name = object.metadata.name.clone().unwrap_or_default();
    let applied = api.patch(&name, &params, &Patch::Apply(&object)).await;
    applied.map_err(|error| anyhow::anyhow!("{} {name}: {error}", types.kind))?;
    Ok(())
}

/// On a control plane of its own: an existing cluster may have these namespaces already.
#[tokio::test]
async fn a_real_api_server_accepts_every_combination() {
    let control_plane = ControlPlane::builder().without_controllers().start().await.unwrap();
    let kubectl = |args: &[&str]| {
        let output = kustomize::kubectl()
            .unwrap()
            .args(args)
            .arg("--kubeconfig")
            .arg(control_plane.kubeconfig())
            .output();
        let output = output.unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let monitoring = assets::monitoring().unwrap();
    for kind in ["podmonitors", "prometheusrules"] {
        kubectl(&["apply", "--server-side", "-f", monitoring.join(format!("{kind}.yaml")).to_str().unwrap()]);
    }
    kubectl(&["apply", "--server-side", "-k", manifests().join("crds").to_str().unwrap()]);
    kubectl(&["wait", "--for=condition=Established", "--timeout=600s", "crd", "--all"]);
    // A dry run in a namespace that does not exist fails.
    let names = CONTROLLERS.iter().map(|(name, _)| *name).chain([EDGE, "perimeter"]);
    let client = control_plane.client();
    let namespaces = Api::<Namespace>::all(client.clone());
    for name in names {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata, ..Namespace::default() };
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }
    // A dry run leaves nothing behind, so the same object is accepted again.
    let mut accepted = HashSet::new();
    for rendering in tokio::task::spawn_blocking(rendered).await.unwrap() {
        let new = rendering.objects.iter().filter(|object| accepted.insert(*object));
        let applied: Result<Vec<()>, _> = stream::iter(new)
            .map(|object| would_apply(&client, object))
            .buffer_unordered(PARALLEL)
            .try_collect()
            .await;
        let count = applied.unwrap_or_else(|error| panic!("{}: {error}", rendering.title())).len();
        println!("{count:3} of {} objects are new: {}", rendering.objects.len(), rendering.title());
    }
    println!("{} combinations", rendered().len());
}
