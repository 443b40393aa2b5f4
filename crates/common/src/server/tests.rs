//! A server over real sockets.

#[cfg(feature = "https")]
mod https;

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::Notify,
};

use super::*;

/// Longer than any limit of a server here, and than anything takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(300);

/// The times are for clients that a busy machine delays.
const LIMITS: Limits = Limits {
    connections: 8,
    head_time: Duration::from_secs(2),
    head_bytes: 8 * 1024,
    body_time: Duration::from_secs(2),
    body_bytes: 1000,
};

async fn echo(caller: Caller, request: Request<Bytes>) -> Response<Full<Bytes>> {
    let (certificate, user) = (caller.certificate.is_some(), caller.user.and_then(|user| user.username));
    let text = format!("{} bytes, certificate: {certificate}, user: {user:?}", request.body().len());
    Response::new(Full::new(Bytes::from(text)))
}

/// Serves the length of each body, and who the caller is.
async fn serve(builder: Builder) -> SocketAddr {
    let server = builder.bind((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let address = server.address().unwrap();
    tokio::spawn(server.serve(echo, CancellationToken::new()));
    address
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    timeout(DEADLINE, work).await.expect("the server neither responds nor closes")
}

/// Everything that the server sends until it closes.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
    within(async {
        // The server may refuse and close before it has read everything.
        let _closed_early = stream.write_all(request.as_bytes()).await;
        let mut response = Vec::new();
        let _reset = stream.read_to_end(&mut response).await;
        String::from_utf8(response).unwrap()
    })
    .await
}

async fn plain(address: SocketAddr, request: &str) -> String {
    exchange(TcpStream::connect(address).await.unwrap(), request).await
}

fn post(length: usize, body: &str, header: &str) -> String {
    format!(
        "POST /a HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {length}\r\n{header}\r\n{body}"
    )
}

fn code(response: &str) -> &str {
    response.split(' ').nth(1).unwrap_or("none")
}

#[test]
fn a_caller_that_connects_from_the_address_that_it_connects_to_is_local() {
    for (peer, local, is_local) in [
        ("127.0.0.1:1", Some("127.0.0.1:9470"), true),
        ("[::ffff:127.0.0.1]:1", Some("[::ffff:127.0.0.1]:8080"), true),
        ("10.0.0.5:1", Some("10.0.0.5:9470"), true),
        ("[::ffff:10.0.0.5]:1", Some("10.0.0.5:9470"), true),
        ("10.0.0.6:1", Some("10.0.0.5:9470"), false),
        ("10.0.0.6:1", None, false),
    ] {
        let (peer, local) = (peer.parse().unwrap(), local.map(|local| local.parse().unwrap()));
        let caller = Caller { peer, local, certificate: None, user: None };
        assert_eq!(caller.is_local(), is_local, "{caller:?}");
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_too_slow_or_incomplete_does_not_reach_the_handler() {
    let address = serve(Builder::new("test", LIMITS)).await;
    let whole = plain(address, &post(5, "hello", "")).await;
    assert!(code(&whole) == "200" && whole.contains("5 bytes"), "{whole}");
    assert_eq!(code(&plain(address, &post(1001, &"a".repeat(1001), "")).await), "413");
    let announced = plain(address, &post(1001, "", "")).await;
    assert_eq!(code(&announced), "413", "the announced length is enough to refuse");
    let chunked = format!(
        "POST /a HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n3ea\r\n{}\r\n0\r\n\r\n",
        "a".repeat(1002)
    );
    assert_eq!(code(&plain(address, &chunked).await), "413");
    let start = Instant::now();
    assert_eq!(code(&plain(address, &post(5, "hel", "")).await), "408");
    assert!(start.elapsed() >= LIMITS.body_time, "a slow client has the time of the limit");
}

#[tokio::test]
async fn a_client_that_writes_all_before_it_reads_receives_the_refusal() {
    let address = serve(Builder::new("test", Limits { body_time: DEADLINE, ..LIMITS })).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    within(stream.write_all(post(800_000, "a", "").as_bytes())).await.unwrap();
    // The announced length was refused, and the client writes on.
    within(stream.readable()).await.unwrap();
    for part in [b'a'; 799_999].chunks(8192) {
        within(stream.write_all(part)).await.expect("the server reads all of it");
    }
    assert_eq!(code(&exchange(stream, "").await), "413");
}

#[tokio::test]
async fn more_silent_clients_than_connections_do_not_lock_a_request_out() {
    let address = serve(Builder::new("test", LIMITS)).await;
    let mut silent = Vec::new();
    for _ in 0..3 * LIMITS.connections {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    assert_eq!(code(&plain(address, &post(0, "", "")).await), "200");
}

#[tokio::test]
async fn clients_that_do_not_read_their_responses_do_not_lock_a_request_out() {
    // More than the buffers of a connection.
    let large = Bytes::from(vec![b'a'; 16 << 20]);
    let server = Builder::new("test", LIMITS).bind((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let address = server.address().unwrap();
    let handler = move |_, request: Request<Bytes>| {
        let body = if request.uri().path() == "/large" { large.clone() } else { Bytes::new() };
        async { Response::new(Full::new(body)) }
    };
    tokio::spawn(server.serve(handler, CancellationToken::new()));
    let mut deaf = Vec::new();
    for _ in 0..LIMITS.connections {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        deaf.push(stream);
    }
    assert_eq!(code(&plain(address, &post(0, "", "")).await), "200");
}

#[tokio::test]
async fn a_shutdown_refuses_new_connections_and_finishes_the_request_in_flight() {
    let server = Builder::new("test", LIMITS).bind((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let address = server.address().unwrap();
    let (begun, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let shutdown = CancellationToken::new();
    let handler = {
        let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
        move |_, _: Request<Bytes>| {
            let (begun, finish) = (Arc::clone(&begun), Arc::clone(&finish));
            async move {
                begun.notify_one();
                finish.notified().await;
                Response::new(Full::new(Bytes::from("finished")))
            }
        }
    };
    let served = tokio::spawn(server.serve(handler, shutdown.clone()));
    // Without `connection: close`: the shutdown ends a connection that would stay open.
    let request = "GET /a HTTP/1.1\r\nhost: a\r\n\r\n";
    let in_flight = tokio::spawn(async move { plain(address, request).await });
    let idle = TcpStream::connect(address).await.unwrap();
    within(begun.notified()).await;
    shutdown.cancel();
    within(async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!served.is_finished(), "the server waits for the request");
    finish.notify_one();
    let response = in_flight.await.unwrap();
    assert!(code(&response) == "200" && response.ends_with("finished"), "{response}");
    within(served).await.unwrap();
    drop(idle);
}
