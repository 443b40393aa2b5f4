//! A small HTTP server: a thread for each connection; it responds or closes the connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// One request.
pub struct Asked {
    pub method: String,
    pub path: String,
    headers: Vec<(String, String)>,
    pub body: String,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// A response.
pub enum Response {
    Reply(u16, String),
    /// The connection is closed without a response.
    Cut,
}

/// A server on a port of its own, until it is dropped.
pub struct Server {
    scheme: &'static str,
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(handler: impl Fn(&Asked) -> Response + Send + Sync + 'static) -> Self {
        Self::listen("http", handler, |stream, handler| serve(stream, handler))
    }

    /// With TLS.
    pub fn start_tls(
        config: Arc<rustls::ServerConfig>,
        handler: impl Fn(&Asked) -> Response + Send + Sync + 'static,
    ) -> Self {
        Self::listen("https", handler, move |stream, handler| {
            let connection = rustls::ServerConnection::new(config.clone()).unwrap();
            serve(rustls::StreamOwned::new(connection, stream), handler);
        })
    }

    fn listen(
        scheme: &'static str,
        handler: impl Fn(&Asked) -> Response + Send + Sync + 'static,
        speak: impl Fn(TcpStream, &dyn Fn(&Asked) -> Response) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, both) = (stop.clone(), Arc::new((handler, speak)));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    break;
                }
                let (stream, both) = (stream.unwrap(), both.clone());
                stream.set_nodelay(true).unwrap();
                std::thread::spawn(move || (both.1)(stream, &both.0));
            }
        });
        Self { scheme, address, stop, thread: Some(thread) }
    }

    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(stream: impl Read + Write, handler: &dyn Fn(&Asked) -> Response) {
    let mut reader = BufReader::new(stream);
    while let Some(asked) = read(&mut reader) {
        let Response::Reply(status, body) = handler(&asked) else { break };
        let head = format!("HTTP/1.1 {status} -\r\nContent-Length: {}\r\n\r\n", body.len());
        let stream = reader.get_mut();
        if stream
            .write_all(&[head.as_bytes(), body.as_bytes()].concat())
            .and_then(|()| stream.flush())
            .is_err()
        {
            break;
        }
    }
}

fn read(reader: &mut impl BufRead) -> Option<Asked> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(':') {
            None => break,
            Some((key, value)) => headers.push((key.to_owned(), value.trim().to_owned())),
        }
    }
    let mut asked = Asked { method, path, headers, body: String::new() };
    let length: usize = asked.header("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    asked.body = String::from_utf8(body).unwrap();
    Some(asked)
}
