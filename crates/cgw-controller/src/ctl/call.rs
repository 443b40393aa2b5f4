//! A command as a request to the HTTP API, and the response as text. Pure.

use std::fmt::Write as _;

use http::Method;

use super::args::{Command, Output};
use crate::api::http::{Outcome, VipRequest, VipView};
use crate::api::stores::Owner;

/// A request to the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its method.
    pub method: Method,
    /// Its path, which needs no escaping: VIPs, namespaces and names of Services contain no special character.
    pub path: String,
    /// Its body, if it has one.
    pub body: Option<VipRequest>,
}

impl Call {
    /// None: the command does not call the controller.
    #[must_use]
    pub fn of(command: &Command) -> Option<Call> {
        let bare = |method, path| Call { method, path, body: None };
        let post = |body| Call { method: Method::POST, path: "/vip".to_owned(), body: Some(body) };
        Some(match command {
            Command::Bind { vip, namespace, service } => post(VipRequest {
                vip: *vip,
                namespace: Some(namespace.clone()),
                service: service.clone(),
                notify_only: false,
            }),
            Command::Notify { vip } => {
                post(VipRequest { vip: *vip, namespace: None, service: None, notify_only: true })
            }
            Command::Unbind { vip, namespace, service: None } => {
                bare(Method::DELETE, format!("/vip/{vip}/{namespace}"))
            }
            Command::Unbind { vip, namespace, service: Some(service) } => {
                bare(Method::DELETE, format!("/vip/{vip}/{namespace}/{service}"))
            }
            Command::List => bare(Method::GET, "/vips".to_owned()),
            Command::Get { vip } => bare(Method::GET, format!("/vip/{vip}")),
            Command::Trace { .. } => return None,
        })
    }
}

/// The body of a successful response, for the terminal.
///
/// # Errors
/// The body is not what the controller sends.
pub fn rendered(command: &Command, output: Output, body: &[u8]) -> Result<String, serde_json::Error> {
    if output == Output::Json {
        let value: serde_json::Value = serde_json::from_slice(body)?;
        return Ok(format!("{value:#}\n"));
    }
    Ok(match command {
        Command::List => table(&serde_json::from_slice::<Vec<VipView>>(body)?),
        Command::Get { .. } => details(&serde_json::from_slice::<VipView>(body)?),
        _ => sentences(&serde_json::from_slice::<Outcome>(body)?),
    })
}

/// The message in the body of a failed response: the controller's, or the API server's Status. Otherwise the beginning of the
/// body, in one line.
#[must_use]
pub fn message(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Failure {
        message: String,
        #[serde(default)]
        failed: Vec<String>,
    }
    match serde_json::from_slice::<Failure>(body) {
        Ok(Failure { message, failed }) if failed.is_empty() => message,
        Ok(Failure { message, failed }) => format!("{message} ({})", failed.join(", ")),
        Err(_) => String::from_utf8_lossy(body)
            .chars()
            .take(200)
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect(),
    }
}

fn sentences(outcome: &Outcome) -> String {
    let mut text = format!("{}\n", outcome.message);
    for service in &outcome.updated {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  Service {service} updated");
    }
    text
}

fn owner(view: &VipView) -> String {
    match &view.owner {
        Some(Owner::Service { namespace, service }) => format!("{namespace}/{service}"),
        Some(Owner::Namespace { namespace }) => format!("{namespace}/*"),
        None => "-".to_owned(),
    }
}

fn gateway(view: &VipView) -> String {
    view.node_ip.map_or_else(|| "none".to_owned(), |address| address.to_string())
}

fn table(views: &[VipView]) -> String {
    let mut rows = vec![["VIP", "BOUND TO", "GATEWAY", "SERVICES"].map(str::to_owned)];
    rows.extend(views.iter().map(|view| {
        let services = if view.services.is_empty() { "-".to_owned() } else { view.services.join(",") };
        [view.vip.to_string(), owner(view), gateway(view), services]
    }));
    let width =
        |column: fn(&[String; 4]) -> &String| rows.iter().map(column).map(String::len).max().unwrap_or(0);
    let (vip, owner, gateway) =
        (width(|[vip, ..]| vip), width(|[_, owner, ..]| owner), width(|[_, _, gateway, _]| gateway));
    let mut text = String::new();
    for [a, b, c, d] in &rows {
        let _ = writeln!(text, "{a:vip$}  {b:owner$}  {c:gateway$}  {d}");
    }
    text
}

