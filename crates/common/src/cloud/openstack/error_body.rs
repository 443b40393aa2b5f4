//! The body of an error response. Each service has its own format; a proxy has none of them.

use serde::Deserialize;
use serde_json::Value;

use crate::cloud::http::Response;

/// A message of Neutron may list a router's whole routing table.
const MOST_CHARS: usize = 300;
/// More of a page than is useful.
const MOST_BYTES: usize = 64 << 10;

/// The error in a response's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ErrorBody {
    kind: Option<String>,
    message: String,
    /// Whether it has the format of a service.
    own: bool,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Body {
    Neutron {
        #[serde(rename = "NeutronError")]
        error: Neutron,
    },
    Octavia {
        faultstring: String,
        #[serde(default)]
        faultcode: Value,
    },
    Keystone {
        error: Keystone,
    },
    /// Nova and Cinder: one field, whose name is the kind.
    Fault(std::collections::BTreeMap<String, Fault>),
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Neutron {
    Object {
        #[serde(rename = "type", default)]
        kind: Option<String>,
        #[serde(default)]
        message: Value,
    },
    Text(String),
}

#[derive(Deserialize)]
struct Keystone {
    #[serde(default)]
    title: Option<String>,
    message: String,
}

#[derive(Deserialize)]
struct Fault {
    message: String,
}

impl ErrorBody {
    pub fn of(response: &Response, secrets: &[&str]) -> ErrorBody {
        let mut error_body = read(&response.body);
        error_body.message = tidy(&error_body.message, secrets);
        error_body.kind = error_body.kind.map(|kind| tidy(&kind, secrets)).filter(|kind| !kind.is_empty());
        error_body
    }

    pub fn kind(&self) -> Option<&str> {
        self.kind.as_deref()
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn over_quota(&self) -> bool {
        self.kind() == Some("OverQuota")
    }

    /// Whether a 404 is about an object. Services report an unknown path in their own format too: Neutron with the type `HTTPNotFound`,
    /// the others with webob's default message.
    pub fn names_object(&self) -> bool {
        self.own
            && self.kind() != Some("HTTPNotFound")
            && !self.message.starts_with("The resource could not be found")
    }
}

fn read(body: &[u8]) -> ErrorBody {
    let (kind, message) = match serde_json::from_slice(body) {
        Ok(Body::Neutron { error: Neutron::Object { kind, message } }) => (kind, text(message)),
        Ok(Body::Neutron { error: Neutron::Text(message) }) => (None, message),
        Ok(Body::Octavia { faultstring, faultcode }) => (faultcode.as_str().map(str::to_owned), faultstring),
        Ok(Body::Keystone { error: Keystone { title, message } }) => (title, message),
        Ok(Body::Fault(mut faults)) if faults.len() == 1 => match faults.pop_first() {
            Some((kind, Fault { message })) => (Some(kind), message),
            None => (None, String::new()),
        },
        Ok(Body::Fault(_)) | Err(_) => return foreign(body),
    };
    ErrorBody { kind, message, own: true }
}

/// The page of a proxy, or nothing: enough of it to recognise it.
fn foreign(body: &[u8]) -> ErrorBody {
    // Not yet cut to the message's length: half of a secret would not be recognised.
    let text = String::from_utf8_lossy(body.get(..MOST_BYTES).unwrap_or(body));
    let message = match text.trim() {
        "" => "the response has no body, so it is not known who sent it".to_owned(),
        text => format!("not the service's own response: {text}"),
    };
    ErrorBody { kind: None, message, own: false }
}

fn text(message: Value) -> String {
    match message {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// One line, at most so long, without a secret: some servers repeat what they were sent.
fn tidy(text: &str, secrets: &[&str]) -> String {
    let mut text = text.to_owned();
    let mut forms: Vec<String> = secrets.iter().flat_map(|secret| forms(secret)).collect();
    // The longest first: a shorter one may be a part of it.
    forms.sort_unstable_by_key(|form| std::cmp::Reverse(form.len()));
    for form in forms {
        text = text.replace(&form, "[redacted]");
    }
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String = line.chars().filter(|c| !c.is_control()).collect();
    match line.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => line.get(..end).unwrap_or_default().to_owned(),
        None => line,
    }
}

/// A secret as it may be repeated: as it is, in JSON, and in JSON in a text of JSON.
fn forms(secret: &str) -> Vec<String> {
    if secret.is_empty() {
        return Vec::new();
    }
    let once = [
        escaped(secret),
        ascii(secret, |unit| format!("\\u{unit:04x}")),
        ascii(secret, |unit| format!("\\u{unit:04X}")),
    ];
    let twice = once.each_ref().map(|form| escaped(form));
    [vec![secret.to_owned()], once.into(), twice.into()].concat()
}

/// A text as it is in JSON, without the quotes.
fn escaped(text: &str) -> String {
    let json = Value::from(text).to_string();
    json.strip_prefix('"').and_then(|json| json.strip_suffix('"')).unwrap_or(&json).to_owned()
}

/// The same where all that is not ASCII is written as units of UTF-16, as Python does.
fn ascii(text: &str, written: fn(u16) -> String) -> String {
    let one = |c: char| match c {
        ' '..='~' | '\u{8}' | '\t' | '\n' | '\u{c}' | '\r' => escaped(c.encode_utf8(&mut [0; 4])),
        _ => c.encode_utf16(&mut [0; 2]).iter().map(|unit| written(*unit)).collect(),
    };
    text.chars().map(one).collect()
}

#[cfg(test)]
mod tests {
    use ::http::{HeaderMap, StatusCode};
    use proptest::prelude::*;

    use super::*;

    fn error_body(body: &str) -> ErrorBody {
        let response = Response {
            status: StatusCode::NOT_FOUND,
            headers: HeaderMap::new(),
            body: body.to_owned().into(),
        };
        ErrorBody::of(&response, &["t0k3n"])
    }

    #[test]
    fn the_error_format_of_every_service_is_parsed() {
        for (body, kind, message, object) in [
            (
                r#"{"NeutronError":{"type":"RouterNotFound","message":"Router 1 could not be found","detail":""}}"#,
                Some("RouterNotFound"),
                "Router 1 could not be found",
                true,
            ),
            (
                r#"{"NeutronError":{"type":"HTTPNotFound","message":"The resource could not be found.","detail":""}}"#,
                Some("HTTPNotFound"),
                "The resource could not be found.",
                false,
            ),
            (r#"{"NeutronError":"Quota is gone"}"#, None, "Quota is gone", true),
            (
                r#"{"itemNotFound":{"code":404,"message":"Instance 1 could not be found."}}"#,
                Some("itemNotFound"),
                "Instance 1 could not be found.",
                true,
            ),
            (
                r#"{"itemNotFound":{"code":404,"message":"The resource could not be found."}}"#,
                Some("itemNotFound"),
                "The resource could not be found.",
                false,
            ),
            (
                r#"{"faultcode":"Client","faultstring":"Load Balancer 1 not found.","debuginfo":null}"#,
                Some("Client"),
                "Load Balancer 1 not found.",
                true,
            ),
            (
                r#"{"error":{"code":404,"message":"Could not find Application Credential: 1.","title":"Not Found"}}"#,
                Some("Not Found"),
                "Could not find Application Credential: 1.",
                true,
            ),
            // webob, of an unknown path.
            (
                r#"{"message":"The resource could not be found.<br /><br />","code":"404 Not Found","title":"Not Found"}"#,
                None,
                r#"not the service's own response: {"message":"The resource could not be found.<br /><br />","code":"404 Not Found","title":"Not Found"}"#,
                false,
            ),
            (
                "<html>\n <h1>404 Not Found</h1>\n</html>",
                None,
                "not the service's own response: <html> <h1>404 Not Found</h1> </html>",
                false,
            ),
            ("", None, "the response has no body, so it is not known who sent it", false),
            ("{}", None, "not the service's own response: {}", false),
        ] {
            let error_body = error_body(body);
            assert_eq!(
                (error_body.kind(), error_body.message(), error_body.names_object()),
                (kind, message, object),
                "{body}"
            );
        }
    }

    #[test]
    fn a_message_is_one_short_line_without_secrets() {
        let long = error_body(&format!(r#"{{"error":{{"message":"{}"}}}}"#, "ü t0k3n\\n".repeat(200)));
        assert_eq!(long.message().chars().count(), 300);
        assert!(!long.message().contains("t0k3n") && !long.message().contains('\n'), "{}", long.message());
        // The cut must not come before the secret is found.
        let page = error_body(&format!("{}t0k3n", "x".repeat(268)));
        assert!(!page.message().contains("t0k"), "{}", page.message());
    }

    #[test]
    fn a_secret_that_is_escaped_in_json_is_redacted() {
        for (secret, repeated) in [
            (r#"pa"ss"#, r#"pa"ss"#),
            (r#"pa"ss"#, r#"pa\"ss"#),
            (r#"pa"ss"#, r#"pa\\\"ss"#),
            (r"a\b", r"a\\b"),
            (r"a\b", r"a\\\\b"),
            ("a\tb", r"a\tb"),
            ("grün", "grün"),
            ("grün", r"gr\u00fcn"),
            ("grün", r"gr\u00FCn"),
            ("grün", r"gr\\u00fcn"),
            ("🔑1", r"\ud83d\udd111"),
            ("🔑1", r"\uD83D\uDD111"),
        ] {
            let body = format!("<p>you sent {repeated}, a password</p>");
            let response =
                Response { status: StatusCode::BAD_REQUEST, headers: HeaderMap::new(), body: body.into() };
            let error_body = ErrorBody::of(&response, &["pa", secret]);
            let message = "not the service's own response: <p>you sent [redacted], a [redacted]ssword</p>";
            assert_eq!(error_body.message(), message, "{repeated}");
        }
    }

    proptest! {
        #[test]
        fn any_body_is_parsed_without_panic(body in any::<Vec<u8>>()) {
            let headers = HeaderMap::new();
            let response = Response { status: StatusCode::BAD_REQUEST, headers, body: body.into() };
            prop_assert!(ErrorBody::of(&response, &["s"]).message().chars().count() <= MOST_CHARS);
        }
    }
}
