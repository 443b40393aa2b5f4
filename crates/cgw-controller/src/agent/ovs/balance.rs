//! The choice of a backend: a program of the match `bpf` computes it from the client's address and port. All gateway candidates
//! choose the same backend for a connection, so a connection survives a change of the gateway without a copy of its conntrack entry.
//! (`-m statistic` chooses by chance, and the target HMARK overwrites the whole mark of a packet.)

use std::net::Ipv4Addr;

/// Odd multipliers: the constants of Knuth's multiplicative hash and of MurmurHash3's finalizer.
const PORT_FACTOR: u32 = 2_654_435_761;
const FIRST_FACTOR: u32 = 2_246_822_507;
const SECOND_FACTOR: u32 = 3_266_489_909;

/// The hash that the program computes. Without a port, all connections of a client get the same backend.
#[must_use]
pub fn hash(source: Ipv4Addr, port: Option<u16>) -> u32 {
    let hash = source.to_bits() ^ port.map_or(0, |port| u32::from(port).wrapping_mul(PORT_FACTOR));
    let hash = hash.wrapping_mul(FIRST_FACTOR);
    let hash = (hash ^ (hash >> 15)).wrapping_mul(SECOND_FACTOR);
    hash ^ (hash >> 16)
}

/// The program as the option `--bytecode` takes it: it matches if the hash modulo `count` is `index`. The count is not 0.
#[must_use]
pub fn bytecode(use_port: bool, count: usize, index: usize) -> String {
    let mut program: Vec<(u16, u8, u8, u32)> = Vec::new();
    if use_port {
        program.extend([
            (0xb1, 0, 0, 0),           // ldx 4*([0]&0xf): length of the IP header
            (0x48, 0, 0, 0),           // ldh [x+0]: source port
            (0x24, 0, 0, PORT_FACTOR), // mul
            (0x07, 0, 0, 0),           // tax
            (0x20, 0, 0, 12),          // ld [12]: source address
            (0xac, 0, 0, 0),           // xor x
        ]);
    } else {
        program.push((0x20, 0, 0, 12));
    }
    program.extend([
        (0x24, 0, 0, FIRST_FACTOR),
        (0x07, 0, 0, 0),
        (0x74, 0, 0, 15), // rsh
        (0xac, 0, 0, 0),
        (0x24, 0, 0, SECOND_FACTOR),
        (0x07, 0, 0, 0),
        (0x74, 0, 0, 16),
        (0xac, 0, 0, 0),
        (0x94, 0, 0, u32::try_from(count).unwrap_or(u32::MAX)), // mod
        (0x15, 0, 1, u32::try_from(index).unwrap_or(u32::MAX)), // jeq: else skip one
        (0x06, 0, 0, 1),                                        // ret: matches
        (0x06, 0, 0, 0),
    ]);
    let instructions: Vec<String> =
        program.iter().map(|(code, jt, jf, k)| format!("{code} {jt} {jf} {k}")).collect();
    format!("{},{}", program.len(), instructions.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets the program for a packet of this source.
    fn run(bytecode: &str, source: Ipv4Addr, port: u16) -> bool {
        let mut parts = bytecode.split(',');
        let count: usize = parts.next().unwrap().parse().unwrap();
        let program: Vec<Vec<u32>> =
            parts.map(|part| part.split(' ').map(|number| number.parse().unwrap()).collect()).collect();
        assert_eq!(program.len(), count);
        let (mut a, mut x, mut at) = (0_u32, 0_u32, 0_usize);
        loop {
            let [code, jt, jf, k] = program[at][..] else { panic!("an instruction has four numbers") };
            at += 1;
            match code {
                0xb1 => x = 20,
                0x48 => a = u32::from(port),
                0x20 => a = source.to_bits(),
                0x24 => a = a.wrapping_mul(k),
                0x07 => x = a,
                0xac => a ^= x,
                0x74 => a >>= k,
                0x94 => a %= k,
                0x15 => at += if a == k { jt } else { jf } as usize,
                0x06 => return k != 0,
                other => panic!("instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn program_computes_the_hash() {
        for port in 32_768..33_768 {
            let source = Ipv4Addr::from_bits(0xc0a8_3200 | (u32::from(port) % 251));
            for (use_port, hash) in [(true, hash(source, Some(port))), (false, hash(source, None))] {
                let chosen: Vec<usize> =
                    (0..3).filter(|index| run(&bytecode(use_port, 3, *index), source, port)).collect();
                assert_eq!(chosen, [hash as usize % 3]);
            }
        }
    }

    #[test]
    fn backends_get_even_shares() {
        // Linux takes every second port of the range for outgoing connections.
        for (count, step) in [(2, 2), (3, 1), (7, 2)] {
            let mut shares = vec![0_u32; count];
            for port in (32_768..=60_000).step_by(step) {
                shares[hash([192, 168, 50, 100].into(), Some(port)) as usize % count] += 1;
            }
            let mean = shares.iter().sum::<u32>() / u32::try_from(count).unwrap();
            assert!(shares.iter().all(|share| share.abs_diff(mean) < mean / 10), "{shares:?}");
        }
    }
}
