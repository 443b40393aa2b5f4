//! Servers in the networks of machines and pods, which send clients their source address; and the host in the Internet that has them.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use super::{Cluster, Network};

/// The host. Only the cluster's simulated Internet has this address.
pub const HOST: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
/// Its HTTP port: the response body is the client's address.
const HTTP: u16 = 80;
/// Its UDP port: the reply is the sender's address.
pub(super) const ECHO: u16 = 7;
/// Maximum size of a request.
const REQUEST: usize = 2048;
/// Precedes the address in the response to a request for [`BULK`]: hundreds of packets of full size.
const BULK_BYTES: usize = 1 << 20;
/// The path of a long response.
pub(super) const BULK: &str = "/bulk";

/// The servers of a host, stopped when dropped.
#[derive(Debug)]
pub struct Servers {
    tasks: [JoinHandle<()>; 2],
}

impl Cluster {
    /// Starts the servers of the host in the Internet.
    ///
    /// # Errors
    /// They cannot listen: they run already.
    pub fn internet(&self) -> Result<Servers> {
        self.machine("internet").network()?.serve("", HOST, HTTP, ECHO)
    }
}

impl Network {
    /// Starts a web server and an echo server for UDP. Both respond with `name` and the client's address. Must be called inside of a tokio
    /// runtime.
    ///
    /// # Errors
    /// They cannot listen.
    pub fn serve(&self, name: &str, ip: Ipv4Addr, http: u16, echo: u16) -> Result<Servers> {
        let (http, echo) = self.within(move || {
            let http = TcpListener::bind((ip, http)).with_context(|| format!("TCP {ip}:{http}"))?;
            let echo = UdpSocket::bind((ip, echo)).with_context(|| format!("UDP {ip}:{echo}"))?;
            http.set_nonblocking(true)?;
            echo.set_nonblocking(true)?;
            Ok((http, echo))
        })?;
        let http = tokio::net::TcpListener::from_std(http)?;
        let echo = tokio::net::UdpSocket::from_std(echo)?;
        let name: Arc<str> = if name.is_empty() { "".into() } else { format!("{name} ").into() };
        Ok(Servers {
            tasks: [tokio::spawn(serve_http(http, Arc::clone(&name))), tokio::spawn(serve_echo(echo, name))],
        })
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn serve_http(listener: tokio::net::TcpListener, name: Arc<str>) {
    loop {
        // A client that disconnected before the accept is ignored.
        let Ok((mut stream, SocketAddr::V4(client))) = listener.accept().await else { continue };
        let name = Arc::clone(&name);
        tokio::spawn(async move {
            let mut request = [0; REQUEST];
            let _ = stream.read(&mut request).await;
            let is_bulk = String::from_utf8_lossy(&request).starts_with(&format!("GET {BULK} "));
            let mut body = if is_bulk { "0".repeat(BULK_BYTES) + "\n" } else { String::new() };
            body += &format!("{name}{}\n", client.ip());
            let length = body.len();
            let response =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
            let _ = stream.write_all(response.as_bytes()).await;
        });
    }
}

async fn serve_echo(socket: tokio::net::UdpSocket, name: Arc<str>) {
    let mut datagram = [0; REQUEST];
    loop {
        // The ICMP error of an earlier response is reported here.
        let Ok((_, client)) = socket.recv_from(&mut datagram).await else { continue };
        let _ = socket.send_to(format!("{name}{}", client.ip()).as_bytes(), client).await;
    }
}
