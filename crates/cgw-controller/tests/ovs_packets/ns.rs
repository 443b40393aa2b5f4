//! Network namespaces with servers and clients.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::AsRawFd as _,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// How long an attempt waits for a response; after one attempt, a packet counts as dropped.
const SILENCE: Duration = Duration::from_millis(1500);
/// Limit of a response that is expected, far longer than it takes on a busy machine.
const LONGEST: Duration = Duration::from_secs(300);
/// Attempts where a response is expected.
const ATTEMPTS: usize = 20;

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace with a thread in it.
pub struct Ns {
    jobs: mpsc::Sender<Job>,
    _file: File,
    pub(super) path: String,
}

impl Ns {
    pub(super) fn new() -> Ns {
        let (jobs, receiver) = mpsc::channel::<Job>();
        let (sender, file) = mpsc::channel();
        thread::spawn(move || {
            // SAFETY: the call changes the network namespace of this thread, and takes no pointers.
            let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
            assert_eq!(
                result,
                0,
                "making a network namespace needs root: {}",
                std::io::Error::last_os_error()
            );
            sender.send(File::open("/proc/thread-self/ns/net").unwrap()).unwrap();
            while let Ok(job) = receiver.recv() {
                job();
            }
        });
        let file = file.recv().expect("making a network namespace needs root");
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        let ns = Ns { jobs, _file: file, path };
        ns.sh(
            "ip link set lo up; sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 \
               net.ipv4.conf.default.arp_announce=0 net.ipv4.ip_forward=0 net.ipv6.conf.all.disable_ipv6=1 \
               net.ipv6.conf.default.disable_ipv6=1",
        );
        ns
    }

    /// Runs in the namespace. Threads and processes that the function starts stay in it.
    pub fn run<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, result) = mpsc::channel();
        self.jobs.send(Box::new(move || drop(sender.send(f())))).unwrap();
        result.recv().expect("the function does not panic")
    }

    /// Runs a script, which must succeed, and returns its output.
    pub fn sh(&self, script: &str) -> String {
        let text = script.to_owned();
        let output = self
            .run(move || Command::new("bash").args(["-euc", &text]).stdin(Stdio::null()).output().unwrap());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}\n{stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A TCP connection to a server of the lab: the first line that it sends.
    pub fn fetch(&self, to: &str, port: u16) -> Option<String> {
        let to = SocketAddr::new(to.parse().unwrap(), port);
        self.run(move || fetch(to, SILENCE))
    }

    /// The greeting of a server. One that is expected: a busy machine delays it, and Open vSwitch uses a flow some time after it
    /// has accepted it.
    pub fn greeting(&self, to: &str, port: u16) -> Option<String> {
        (0..ATTEMPTS).find_map(|_| self.fetch(to, port))
    }

    /// The address that a server sees, of a connection that is expected.
    pub fn seen(&self, to: &str, port: u16) -> Option<String> {
        self.greeting(to, port)?.split_whitespace().nth(1).map(ToOwned::to_owned)
    }

    /// The address that the UDP server of the outside sees, of a packet that is expected.
    pub fn seen_udp(&self, to: &str, port: u16) -> Option<String> {
        let response = (0..ATTEMPTS).find_map(|_| self.fetch_udp(to, port))?;
        response.split_whitespace().nth(1).map(ToOwned::to_owned)
    }

    /// The response of a UDP server to one packet; None after a short time.
    pub fn fetch_udp(&self, to: &str, port: u16) -> Option<String> {
        let to = SocketAddr::new(to.parse().unwrap(), port);
        self.run(move || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(SILENCE)).unwrap();
            socket.send_to(b"?", to).ok()?;
            let mut buffer = [0; 100];
            let count = socket.recv(&mut buffer).ok()?;
            Some(String::from_utf8_lossy(&buffer[..count]).into_owned())
        })
    }

    /// A connection that stays open.
    pub fn connect(&self, to: &str, port: u16) -> Option<Open> {
        let to = SocketAddr::new(to.parse().unwrap(), port);
        self.run(move || (0..ATTEMPTS).find_map(|_| Open::new(to, SILENCE)))
    }

    pub(super) fn serve(&self, name: &str, ports: &[u16]) {
        for port in ports.iter().copied() {
            let name = name.to_owned();
            self.run(move || {
                let listener = TcpListener::bind(("0.0.0.0", port)).unwrap();
                let socket = UdpSocket::bind(("0.0.0.0", port)).unwrap();
                let udp_name = name.clone();
                thread::spawn(move || {
                    let mut buffer = [0; 100];
                    while let Ok((_, peer)) = socket.recv_from(&mut buffer) {
                        let _ = socket.send_to(format!("{udp_name} {}\n", peer.ip()).as_bytes(), peer);
                    }
                });
                thread::spawn(move || {
                    for stream in listener.incoming().flatten() {
                        let name = name.clone();
                        thread::spawn(move || serve(&name, stream));
                    }
                });
            });
        }
    }
}

/// Sends its name and the client's address, then every line back.
fn serve(name: &str, mut stream: TcpStream) {
    let Ok(peer) = stream.peer_addr() else { return };
    let _ = writeln!(stream, "{name} {}", peer.ip());
    let mut buffer = [0; 1000];
    while let Ok(count) = stream.read(&mut buffer) {
        if count == 0 || stream.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

pub fn fetch(to: SocketAddr, timeout: Duration) -> Option<String> {
    Open::new(to, timeout).map(|open| open.greeting)
}

/// An open connection.
pub struct Open {
    reader: BufReader<TcpStream>,
    pub greeting: String,
    pub local_port: u16,
}

impl Open {
    fn new(to: SocketAddr, timeout: Duration) -> Option<Open> {
        let stream = TcpStream::connect_timeout(&to, timeout).ok()?;
        stream.set_read_timeout(Some(timeout)).ok()?;
        let local_port = stream.local_addr().ok()?.port();
        let mut open = Open { reader: BufReader::new(stream), greeting: String::new(), local_port };
        open.greeting = open.line()?;
        Some(open)
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let count = self.reader.read_line(&mut line).ok()?;
        (count > 0).then(|| line.trim().to_owned())
    }

    /// Whether a line comes back.
    pub fn works(&mut self) -> bool {
        self.echoes(LONGEST)
    }

    /// Whether no line comes back.
    pub fn is_broken(&mut self) -> bool {
        !self.echoes(SILENCE)
    }

    fn echoes(&mut self, timeout: Duration) -> bool {
        self.reader.get_ref().set_read_timeout(Some(timeout)).unwrap();
        self.reader.get_mut().write_all(b"line\n").is_ok() && self.line().as_deref() == Some("line")
    }
}
