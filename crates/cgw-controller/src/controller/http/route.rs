//! The routes of the API.

use common::validation::is_dns_label;
use http::{Method, StatusCode};

use crate::api::Vip;
use crate::api::stores::Owner;

/// One route with its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Bind,
    Vip(Vip),
    Unbind(Vip, Owner),
    Vips,
    Notify,
    OpenApi,
}

/// Why a request is not executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub code: StatusCode,
    pub message: String,
    /// The header `Allow` of a 405.
    pub allow: Option<&'static str>,
}

impl Refusal {
    pub fn new(code: StatusCode, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into(), allow: None }
    }
}

/// Finds the route, and its label for metrics: the path without its parameters, or none for another path. The path decides first, then the
/// method, then the parameters.
pub(super) fn route(method: &Method, path: &str) -> (Option<&'static str>, Result<Route, Refusal>) {
    let parts: Vec<&str> = path.strip_prefix('/').unwrap_or(path).split('/').collect();
    let (label, allow, route) = match parts.as_slice() {
        ["vip"] => ("/vip", "POST", Ok(Route::Bind)),
        ["vip", vip] => ("/vip/{vip}", "GET", parse_vip(vip).map(Route::Vip)),
        ["vip", vip, namespace] => ("/vip/{vip}/{namespace}", "DELETE", unbind(vip, namespace, None)),
        ["vip", vip, namespace, service] => {
            ("/vip/{vip}/{namespace}/{service}", "DELETE", unbind(vip, namespace, Some(service)))
        }
        ["vips"] => ("/vips", "GET", Ok(Route::Vips)),
        ["master_notify"] => ("/master_notify", "POST", Ok(Route::Notify)),
        ["openapi.json"] => ("/openapi.json", "GET", Ok(Route::OpenApi)),
        _ => {
            let message = "there is no such path; see /openapi.json";
            return (None, Err(Refusal::new(StatusCode::NOT_FOUND, message)));
        }
    };
    if allow != method.as_str() {
        let refusal = Refusal::new(StatusCode::METHOD_NOT_ALLOWED, format!("{label} allows {allow}"));
        return (Some(label), Err(Refusal { allow: Some(allow), ..refusal }));
    }
    (Some(label), route)
}

fn unbind(vip: &str, namespace: &str, service: Option<&str>) -> Result<Route, Refusal> {
    let (namespace, service) = (decode(namespace)?, service.map(decode).transpose()?);
    Ok(Route::Unbind(parse_vip(vip)?, owner(&namespace, service.as_deref())?))
}

fn parse_vip(text: &str) -> Result<Vip, Refusal> {
    decode(text)?.parse().map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, format!("vip: {error}")))
}

/// The owner of a binding. Its names are parts of paths of the Kubernetes API.
pub(super) fn owner(namespace: &str, service: Option<&str>) -> Result<Owner, Refusal> {
    let check = |field: &str, name: &str| match is_dns_label(name) {
        true => Ok(name.to_owned()),
        false => Err(Refusal::new(
            StatusCode::BAD_REQUEST,
            format!(
                "{field} has to be a DNS label: at most 63 of a-z, 0-9 and '-', with a letter or digit at both ends"
            ),
        )),
    };
    let namespace = check("namespace", namespace)?;
    Ok(match service {
        None => Owner::Namespace { namespace },
        Some(service) => Owner::Service { namespace, service: check("service", service)? },
    })
}

/// Decodes `%3A` and others in one part of a path.
fn decode(part: &str) -> Result<String, Refusal> {
    let invalid = || Refusal::new(StatusCode::BAD_REQUEST, "the path has an invalid percent-encoding");
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (Some(high), Some(low)) = (digit(), digit()) else { return Err(invalid()) };
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| invalid())?);
    }
    String::from_utf8(bytes).map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: Method, path: &str) -> Result<Route, u16> {
        route(&method, path).1.map_err(|refusal| refusal.code.as_u16())
    }

    #[test]
    fn paths_and_methods_are_found() {
        let vip: Vip = "2001:db8::1".parse().unwrap();
        let service = Owner::Service { namespace: "a".to_owned(), service: "b".to_owned() };
        assert_eq!(found(Method::POST, "/vip"), Ok(Route::Bind));
        assert_eq!(found(Method::GET, "/vip/2001:db8::1"), Ok(Route::Vip(vip)));
        assert_eq!(found(Method::GET, "/vip/2001%3adb8%3A%3A1"), Ok(Route::Vip(vip)));
        assert_eq!(found(Method::DELETE, "/vip/2001:db8::1/a/b"), Ok(Route::Unbind(vip, service)));
        for (method, path, code) in [
            (Method::GET, "/", 404),
            (Method::GET, "/vip/", 400),
            (Method::GET, "/vip/x", 400),
            (Method::GET, "/vip/10.0.0.1%2", 400),
            (Method::GET, "/vip/10.0.0.1%ff", 400),
            (Method::DELETE, "/vip/10.0.0.1/a/b/c", 404),
            (Method::DELETE, "/vip/10.0.0.1/", 400),
            (Method::DELETE, "/vip/10.0.0.1/a/..%2f..", 400),
            (Method::DELETE, "/vip/10.0.0.1/A", 400),
            (Method::DELETE, "/vip/10.0.0.1", 405),
            (Method::GET, "/vip", 405),
            (Method::PUT, "/master_notify", 405),
            (Method::POST, "/vips", 405),
            (Method::HEAD, "/vips", 405),
        ] {
            assert_eq!(found(method, path), Err(code), "{path}");
        }
        assert_eq!(route(&Method::GET, "/vip").1.unwrap_err().allow, Some("POST"));
    }

    #[test]
    fn the_description_has_every_route_and_method() {
        let description: serde_json::Value = serde_json::from_str(super::super::OPENAPI).unwrap();
        let paths = description["paths"].as_object().unwrap();
        let described: Vec<&str> = paths.keys().map(String::as_str).collect();
        let routes = [
            "/master_notify",
            "/openapi.json",
            "/vip",
            "/vip/{vip}",
            "/vip/{vip}/{namespace}",
            "/vip/{vip}/{namespace}/{service}",
            "/vips",
        ];
        assert_eq!(described, routes);
        for (label, operations) in paths {
            let path =
                label.replace("{vip}", "10.0.0.1").replace("{namespace}", "a").replace("{service}", "b");
            assert_eq!(route(&Method::GET, &path).0, Some(label.as_str()));
            for method in ["get", "put", "post", "delete", "patch", "head", "options"] {
                let is_described = operations.get(method).is_some();
                let code = found(Method::from_bytes(method.to_uppercase().as_bytes()).unwrap(), &path);
                assert_eq!(is_described, code != Err(405), "{method} {path}");
            }
        }
    }
}
