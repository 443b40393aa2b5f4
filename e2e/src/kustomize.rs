//! Renders and applies manifests with kubectl.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::control_plane::ControlPlane;

/// The folder of all manifests.
#[must_use]
pub fn manifests() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../manifests")).components().collect()
}

/// kubectl, as on the nodes of a cluster.
///
/// # Errors
/// It is not built.
pub fn kubectl() -> Result<Command> {
    Ok(Command::new(crate::assets::kubectl()?))
}

/// A user's overlay.
#[derive(Debug, Clone, Default)]
pub struct Overlay<'a> {
    /// The controllers: folders of `manifests`, with all their bases.
    pub controllers: Vec<&'a str>,
    /// Folders of `manifests/components`: `ha/natgw`, `otlp`.
    pub components: Vec<&'a str>,
    /// Kustomize's `namespace:`.
    pub namespace: Option<&'a str>,
    /// Kustomize's `namePrefix:`.
    pub name_prefix: Option<&'a str>,
}

impl Overlay<'_> {
    /// Writes it to a new folder.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(&self) -> Result<TempDir> {
        let manifests = manifests().canonicalize().context("manifests")?;
        let overlay = tempfile::tempdir()?;
        // kustomize accepts only relative paths.
        let depth = overlay.path().canonicalize()?.components().count() - 1;
        let of = |path: PathBuf| {
            let below = path.strip_prefix("/").unwrap_or(&path).to_owned();
            PathBuf::from("../".repeat(depth)).join(below)
        };
        let bases = self.controllers.iter().flat_map(|name| bases(name));
        let resources: Vec<PathBuf> = bases.map(|base| of(manifests.join(base))).collect();
        let components: Vec<PathBuf> =
            self.components.iter().map(|name| of(manifests.join("components").join(name))).collect();
        // JSON is YAML.
        let mut kustomization = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": resources,
            "components": components,
        });
        let fields = kustomization.as_object_mut().context("an object")?;
        for (field, value) in [("namespace", self.namespace), ("namePrefix", self.name_prefix)] {
            if let Some(value) = value {
                fields.insert(field.to_owned(), json!(value));
            }
        }
        std::fs::write(overlay.path().join("kustomization.yaml"), kustomization.to_string())?;
        Ok(overlay)
    }
}

/// The bases of a controller: a folder of `manifests`, and those below it that are installed with it.
#[must_use]
pub fn bases(controller: &str) -> Vec<String> {
    let below: &[&str] = if controller == "cgw-controller" { &["/keeper", "/agent"] } else { &[] };
    std::iter::once("").chain(below.iter().copied()).map(|folder| format!("{controller}{folder}")).collect()
}

/// An overlay of one controller with these components.
///
/// # Errors
/// The folder cannot be written.
pub fn overlay(controller: &str, components: &[&str]) -> Result<TempDir> {
    Overlay { controllers: vec![controller], components: components.to_vec(), ..Overlay::default() }.write()
}

/// The YAML that `kubectl apply -k` of this folder would apply.
///
/// # Errors
/// What kubectl says against it; a warning is one too.
pub fn render(folder: &Path) -> Result<String> {
    let output = kubectl()?.arg("kustomize").arg(folder).output().context("kubectl")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && stderr.is_empty(), "{}: {stderr}", folder.display());
    Ok(String::from_utf8(output.stdout)?)
}

/// `kubectl apply` of a folder (`-k`) or a file (`-f`) with strict validation: what it says of each object.
///
/// # Errors
/// What kubectl says against it; a warning is one too.
pub fn apply(control_plane: &ControlPlane, from: &str, path: &Path, more: &[&str]) -> Result<Vec<String>> {
    let output = kubectl()?
        .args(["apply", "--validate=strict", "--kubeconfig"])
        .arg(control_plane.kubeconfig())
        .args(more)
        .arg(from)
        .arg(path)
        .output()
        .context("kubectl")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && stderr.is_empty(), "{}: {stderr}", path.display());
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}

/// The objects of a rendered YAML.
///
/// # Errors
/// It is not YAML.
pub fn objects(yaml: &str) -> Result<Vec<Value>> {
    Ok(serde_yaml::from_multiple(yaml)?)
}

/// The one object of this kind.
///
/// # Errors
/// There is none, or more than one.
pub fn only<'a>(objects: &'a [Value], kind: &str) -> Result<&'a Value> {
    let mut found = objects.iter().filter(|object| object.get("kind").is_some_and(|other| other == kind));
    let first = found.next().with_context(|| format!("no {kind}"))?;
    ensure!(found.next().is_none(), "more than one {kind}");
    Ok(first)
}
