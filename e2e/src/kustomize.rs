//! Manifests as a user's `kubectl kustomize` renders them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// The folder of all manifests.
#[must_use]
pub fn manifests() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests")).components().collect()
}

/// The base of a controller with these components (`monitoring/natgw`), as one overlay: YAML, as it would be applied.
///
/// # Errors
/// What kubectl says against it.
pub fn render(controller: &str, components: &[&str]) -> Result<String> {
    let manifests = manifests().canonicalize().context("manifests")?;
    let overlay = tempfile::tempdir()?;
    // kustomize takes no absolute paths: up to the root, and down again.
    let depth = overlay.path().canonicalize()?.components().count() - 1;
    let of = |path: &Path| {
        let below = path.strip_prefix("/").unwrap_or(path);
        PathBuf::from("../".repeat(depth)).join(below)
    };
    let components: Vec<PathBuf> =
        components.iter().map(|component| of(&manifests.join("components").join(component))).collect();
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [of(&manifests.join(controller))],
        "components": components,
    });
    std::fs::write(overlay.path().join("kustomization.yaml"), kustomization.to_string())?;
    let kubectl = crate::assets::cluster()?.join("kubectl");
    let output = Command::new(kubectl).arg("kustomize").arg(overlay.path()).output().context("kubectl")?;
    ensure!(
        output.status.success(),
        "{controller} with {components:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// The objects of a rendered YAML.
///
/// # Errors
/// It is no YAML.
pub fn objects(yaml: &str) -> Result<Vec<Value>> {
    Ok(serde_yaml::from_multiple(yaml)?)
}

/// The one object of this kind.
///
/// # Errors
/// There is none, or another.
pub fn only<'a>(objects: &'a [Value], kind: &str) -> Result<&'a Value> {
    let mut found = objects.iter().filter(|object| object.get("kind").is_some_and(|other| other == kind));
    let first = found.next().with_context(|| format!("no {kind}"))?;
    ensure!(found.next().is_none(), "more than one {kind}");
    Ok(first)
}
