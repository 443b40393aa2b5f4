//! The URL of a cloud's API, and the paths below it.

use std::fmt::Write as _;
use std::net::IpAddr;

use ::http::Uri;

use super::error::Error;

/// The base URL, without a slash at its end.
///
/// `https`, or `http` to a private host: a loopback or private address, or a name that no public DNS serves. Plain HTTP does not
/// protect the token: beyond loopback the endpoint is [exposed](Endpoint::is_exposed), and a public host is refused. A private authority is trusted through `SSL_CERT_FILE` or `SSL_CERT_DIR`.
#[derive(Clone, Debug)]
pub struct Endpoint {
    base: String,
    host: String,
    tls: bool,
}

impl Endpoint {
    /// Parses a URL.
    ///
    /// # Errors
    /// [`Error::Setup`] says what is allowed; it does not contain the text.
    pub fn parse(url: &str) -> Result<Endpoint, Error> {
        // The message does not contain the text, which may hold a password by mistake.
        let wrong = |why: &str| Error::Setup(format!("the API endpoint {why}"));
        let uri: Uri = url.parse().map_err(|_| wrong("is not a URL"))?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("names no host"))?;
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(wrong("must not hold a user or password"));
        }
        if uri.query().is_some() || url.contains('#') {
            return Err(wrong("must end with its path: no query, no fragment"));
        }
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") if loopback(host) || private(host) => false,
            Some("http") => {
                return Err(wrong(&format!(
                    "http://{host} would send the token unencrypted: use https (a private authority is trusted through \
                     SSL_CERT_FILE); http is for loopback and private addresses and for cluster-internal names"
                )));
            }
            _ => return Err(wrong("must begin with https://")),
        };
        Ok(Endpoint { base: url.trim_end_matches('/').to_owned(), host: host.to_owned(), tls })
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Whether a token is sent unencrypted over the network.
    #[must_use]
    pub fn is_exposed(&self) -> bool {
        !self.tls && !loopback(&self.host)
    }

    /// Logs a warning if it is exposed. Call it once for each endpoint that is used.
    pub fn warn_if_exposed(&self) {
        if self.is_exposed() {
            let host = self.host();
            tracing::warn!(
                host,
                "the API token goes over the network unencrypted: use https unless this is a test"
            );
        }
    }

    /// Whether it is `https`.
    #[must_use]
    pub fn tls(&self) -> bool {
        self.tls
    }

    /// The URL, without a slash at its end.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.base
    }

    /// The URL of a path below it. `path` begins with a slash and may have a query.
    ///
    /// # Errors
    /// [`Error::Setup`] if `path` is not valid in a URL.
    pub fn at(&self, path: &str) -> Result<Uri, Error> {
        format!("{}{path}", self.base)
            .parse()
            .map_err(|_| Error::Setup(format!("{path} is not a valid path of a URL")))
    }
}

fn loopback(host: &str) -> bool {
    host == "localhost" || address(host).is_some_and(|ip| ip.is_loopback())
}

fn address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// An address that is not routed on the internet (RFC 1918, 2544, 3849, 3927, 4193, 4291, 5737, 6598), or a name that no public
/// DNS serves: one without a dot, a Service's, or one under a name that is reserved for private use (RFC 2606, 6762, 8375).
fn private(host: &str) -> bool {
    match address(host) {
        Some(IpAddr::V4(ip)) => {
            let [first, second, ..] = ip.octets();
            let shared = first == 100 && (64..128).contains(&second);
            let benchmarking = first == 198 && (second == 18 || second == 19);
            ip.is_private() || ip.is_link_local() || ip.is_documentation() || shared || benchmarking
        }
        Some(IpAddr::V6(ip)) => {
            let documentation = ip.segments().starts_with(&[0x2001, 0xdb8]);
            ip.is_unique_local() || ip.is_unicast_link_local() || documentation
        }
        None => {
            let reserved =
                [".svc", ".local", ".internal", ".home.arpa", ".test", ".example", ".invalid", ".localhost"];
            !host.contains('.') || reserved.iter().any(|end| host.ends_with(end))
        }
    }
}

/// `path?key=value&...` with values percent-encoded.
#[must_use]
pub fn with_query(path: &str, pairs: &[(&str, &str)]) -> String {
    let mut text = path.to_owned();
    for (index, (key, value)) in pairs.iter().enumerate() {
        text.push(if index == 0 { '?' } else { '&' });
        text.push_str(key);
        text.push('=');
        for byte in value.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    text.push(char::from(byte))
                }
                // Writing to a String cannot fail.
                _ => _ = write!(text, "%{byte:02X}"),
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_only_allowed_to_private_hosts() {
        for good in [
            "http://127.0.0.1:80/v1",
            "http://[::1]:8080",
            "http://localhost/v1/",
            "http://10.0.0.1",
            "http://[fd00::1]:8080/v1",
            "http://hetzner:8080/v1",
            "http://hetzner.default.svc:8080/v1",
            "http://hetzner.default.svc.cluster.local/v1",
            "http://100.64.0.7:5000/v3",
            "http://198.19.0.7:5000/v3",
            "http://203.0.113.7:5000/v3",
            "http://[2001:db8::7]:5000/v3",
            "http://keystone.lab.example:5000/v3",
            "https://api.hetzner.cloud/v1",
        ] {
            Endpoint::parse(good).unwrap();
        }
        for bad in [
            "http://api.hetzner.cloud/v1",
            "http://8.8.8.8/v1",
            "http://[2001:4860:4860::8888]",
            "http://100.128.0.7",
            "http://198.20.0.7",
            "http://127.0.0.1.example.com",
            "ftp://127.0.0.1",
            "/v1",
            "",
        ] {
            assert!(matches!(Endpoint::parse(bad), Err(Error::Setup(_))), "{bad}");
        }
    }

    #[test]
    fn beyond_loopback_plain_http_is_exposed() {
        for (url, exposed) in [
            ("http://10.0.0.1:5000/v3", true),
            ("http://keystone.default.svc/v3", true),
            ("http://127.0.0.1:5000/v3", false),
            ("http://[::1]:5000", false),
            ("http://localhost", false),
            ("https://10.0.0.1:5000/v3", false),
        ] {
            assert_eq!(Endpoint::parse(url).unwrap().is_exposed(), exposed, "{url}");
        }
    }

    #[test]
    fn a_password_in_the_url_is_refused_and_not_shown() {
        let error = Endpoint::parse("https://me:s3cr3t@example.com/v1").unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cr3t"));
        assert!(Endpoint::parse("https://example.com/v1?token=s3cr3t").is_err());
    }

    #[test]
    fn paths_follow_the_base() {
        let endpoint = Endpoint::parse("https://api.hetzner.cloud/v1/").unwrap();
        assert_eq!(endpoint.at("/servers?page=1").unwrap(), "https://api.hetzner.cloud/v1/servers?page=1");
    }

    #[test]
    fn values_are_encoded() {
        assert_eq!(with_query("/networks", &[]), "/networks");
        assert_eq!(
            with_query("/networks", &[("name", "a b&c=ü"), ("page", "1")]),
            "/networks?name=a%20b%26c%3D%C3%BC&page=1"
        );
    }
}
