//! A fingerprint of an existing table: whether anything in it has changed since ADD. It is that of the kernel's own description, so it does
//! not depend on what this program or a newer kernel would make of the same configuration.
//!
//! ADD gets the description with the acknowledgement of its batch (NLM_F_ECHO), CHECK requests it.

use std::cmp::Ordering;

use common::netlink::Error;
use common::netlink::message::{Attribute, Malformed, split};
use common::netlink::nftables::{Family, message};
use common::netlink::socket::Socket;
use ring::digest::{Context, SHA256};

use crate::cni::{self, ToCni};

/// The version of the fingerprint, its first character. It changes with the attributes that are compared: then CHECK does not compare the
/// fingerprint of another build.
pub const VERSION: char = '2';

/// NFT_MSG_NEWTABLE, _NEWCHAIN, _NEWRULE, _NEWSET and _NEWSETELEM. The request for an object has the next number.
pub(super) const TABLE: u16 = 0;
pub(super) const CHAIN: u16 = 3;
pub(super) const RULE: u16 = 6;
pub(super) const SET: u16 = 9;
pub(super) const ELEMENTS: u16 = 12;

/// An object: its type, and the attributes that are compared, without handles, counters and positions.
pub type Part = (u16, Vec<u8>);

/// The kernel's description of an attachment's tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Description(Vec<Part>);

/// The parts of a message of nf_tables: one, or those of the elements of a set; none of another table than `table`.
///
/// # Errors
/// It is malformed.
pub fn parts(table: &str, kind: u16, payload: &[u8]) -> Result<Vec<Part>, Malformed> {
    let kind = kind & 0xff;
    let compared: &[u16] = match kind {
        // NFTA_TABLE_FLAGS, because a dormant table does nothing.
        TABLE => &[2],
        // NFTA_CHAIN_NAME, _HOOK, _POLICY, _TYPE, _FLAGS.
        CHAIN => &[3, 4, 5, 7, 10],
        // NFTA_RULE_CHAIN, _EXPRESSIONS, _USERDATA (the comment).
        RULE => &[2, 4, 7],
        // NFTA_SET_NAME, _FLAGS, _KEY_TYPE, _KEY_LEN.
        SET => &[2, 3, 4, 5],
        // NFTA_SET_ELEM_LIST_SET.
        ELEMENTS => &[2],
        _ => return Ok(Vec::new()),
    };
    // NFTA_TABLE_NAME, NFTA_*_TABLE.
    if find(payload, 1)?.is_none_or(|name| name.string() != table) {
        return Ok(Vec::new());
    }
    // The family, because both tables have the same name, and so have their sets.
    let mut part: Vec<u8> = payload.first().copied().into_iter().collect();
    for attribute in split::<4>(payload)?.1 {
        let attribute = attribute?;
        if compared.contains(&attribute.kind) {
            part.extend(attribute.kind.to_ne_bytes());
            part.extend(attribute.payload.len().to_ne_bytes());
            part.extend(attribute.payload);
        }
    }
    if kind != ELEMENTS {
        return Ok(vec![(kind, part)]);
    }
    // NFTA_SET_ELEM_LIST_ELEMENTS.
    let Some(list) = find(payload, 3)? else { return Ok(Vec::new()) };
    list.nested().map(|element| Ok((kind, [part.as_slice(), element?.payload].concat()))).collect()
}

impl Description {
    /// Adds parts, in the kernel's order.
    pub fn extend(&mut self, parts: impl IntoIterator<Item = Part>) {
        self.0.extend(parts);
    }

    /// The fingerprint. A hash reports its elements in any order.
    #[must_use]
    pub fn fingerprint(mut self) -> String {
        self.0.sort_by(|(kind, part), (other, elsewhere)| {
            kind.cmp(other)
                .then_with(|| if *kind == ELEMENTS { part.cmp(elsewhere) } else { Ordering::Equal })
        });
        let mut context = Context::new(&SHA256);
        for (_, part) in &self.0 {
            context.update(&part.len().to_ne_bytes());
            context.update(part);
        }
        let digest = context.finish();
        let hex = |text: String, byte: &u8| format!("{text}{byte:02x}");
        digest.as_ref().iter().fold(VERSION.to_string(), hex)
    }
}

/// The fingerprint of the tables `name` of families inet and netdev; none if there is none of family inet.
///
/// # Errors
/// Code 100, with the kernel's message.
pub fn fingerprint(socket: &mut Socket, name: &str) -> Result<Option<String>, cni::Error> {
    let cannot = |error: Error| error.to_cni(format!("nf_tables: cannot read the table {name}"));
    let mut description = Description::default();
    if !describe(socket, Family::Inet, name, &mut description).map_err(cannot)? {
        return Ok(None);
    }
    describe(socket, Family::Netdev, name, &mut description).map_err(cannot)?;
    Ok(Some(description.fingerprint()))
}

/// Adds the table and all that is in it, each with one request. False if it does not exist.
fn describe(socket: &mut Socket, family: Family, name: &str, to: &mut Description) -> Result<bool, Error> {
    let request = |kind: u16, set: Option<&str>| {
        let mut request = message(family, kind + 1, 0);
        // NFTA_TABLE_NAME, NFTA_*_TABLE; NFTA_SET_ELEM_LIST_SET.
        request.string(1, name);
        if let Some(set) = set {
            request.string(2, set);
        }
        request
    };
    let parts = |kind: u16, payload: &[u8]| parts(name, kind, payload);
    let all = |kind: u16, payload: &[u8]| parts(kind, payload).map(Some);
    match socket.ask(&request(TABLE, None), parts) {
        Err(error) if error.is(&[libc::ENOENT]) => return Ok(false),
        table => to.extend(table?),
    }
    for kind in [CHAIN, RULE] {
        // Older kernels do not filter by table.
        to.extend(socket.dump(&request(kind, None), all)?.concat());
    }
    let sets = socket.dump(&request(SET, None), |kind, payload| {
        let set = find(payload, 2)?.map(|set| set.string()).unwrap_or_default();
        Ok(Some((set, parts(kind, payload)?)))
    })?;
    for (set, parts) in sets.into_iter().filter(|(_, parts)| !parts.is_empty()) {
        to.extend(parts);
        to.extend(socket.dump(&request(ELEMENTS, Some(&set)), all)?.concat());
    }
    Ok(true)
}

/// The attribute `kind` of a reply, behind its struct nfgenmsg.
///
/// # Errors
/// It is malformed.
pub(super) fn find(payload: &[u8], kind: u16) -> Result<Option<Attribute<'_>>, Malformed> {
    split::<4>(payload)?.1.of_kind(kind)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(kind in 0_u16..16, payload in proptest::collection::vec(any::<u8>(), 0..96)) {
            let _ = parts("t", kind, &payload);
        }
    }
}