fn details(view: &VipView) -> String {
    let mut text = String::new();
    let mac = view.tun_mac.map(|mac| format!(", tunnel MAC {mac}")).unwrap_or_default();
    let _ = writeln!(text, "vip       {}", view.vip);
    let _ = writeln!(text, "bound to  {}", owner(view));
    let _ = writeln!(text, "gateway   {}{mac}", gateway(view));
    if let Some(tun_id) = view.tun_id {
        let _ = writeln!(text, "tun-id    {tun_id}");
    }
    if let Some(epoch) = view.epoch {
        let _ = writeln!(text, "epoch     {epoch}");
    }
    for service in &view.services {
        let _ = writeln!(text, "service   {service}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get() -> Command {
        Command::Get { vip: "fd00::201".parse().unwrap() }
    }

    #[test]
    fn commands_are_the_requests_of_the_api() {
        let vip = "192.168.50.201".parse().unwrap();
        let (namespace, service) = ("shop".to_owned(), Some("web".to_owned()));
        let call =
            Call::of(&Command::Bind { vip, namespace: namespace.clone(), service: service.clone() }).unwrap();
        assert_eq!((call.method, call.path.as_str()), (Method::POST, "/vip"));
        let body = serde_json::to_string(&call.body).unwrap();
        assert_eq!(body, r#"{"vip":"192.168.50.201","namespace":"shop","service":"web"}"#);
        let call = Call::of(&Command::Notify { vip }).unwrap();
        assert_eq!(
            serde_json::to_string(&call.body).unwrap(),
            r#"{"vip":"192.168.50.201","notify_only":true}"#
        );
        let call = Call::of(&Command::Unbind { vip, namespace: namespace.clone(), service }).unwrap();
        assert_eq!((call.method, call.path.as_str()), (Method::DELETE, "/vip/192.168.50.201/shop/web"));
        let call = Call::of(&Command::Unbind { vip, namespace, service: None }).unwrap();
        assert_eq!((call.body, call.path.as_str()), (None, "/vip/192.168.50.201/shop"));
        assert_eq!(Call::of(&Command::List).unwrap().path, "/vips");
        assert_eq!(Call::of(&get()).unwrap().path, "/vip/fd00::201");
    }

    #[test]
    fn responses_become_text() {
        let views = br#"[
            {"vip":"192.168.50.201","scope":"namespace","namespace":"shop","tun_id":"0x00000001","services":["shop/web","shop/api"],
             "node_ip":"192.168.50.21","tun_mac":"02:63:c0:a8:32:15","epoch":7},
            {"vip":"192.168.50.9","scope":"service","namespace":"b","service":"s","services":[]}
        ]"#;
        let text = rendered(&Command::List, Output::Text, views).unwrap();
        let expected = "\
VIP             BOUND TO  GATEWAY        SERVICES
192.168.50.201  shop/*    192.168.50.21  shop/web,shop/api
192.168.50.9    b/s       none           -
";
        assert_eq!(text, expected);
        let view = br#"{"vip":"fd00::201","scope":"namespace","namespace":"a","services":[]}"#;
        let text = rendered(&get(), Output::Text, view).unwrap();
        assert_eq!(text, "vip       fd00::201\nbound to  a/*\ngateway   none\n");
        let outcome =
            br#"{"message":"VIP 192.168.50.201 is bound to namespace shop","updated":["shop/web"]}"#;
        let command = Command::Notify { vip: "192.168.50.201".parse().unwrap() };
        let text = rendered(&command, Output::Text, outcome).unwrap();
        assert_eq!(text, "VIP 192.168.50.201 is bound to namespace shop\n  Service shop/web updated\n");
        assert!(rendered(&command, Output::Text, b"<html>").is_err());
        assert_eq!(
            rendered(&command, Output::Json, br#"{"message":"m"}"#).unwrap(),
            "{\n  \"message\": \"m\"\n}\n"
        );
    }

    #[test]
    fn failures_are_reported_in_one_line() {
        assert_eq!(message(br#"{"message":"VIP is bound to namespace a"}"#), "VIP is bound to namespace a");
        let status = br#"{"kind":"Status","status":"Failure","message":"no endpoints available for service \"https:cgw-controller:api\""}"#;
        assert!(message(status).starts_with("no endpoints"));
        assert_eq!(
            message(br#"{"message":"2 of 3 Services were written","failed":["a/b"]}"#),
            "2 of 3 Services were written (a/b)"
        );
        assert_eq!(message(b"<html>\n"), "<html> ");
    }
}
