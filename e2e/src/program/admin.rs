//! The admin port of a program under test.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

use super::{Program, Samples};

/// Timeout of an admin endpoint, which responds from memory, but may get no processor for long.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(60);

impl Program {
    /// The address of its admin port, read from its output: the first that has "admin" and an IP:PORT in it.
    ///
    /// # Errors
    /// There is no such line.
    pub async fn admin_address(&self) -> Result<SocketAddr> {
        let address = |line: &str| {
            let admin = line.to_ascii_lowercase().contains("admin");
            admin
                .then(|| line.split(|c: char| !c.is_ascii_hexdigit() && !"[]:.".contains(c)))?
                .find_map(|word| word.parse::<SocketAddr>().ok())
        };
        let line = self.wait_for_line(|line| address(line).is_some()).await?;
        let mut address = address(&line).context("the line has an address")?;
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        Ok(address)
    }

    /// Its admin port.
    ///
    /// # Errors
    /// As [`Program::admin_address`].
    pub async fn admin_port(&self) -> Result<u16> {
        Ok(self.admin_address().await?.port())
    }

    /// `GET path` at the admin port: the status, whichever it is, and the body.
    ///
    /// # Errors
    /// No response.
    pub async fn get(&self, path: &str) -> Result<(http::StatusCode, String)> {
        get(self.admin_address().await?, path).await
    }

    /// Its metrics now.
    ///
    /// # Errors
    /// `/metrics` did not respond with 200 in Prometheus' text format.
    pub async fn metrics(&self) -> Result<Samples> {
        metrics(self.admin_address().await?).await
    }
}

/// The metrics that are served at an address.
///
/// # Errors
/// As [`Program::metrics`].
pub async fn metrics(address: SocketAddr) -> Result<Samples> {
    let (status, body) = get(address, "/metrics").await?;
    ensure!(status.is_success(), "/metrics: {status}");
    Samples::parse(&body)
}

async fn get(address: SocketAddr, path: &str) -> Result<(http::StatusCode, String)> {
    let uri: http::Uri = format!("http://{address}{path}").parse()?;
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let response = async {
        let response = client.get(uri.clone()).await?;
        let (head, body) = response.into_parts();
        anyhow::Ok((head.status, String::from_utf8(body.collect().await?.to_bytes().to_vec())?))
    };
    timeout(ADMIN_TIMEOUT, response)
        .await
        .with_context(|| format!("{uri}: no answer"))?
        .with_context(|| uri.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_admin_address_is_read_from_a_line() {
        let lines =
            r#"echo 'at 10.0.0.1:1'; echo '{"msg":"admin port","address":"0.0.0.0:41234"}'; exec sleep 60"#;
        let program = Program::at("/bin/sh").args(["-c", lines]).start().unwrap();
        assert_eq!(program.admin_address().await.unwrap().to_string(), "127.0.0.1:41234");
    }
}
