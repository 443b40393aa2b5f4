//! A TLS proxy with its own authority in front of a plain server.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// A front; it serves until the test ends.
pub struct Front {
    /// `https://127.0.0.1:PORT` and the plain server's path.
    pub url: String,
    /// The authority's certificate, in PEM.
    pub authority: String,
}

impl Front {
    /// In front of an `http://HOST:PORT/PATH`.
    pub fn of(plain: &str) -> Result<Front> {
        let (server, path) =
            plain.strip_prefix("http://").context("plain http")?.split_once('/').context("a path")?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(["127.0.0.1".to_owned()])?.signed_by(&key, &authority)?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(|error| anyhow!(error))?;
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("https://{}/{path}", listener.local_addr()?);
        let (config, server) = (Arc::new(config), server.to_owned());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, server) = (config.clone(), server.clone());
                // A client that does not trust the authority closes the connection.
                std::thread::spawn(move || exchange(stream, config, &server));
            }
        });
        Ok(Front { url, authority: authority.pem() })
    }
}

/// One request without a body, and its response; then the connection is closed.
fn exchange(stream: TcpStream, config: Arc<ServerConfig>, server: &str) -> Result<()> {
    let mut client = StreamOwned::new(ServerConnection::new(config)?, stream);
    let mut head = Vec::new();
    let mut piece = [0; 4096];
    while !head.ends_with(b"\r\n\r\n") {
        match client.read(&mut piece)? {
            0 => return Ok(()),
            read => head.extend_from_slice(&piece[..read]),
        }
    }
    let head = String::from_utf8(head)?.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    let mut behind = TcpStream::connect(server)?;
    behind.write_all(head.as_bytes())?;
    let mut response = Vec::new();
    behind.read_to_end(&mut response)?;
    client.write_all(&response)?;
    client.conn.send_close_notify();
    client.flush()?;
    Ok(())
}
