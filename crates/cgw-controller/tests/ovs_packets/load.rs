//! Pods that connect to the outside all the time.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::lab::{EXT, Lab, PORT, fetch, wait};

#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    connected: AtomicU64,
    failed: AtomicU64,
}

/// The clients.
pub struct Load {
    counts: Arc<Counts>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts a client in each of these pods, with the address that the outside has to see.
    pub fn start(lab: &Lab, pods: &[(&str, &'static str)]) -> Load {
        let counts = Arc::new(Counts::default());
        let to = SocketAddr::new(EXT.parse().unwrap(), PORT);
        let clients = pods.iter().map(|(pod, vip)| {
            let (counts, vip) = (counts.clone(), *vip);
            lab.pod(pod).run(move || thread::spawn(move || connect(&counts, to, vip)))
        });
        let clients = clients.collect();
        Load { counts, clients }
    }

    /// Waits until more connections have succeeded.
    pub fn succeeds(&self) {
        let before = self.counts.connected.load(Relaxed);
        wait("connections succeed", || self.counts.connected.load(Relaxed) > before + 20);
    }

    /// Waits until more connections have failed.
    pub fn fails(&self) {
        let before = self.counts.failed.load(Relaxed);
        wait("connections fail", || self.counts.failed.load(Relaxed) > before + 5);
    }

    /// Ends the clients: how many connections succeeded, and how many failed. Panics if the outside saw another address.
    pub fn stop(self) -> (u64, u64) {
        self.counts.stop.store(true, Relaxed);
        for client in self.clients {
            client.join().expect("no client saw a wrong source");
        }
        (self.counts.connected.load(Relaxed), self.counts.failed.load(Relaxed))
    }
}

fn connect(counts: &Counts, to: SocketAddr, vip: &str) {
    while !counts.stop.load(Relaxed) {
        match fetch(to, Duration::from_millis(300)) {
            Some(line) => {
                assert_eq!(line, format!("ext {vip}"));
                counts.connected.fetch_add(1, Relaxed);
            }
            None => {
                counts.failed.fetch_add(1, Relaxed);
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
}
