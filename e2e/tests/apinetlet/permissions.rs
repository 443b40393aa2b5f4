//! The permissions of apinetlet in both clusters, from upstream's manifests and from those of this project.

use e2e::kustomize::{Overlay, manifests};
use e2e::rights::{Rights, User, until_effective};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

/// The permissions of apinetlet in both clusters.
#[derive(Clone, Copy)]
pub enum Permissions {
    /// Those of upstream's manifests.
    Upstream,
    /// Those of this project's manifests.
    Own,
    /// The same with the component for the names of onmetal.
    OwnOnmetal,
}

/// The permissions in the source cluster, with the Secret of the apinet cluster's kubeconfig.
pub fn source_rights() -> Rights {
    Rights::of("apinetlet").unwrap().and("apinetlet-kubeconfig").unwrap()
}

/// The permissions in the apinet cluster.
pub fn apinet_rights() -> Rights {
    Rights::read("apinetlet", &manifests().join("apinetlet/apinet-rights/rbac.yaml")).unwrap()
}

/// The permissions of one of the bases with the names of onmetal.
pub fn onmetal_rights(base: &str) -> Rights {
    let overlay =
        Overlay { controllers: vec![base], components: vec!["apinetlet-onmetal"], ..Overlay::default() };
    Rights::rendered("apinetlet", overlay.write().unwrap().path()).unwrap()
}

/// The rules of a Role in a file of upstream's manifests.
pub fn upstream_rules(file: &str) -> Vec<Value> {
    let folder = e2e::assets::ironcore().unwrap().join("ironcore-net-config/apinetlet");
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    let role: Value = serde_yaml::from_str(&text).unwrap();
    role["rules"].as_array().unwrap().clone()
}

/// A user with the rights of these files of upstream's manifests in one namespace.
pub async fn grant(client: &Client, namespace: &str, files: &[&str]) -> User {
    let user = format!("apinetlet-{namespace}");
    let rules: Vec<Value> = files.iter().flat_map(|file| upstream_rules(file)).collect();
    let metadata = json!({ "name": user });
    let role = json!({ "metadata": metadata, "rules": rules });
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": metadata, "roleRef": { "apiGroup": group, "kind": "Role", "name": user },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": user }],
    });
    let parameters = PostParams::default();
    let roles = Api::<Role>::namespaced(client.clone(), namespace);
    roles.create(&parameters, &serde_json::from_value(role).unwrap()).await.unwrap();
    let bindings = Api::<RoleBinding>::namespaced(client.clone(), namespace);
    bindings.create(&parameters, &serde_json::from_value(binding).unwrap()).await.unwrap();
    let user = User { name: user, groups: Vec::new() };
    until_effective(client, &user, Some(namespace), &rules).await.unwrap();
    user
}
