//! Signature Version 4 of a POST without a query, the only kind of request that the EC2 client sends.
//!
//! Source: "Create a signed AWS API request" (IAM User Guide); the tests are AWS's published test suite.

use std::fmt::Write as _;
use std::time::SystemTime;

use ring::{digest, hmac};

use super::credentials::Credentials;

/// Further inputs of the signature.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    /// `eu-central-1`.
    pub region: &'a str,
    /// `ec2`.
    pub service: &'a str,
    /// Now; the server accepts 15 minutes of difference.
    pub time: SystemTime,
}

/// The headers of a signed request with `method` for `/` at `host`: `X-Amz-Date`, `X-Amz-Security-Token` for
/// temporary credentials, and `Authorization`. `headers` are signed too; their names are in lower case.
#[must_use]
pub fn sign(
    method: &str,
    host: &str,
    headers: &[(&'static str, String)],
    body: &[u8],
    credentials: &Credentials,
    scope: Scope<'_>,
) -> Vec<(&'static str, String)> {
    // ISO 8601's basic format: the extended one without its signs.
    let time = humantime::format_rfc3339_seconds(scope.time).to_string().replace(['-', ':'], "");
    let date = time.split('T').next().unwrap_or_default();

    let mut added = vec![("x-amz-date", time.clone())];
    if let Some(session) = &credentials.session {
        added.push(("x-amz-security-token", session.clone()));
    }
    let host = ("host", host.to_owned());
    let mut signed: Vec<&(&'static str, String)> = headers.iter().chain(&added).chain([&host]).collect();
    signed.sort_by_key(|(name, _)| *name);

    let names = signed.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
    let mut canonical = format!("{method}\n/\n\n");
    for (name, value) in signed {
        let value = value.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        let _ = writeln!(canonical, "{name}:{value}");
    }
    let _ = write!(canonical, "\n{names}\n{}", hex(digest::digest(&digest::SHA256, body).as_ref()));

    let Scope { region, service, .. } = scope;
    let credential = format!("{date}/{region}/{service}/aws4_request");
    let hashed = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let text = format!("AWS4-HMAC-SHA256\n{time}\n{credential}\n{hashed}");

    let first = hmac::Key::new(hmac::HMAC_SHA256, format!("AWS4{}", credentials.secret).as_bytes());
    let key = [date, region, service, "aws4_request"].into_iter().fold(first, |key, part| {
        hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&key, part.as_bytes()).as_ref())
    });
    let signature = hex(hmac::sign(&key, text.as_bytes()).as_ref());

    let key = &credentials.key;
    added.push((
        "authorization",
        format!(
            "AWS4-HMAC-SHA256 Credential={key}/{credential}, SignedHeaders={names}, Signature={signature}"
        ),
    ));
    added
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
