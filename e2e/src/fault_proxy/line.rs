//! The connection to the controller: its flushes and its end can be observed and made.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::held;

/// The state that the proxy shares with a connection while hyper owns it.
pub(super) struct Line {
    reset: AtomicBool,
    /// None once the connection is gone.
    flushed: Mutex<Option<Vec<oneshot::Sender<()>>>>,
}

impl Line {
    pub(super) fn new(stream: TcpStream) -> (Arc<Line>, Wire) {
        let line = Arc::new(Line { reset: AtomicBool::new(false), flushed: Mutex::new(Some(Vec::new())) });
        (line.clone(), Wire { stream, line })
    }

    /// The connection is closed with a reset.
    pub(super) fn reset_on_close(&self) {
        self.reset.store(true, Ordering::Release);
    }

    /// Resolves to a value when the kernel has all that was written so far, or to an error when the connection is gone.
    pub(super) fn next_flush(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        if let Some(waiting) = held(&self.flushed).as_mut() {
            waiting.push(sender);
        }
        receiver
    }
}

/// The socket, as hyper gets it. hyper flushes it only when its own buffer is empty.
pub(super) struct Wire {
    stream: TcpStream,
    line: Arc<Line>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        held(&self.line.flushed).take();
        if self.line.reset.load(Ordering::Acquire) {
            // It fails if the other side has closed the socket.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        if flushed.is_ready()
            && let Some(waiting) = held(&self.line.flushed).as_mut()
        {
            for sender in waiting.drain(..) {
                // It fails if the receiver is gone.
                let _ = sender.send(());
            }
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
