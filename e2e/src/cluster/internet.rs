//! A host in the Internet that sends clients their source address.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use super::Cluster;

/// The host. Only the cluster's simulated Internet has this address.
pub const HOST: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
/// Its HTTP port: the response body is the client's address.
const HTTP: u16 = 80;
/// Its UDP port: the reply is the sender's address.
pub(super) const ECHO: u16 = 7;
/// Maximum size of a request.
const REQUEST: usize = 2048;

/// The servers of the host, stopped when dropped.
#[derive(Debug)]
pub struct Internet {
    servers: [JoinHandle<()>; 2],
}

impl Cluster {
    /// Starts the servers of the host in the Internet.
    ///
    /// # Errors
    /// They cannot listen: they run already.
    pub fn internet(&self) -> Result<Internet> {
        let (http, echo) = self.machine("internet").network()?.within(|| {
            let http = TcpListener::bind((HOST, HTTP)).context("HTTP in the Internet")?;
            let echo = UdpSocket::bind((HOST, ECHO)).context("UDP in the Internet")?;
            http.set_nonblocking(true)?;
            echo.set_nonblocking(true)?;
            Ok((http, echo))
        })?;
        let http = tokio::net::TcpListener::from_std(http)?;
        let echo = tokio::net::UdpSocket::from_std(echo)?;
        let servers = [tokio::spawn(serve_http(http)), tokio::spawn(serve_echo(echo))];
        Ok(Internet { servers })
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        for server in &self.servers {
            server.abort();
        }
    }
}

async fn serve_http(listener: tokio::net::TcpListener) {
    loop {
        // A client that disconnected before the accept is ignored.
        let Ok((mut stream, SocketAddr::V4(client))) = listener.accept().await else { continue };
        tokio::spawn(async move {
            let mut request = [0; REQUEST];
            let _ = stream.read(&mut request).await;
            let body = format!("{}\n", client.ip());
            let length = body.len();
            let response =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
            let _ = stream.write_all(response.as_bytes()).await;
        });
    }
}

async fn serve_echo(socket: tokio::net::UdpSocket) {
    let mut datagram = [0; REQUEST];
    loop {
        // The ICMP error of an earlier response is reported here.
        let Ok((_, client)) = socket.recv_from(&mut datagram).await else { continue };
        let _ = socket.send_to(client.ip().to_string().as_bytes(), client).await;
    }
}
