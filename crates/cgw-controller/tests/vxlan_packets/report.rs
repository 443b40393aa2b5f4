//! The report of a failed test: drops, neighbours and connections of each node.

use super::{A, Lab, NODES};

impl Lab {
    /// Prints why packets may have been lost: the drops that the nodes counted, their neighbours and the connections of the VIPs.
    pub(super) fn report(&self) {
        let commands = ["nft list table ip cgw", "ip neighbour show", "cat /proc/net/nf_conntrack"];
        for name in NODES.iter().map(|node| node.0).chain(["ext"]) {
            let ns = self.ns(name);
            for command in commands {
                let words = ["netns", "exec", &ns].into_iter().chain(command.split(' '));
                let Ok(output) = std::process::Command::new("ip").args(words).output() else { continue };
                let lines = String::from_utf8_lossy(&output.stdout);
                let of_interest = lines.lines().filter(|line| {
                    command.starts_with("ip")
                        || line.contains("counter packets") && !line.contains("counter packets 0 ")
                        || line.contains(&A.to_string()) && !line.contains("TIME_WAIT")
                });
                println!("{name}: {command}");
                of_interest.for_each(|line| println!("    {}", line.trim()));
            }
        }
    }
}
