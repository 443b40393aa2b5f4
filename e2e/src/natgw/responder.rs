//! A TCP port of a gateway, for natgw's health checks.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A connection on a loopback address takes less than a millisecond.
const UNANSWERED: Duration = Duration::from_millis(200);

/// A port that accepts connections, or drops all packets as a machine without power does.
#[derive(Debug)]
pub struct Responder {
    listener: Arc<TcpListener>,
    accepting: Option<JoinHandle<()>>,
    /// Connections that fill the queue of the listener.
    filling: Vec<TcpStream>,
}

impl Responder {
    /// Listens at this address; port 0 for a free one.
    ///
    /// # Errors
    /// The address is taken.
    pub fn start(ip: Ipv4Addr, port: u16) -> Result<Responder> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::from((ip, port)))?;
        let listener = Arc::new(socket.listen(1)?);
        let mut responder = Responder { listener, accepting: None, filling: Vec::new() };
        responder.resume();
        Ok(responder)
    }

    /// Its port.
    ///
    /// # Errors
    /// The socket is closed.
    pub fn port(&self) -> Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Accepts connections again.
    pub fn resume(&mut self) {
        self.filling.clear();
        let listener = Arc::clone(&self.listener);
        self.accepting = Some(tokio::spawn(async move { while listener.accept().await.is_ok() {} }));
    }

    /// From now on no connection is accepted and none is refused: the queue of the listener is full, so Linux drops each SYN.
    ///
    /// # Errors
    /// The socket is closed.
    pub async fn silence(&mut self) -> Result<()> {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            let _ = accepting.await;
        }
        let address = self.listener.local_addr()?;
        while let Ok(stream) = timeout(UNANSWERED, TcpStream::connect(address)).await {
            self.filling.push(stream?);
        }
        Ok(())
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
        }
    }
}
