//! A request in the words of RBAC.

use http::Method;

/// The attributes of a Kubernetes request, in the words in which RBAC grants it (`RequestInfo` of k8s.io/apiserver).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubeRequest {
    /// get, list, watch, create, update, patch, delete or deletecollection.
    pub verb: String,
    /// The API group; empty for the core.
    pub group: String,
    /// The version within the group.
    pub version: String,
    /// The resource, plural.
    pub resource: String,
    /// The subresource (`status`), if there is one.
    pub subresource: Option<String>,
    /// The namespace; as in `RequestInfo`, that of a Namespace is itself.
    pub namespace: Option<String>,
    /// The object's name; from `metadata.name=` of the field selector for lists and watches, as in `RequestInfo`.
    pub name: Option<String>,
}

impl KubeRequest {
    /// Reads it from the request line. `target` may have a query. None if the path is not that of a resource
    /// (`/healthz`, discovery, another API) or the method has no verb.
    pub fn parse(method: &Method, target: &str) -> Option<KubeRequest> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
        let group = match parts.next()? {
            "api" => String::new(),
            "apis" => parts.next()?.to_owned(),
            _ => return None,
        };
        let version = parts.next()?.to_owned();
        let watch_path = parts.next_if_eq(&"watch").is_some();
        let rest: Vec<&str> = parts.collect();
        let (namespace, rest) = match rest.as_slice() {
            // status and finalize belong to the Namespace; anything else is a resource within it.
            ["namespaces", name, "status" | "finalize"] => (Some(*name), rest.as_slice()),
            ["namespaces", name, inner @ ..] if !inner.is_empty() => (Some(*name), inner),
            ["namespaces", name] => (Some(*name), rest.as_slice()),
            _ => (None, rest.as_slice()),
        };
        let (resource, name, subresource) = match rest {
            [resource] => (*resource, None, None),
            [resource, name] => (*resource, Some((*name).to_owned()), None),
            [resource, name, subresource, ..] => (*resource, Some((*name).to_owned()), Some(*subresource)),
            [] => return None,
        };
        let verb = if watch_path || (*method == Method::GET && watches(query)) {
            "watch"
        } else {
            match (method.as_str(), &name) {
                ("GET" | "HEAD", Some(_)) => "get",
                ("GET" | "HEAD", None) => "list",
                ("POST", _) => "create",
                ("PUT", _) => "update",
                ("PATCH", _) => "patch",
                ("DELETE", Some(_)) => "delete",
                ("DELETE", None) => "deletecollection",
                _ => return None,
            }
        };
        let name = name.or_else(|| selected_name(query));
        Some(KubeRequest {
            verb: verb.to_owned(),
            group,
            version,
            resource: resource.to_owned(),
            subresource: subresource.map(str::to_owned),
            namespace: namespace.map(str::to_owned),
            name,
        })
    }

    /// Resource and subresource as a Role writes them: `nodes`, `nodes/status`.
    pub fn full_resource(&self) -> String {
        match &self.subresource {
            Some(subresource) => format!("{}/{subresource}", self.resource),
            None => self.resource.clone(),
        }
    }
}

fn watches(query: &str) -> bool {
    query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch"))
}

fn selected_name(query: &str) -> Option<String> {
    let selector = query.split('&').find_map(|pair| pair.strip_prefix("fieldSelector="))?;
    let selector = selector.replace("%3D", "=").replace("%3d", "=").replace("%2C", ",").replace("%2c", ",");
    let name = selector.split(',').find_map(|term| term.strip_prefix("metadata.name="))?;
    Some(name.trim_start_matches('=').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(method: Method, target: &str) -> Option<String> {
        let request = KubeRequest::parse(&method, target)?;
        Some(format!(
            "{} {}/{} {} in {} named {}",
            request.verb,
            request.group,
            request.version,
            request.full_resource(),
            request.namespace.as_deref().unwrap_or("-"),
            request.name.as_deref().unwrap_or("-")
        ))
    }

    #[test]
    fn requests_are_read_as_the_api_server_reads_them() {
        for (method, target, expected) in [
            (Method::GET, "/api/v1/nodes", "list /v1 nodes in - named -"),
            (Method::GET, "/api/v1/nodes?limit=5&watch=true", "watch /v1 nodes in - named -"),
            (Method::GET, "/api/v1/nodes?watch=false", "list /v1 nodes in - named -"),
            (Method::GET, "/api/v1/watch/namespaces/a/pods", "watch /v1 pods in a named -"),
            (Method::PATCH, "/api/v1/nodes/n1/status", "patch /v1 nodes/status in - named n1"),
            (Method::GET, "/api/v1/namespaces/a", "get /v1 namespaces in a named a"),
            (Method::PUT, "/api/v1/namespaces/a/finalize", "update /v1 namespaces/finalize in a named a"),
            (Method::POST, "/apis/batch/v1/namespaces/a/jobs", "create batch/v1 jobs in a named -"),
            (Method::DELETE, "/apis/batch/v1/namespaces/a/jobs/j?x=1", "delete batch/v1 jobs in a named j"),
            (
                Method::DELETE,
                "/apis/batch/v1/namespaces/a/jobs",
                "deletecollection batch/v1 jobs in a named -",
            ),
            (
                Method::GET,
                "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp&watch=1",
                "watch /v1 pods in a named p",
            ),
        ] {
            assert_eq!(words(method, target).as_deref(), Some(expected), "{target}");
        }
    }

    #[test]
    fn what_is_no_resource_is_none() {
        for target in [
            "/healthz",
            "/",
            "/api",
            "/api/v1",
            "/apis/batch",
            "/apis/batch/v1",
            "/networks/5/actions/add_route",
        ] {
            assert_eq!(words(Method::GET, target), None, "{target}");
        }
    }
}
