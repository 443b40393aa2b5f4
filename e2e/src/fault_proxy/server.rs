//! The listener, and what its connections share.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use anyhow::Context as _;
use http::Method;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::select;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::call::Call;
use super::events::Streams;
use super::exchange;
use super::held;
use super::line::Line;
use super::record::Recorder;
use super::rules::Rules;
use super::upstream::{Origin, Upstream};
use super::writes::WriteCounter;

/// All of a proxy but its listener.
pub(super) struct Shared {
    pub(super) address: SocketAddr,
    pub(super) origin: Origin,
    pub(super) rules: Rules,
    pub(super) streams: Streams,
    pub(super) recorder: Recorder,
    pub(super) counter: WriteCounter,
    /// A path, and what is added to its query.
    pub(super) narrowed: Mutex<Option<(String, String)>>,
    running: CancellationToken,
    refusing: AtomicBool,
    /// Ends the connections that there are; replaced when it was used.
    generation: Mutex<CancellationToken>,
    /// Connections of the proxy to itself: once one is accepted, so are all that were made before it.
    markers: Mutex<HashMap<SocketAddr, oneshot::Sender<()>>>,
}

/// Listens; the proxy ends when the guard is dropped.
pub(super) async fn start(
    upstream: Upstream,
    counter: WriteCounter,
) -> anyhow::Result<(Arc<Shared>, DropGuard)> {
    let origin = Origin::new(&upstream)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("bind the fault proxy")?;
    let running = CancellationToken::new();
    let shared = Arc::new(Shared {
        address: listener.local_addr().context("address of the fault proxy")?,
        origin,
        rules: Rules::new(),
        streams: Streams::default(),
        recorder: Recorder::new(),
        counter,
        narrowed: Mutex::new(None),
        running: running.clone(),
        refusing: AtomicBool::new(false),
        generation: Mutex::new(running.child_token()),
        markers: Mutex::new(HashMap::new()),
    });
    shared.counter.attach(&shared);
    tokio::spawn(accept(listener, running.clone(), Arc::downgrade(&shared)));
    Ok((shared, running.drop_guard()))
}

/// A write that is neither a Lease, an Event nor a review: those are not part of a controller's scenario.
pub(super) fn counts(call: &Call) -> bool {
    call.is_write()
        && call.kube().is_none_or(|request| {
            let review = matches!(request.group.as_str(), "authentication.k8s.io" | "authorization.k8s.io");
            !review && !matches!(request.resource.as_str(), "leases" | "events")
        })
}

async fn accept(listener: TcpListener, running: CancellationToken, shared: Weak<Shared>) {
    loop {
        let accepted = select! {
            biased;
            () = running.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Some(shared) = shared.upgrade() else { return };
        match accepted {
            Ok((stream, peer)) => shared.take(stream, peer),
            Err(error) => {
                tracing::warn!(%error, "the fault proxy cannot accept a connection");
                // Out of file descriptors, most likely.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

impl Shared {
    fn take(self: &Arc<Shared>, stream: TcpStream, peer: SocketAddr) {
        if let Some(marker) = held(&self.markers).remove(&peer) {
            // It fails if the waiting task was cancelled.
            let _ = marker.send(());
            return;
        }
        if self.refusing.load(Ordering::Acquire) {
            // It fails if the other side has closed the socket.
            let _ = stream.set_zero_linger();
            return;
        }
        // Events are small and must be sent at once. It fails on a closed socket only, which hyper detects.
        let _ = stream.set_nodelay(true);
        let severed = held(&self.generation).clone();
        tokio::spawn(serve(self.clone(), stream, severed));
    }

    /// The call as the server gets it.
    pub(super) fn narrow(&self, call: &Arc<Call>) -> Arc<Call> {
        match &*held(&self.narrowed) {
            Some((path, query)) if call.method == Method::GET && call.path == *path => {
                let query =
                    if call.query.is_empty() { query.clone() } else { format!("{}&{query}", call.query) };
                Arc::new(Call { query, ..Call::clone(call) })
            }
            _ => call.clone(),
        }
    }

    pub(super) fn refuse_all(&self, refuse: bool) {
        self.refusing.store(refuse, Ordering::Release);
        if refuse {
            self.cut();
        }
    }

    /// Cuts the connections that were accepted so far.
    fn cut(&self) {
        let next = self.running.child_token();
        std::mem::replace(&mut *held(&self.generation), next).cancel();
    }

    /// Cuts all connections that were made so far, accepted or not.
    pub(super) async fn sever(&self) {
        if let Err(error) = self.accept_all().await {
            tracing::warn!(%error, "the fault proxy's listener is gone");
        }
        self.cut();
    }

    /// Returns once each connection that was made before is accepted: the kernel hands them out in order.
    async fn accept_all(&self) -> io::Result<()> {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let (sender, accepted) = oneshot::channel();
        let marker = socket.local_addr()?;
        held(&self.markers).insert(marker, sender);
        let connected = select! {
            () = self.running.cancelled() => Ok(()),
            connected = socket.connect(self.address) => match connected {
                Ok(_stream) => select! {
                    () = self.running.cancelled() => Ok(()),
                    _ = accepted => Ok(()),
                },
                Err(error) => Err(error),
            },
        };
        held(&self.markers).remove(&marker);
        connected
    }
}

async fn serve(shared: Arc<Shared>, stream: TcpStream, severed: CancellationToken) {
    let (line, wire) = Line::new(stream);
    let service = {
        let (line, severed) = (line.clone(), severed.clone());
        service_fn(move |request| exchange::respond(shared.clone(), line.clone(), severed.clone(), request))
    };
    // Outlives the select, which drops what it owns before the branch runs: the order would be close, then reset.
    let mut connection = pin!(http1::Builder::new().serve_connection(TokioIo::new(wire), service));
    select! {
        biased;
        () = severed.cancelled() => line.reset_on_close(),
        // The records of its requests show how the connection ended.
        _ = connection.as_mut() => {}
    }
}
