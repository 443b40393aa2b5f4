//! nf_tables over netlink: one complete table in one atomic batch (linux/netfilter/nf_tables.h).
//!
//! [`ruleset`] is a desired table. [`mod@fingerprint`] shows whether an existing table has changed.

pub mod fingerprint;
pub mod ruleset;

use common::netlink::Error;
use common::netlink::message::{FLAG_ECHO, split};
use common::netlink::nftables::{all_tables, commit, commit_with, message};
use common::netlink::socket::{Protocol, Socket};

use crate::cni::{self, ToCni};
use fingerprint::find;
use ruleset::Subject;

pub use common::netlink::nftables::Family;
pub use fingerprint::{Description, Part, fingerprint};
pub use ruleset::Ruleset;

/// Limit of a batch, in bytes, whose objects the kernel sends back: they take up to four times as much, and the receive buffer has 208 KiB.
const ECHO_LIMIT: usize = 32 << 10;

/// Creates the table with its content, atomically. Returns the kernel's description of it; none if it is larger than a socket's buffer.
///
/// # Errors
/// Code 100: the object that the kernel refused, with its message; also if a table with this name exists.
pub fn install(socket: &mut Socket, ruleset: &Ruleset) -> Result<Option<Vec<Part>>, cni::Error> {
    let (subjects, mut messages): (Vec<_>, Vec<_>) = ruleset.messages().into_iter().unzip();
    let echoed = messages.iter().map(|message| message.body().len()).sum::<usize>() < ECHO_LIMIT;
    if echoed {
        messages = messages.into_iter().map(|message| message.with_flags(FLAG_ECHO)).collect();
    }
    let mut description = Ok(Vec::new());
    let committed = commit_with(socket, messages, |kind, payload| {
        if let Ok(all) = &mut description {
            match fingerprint::parts(&ruleset.table, kind, payload) {
                Ok(parts) => all.extend(parts),
                Err(error) => description = Err(error),
            }
        }
    });
    committed.map_err(|(place, error)| {
        // Without the kernel's reply, the table may exist.
        if !matches!(error, Error::Refused(_)) {
            let _ = delete(socket, ruleset.family, &ruleset.table);
        }
        let subject = place.and_then(|place| subjects.get(place)).unwrap_or(&Subject::Batch);
        error.to_cni(format!("nf_tables: cannot install the table {}: {subject}", ruleset.table))
    })?;
    // A malformed description fails when the table is read.
    Ok(description.ok().filter(|_| echoed))
}

/// The same, if the kernel has what the table needs. Returns none if it has not.
///
/// # Errors
/// As [`install`].
pub fn install_if_supported(
    socket: &mut Socket,
    ruleset: &Ruleset,
) -> Result<Option<Option<Vec<Part>>>, cni::Error> {
    // No such hook or expression, or no such family (nft_chain_parse_hook, nf_tables_newtable in linux/net/netfilter).
    const UNSUPPORTED: [i32; 3] = [libc::EOPNOTSUPP, libc::EAFNOSUPPORT, libc::ENOENT];
    match install(socket, ruleset) {
        Err(error) if error.errno.is_some_and(|errno| UNSUPPORTED.contains(&errno)) => Ok(None),
        installed => installed.map(Some),
    }
}

/// Deletes the table with its content. A missing table is not an error.
///
/// # Errors
/// Code 100, with the kernel's message.
pub fn delete(socket: &mut Socket, family: Family, table: &str) -> Result<(), cni::Error> {
    // NFT_MSG_DELTABLE: NFTA_TABLE_NAME.
    let mut request = message(family, 2, 0);
    request.string(1, table);
    match commit(socket, vec![request]) {
        Err((_, error)) if !error.is(&[libc::ENOENT]) => {
            Err(error.to_cni(format!("nf_tables: cannot delete the table {table}")))
        }
        _ => Ok(()),
    }
}

/// The tables of families inet and netdev whose names begin with `prefix`: the family and the rest of the name.
///
/// # Errors
/// Code 100, with the kernel's message.
pub fn tables(socket: &mut Socket, prefix: &str) -> Result<Vec<(Family, String)>, cni::Error> {
    let tables = socket.dump(&all_tables(), |_, payload| {
        // struct nfgenmsg: nfgen_family. NFTA_TABLE_NAME.
        let [number, ..] = *split::<4>(payload)?.0;
        let family = [Family::Inet, Family::Netdev].into_iter().find(|family| family.number() == number);
        let name = find(payload, 1)?.map(|name| name.string()).unwrap_or_default();
        Ok(family.zip(name.strip_prefix(prefix).map(str::to_owned)))
    });
    tables.map_err(|error| {
        let why = if lacking(&error) {
            ": the kernel has no nf_tables, the module nf_tables is missing"
        } else {
            ""
        };
        error.to_cni(format!("nf_tables: cannot list the tables{why}"))
    })
}

/// Whether the kernel has nf_tables. True if this is unknown.
#[must_use]
pub fn known() -> bool {
    let asked = Socket::open(Protocol::Netfilter)
        // NFT_MSG_GETGEN.
        .and_then(|mut socket| socket.ask(&message(Family::Inet, 16, 0), |_, _| Ok(())));
    !asked.is_err_and(|error| lacking(&error))
}

/// The error of a kernel without nf_tables: no such sockets, or no such subsystem of nfnetlink (nfnetlink_rcv_msg in
/// linux/net/netfilter/nfnetlink.c).
fn lacking(error: &Error) -> bool {
    error.is(&[libc::EPROTONOSUPPORT, libc::EAFNOSUPPORT, libc::EINVAL, libc::EOPNOTSUPP])
}

/// Requests the ruleset's generation, to test whether the kernel has nf_tables.
///
/// # Errors
/// Code 100, with the kernel's message.
pub fn generation(socket: &mut Socket) -> Result<(), cni::Error> {
    // NFT_MSG_GETGEN.
    socket
        .ask(&message(Family::Inet, 16, 0), |_, _| Ok(()))
        .map_err(|error| error.to_cni("nf_tables: cannot read the generation of the ruleset"))
}
