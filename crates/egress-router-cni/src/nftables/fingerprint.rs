//! A fingerprint of an existing table: whether anything in it has changed since ADD. It is that of the kernel's own description, so it does
//! not depend on what this program or a newer kernel would make of the same configuration.

use common::netlink::Error;
use common::netlink::message::{Attribute, Malformed, split};
use common::netlink::socket::Socket;
use ring::digest::{Context, SHA256};

use super::Family;
use super::ruleset::message;
use crate::cni::{self, ToCni};

/// The version of the fingerprint, its first character. It changes with the attributes that are compared: then CHECK does not compare the
/// fingerprint of another build.
pub const VERSION: char = '1';

/// The fingerprint of the tables `name` of families inet and netdev; none if there is none of family inet.
///
/// # Errors
/// Code 100, with the kernel's message.
pub fn fingerprint(socket: &mut Socket, name: &str) -> Result<Option<String>, cni::Error> {
    let mut described = |family| {
        described(socket, family, name)
            .map_err(|error| error.to_cni(format!("nf_tables: cannot read the table {name}")))
    };
    let Some(inet) = described(Family::Inet)? else { return Ok(None) };
    let netdev = described(Family::Netdev)?;
    let mut context = Context::new(&SHA256);
    for part in inet.into_iter().chain(netdev.into_iter().flatten()) {
        context.update(&part.len().to_ne_bytes());
        context.update(&part);
    }
    let digest = context.finish();
    let hex = |text: String, byte: &u8| format!("{text}{byte:02x}");
    Ok(Some(digest.as_ref().iter().fold(VERSION.to_string(), hex)))
}

/// The kernel's description of the table, its chains, rules and sets, each without handles, counters and positions.
fn described(socket: &mut Socket, family: Family, name: &str) -> Result<Option<Vec<Vec<u8>>>, Error> {
    let request = |kind: u16, set: Option<&str>| {
        let mut request = message(family, kind, 0);
        // NFTA_TABLE_NAME, NFTA_*_TABLE; NFTA_SET_ELEM_LIST_SET.
        request.string(1, name);
        if let Some(set) = set {
            request.string(2, set);
        }
        request
    };
    // NFT_MSG_GETTABLE: NFTA_TABLE_FLAGS, because a dormant table does nothing.
    let mut parts = match socket.ask(&request(1, None), |_, payload| describe(payload, name, &[2])) {
        Err(error) if error.is(&[libc::ENOENT]) => return Ok(None),
        table => vec![table?.unwrap_or_default()],
    };
    // NFT_MSG_GETCHAIN: _NAME, _HOOK, _POLICY, _TYPE, _FLAGS. NFT_MSG_GETRULE: _CHAIN, _EXPRESSIONS, _USERDATA (the comment). Older
    // kernels do not filter by table.
    for (kind, kinds) in [(4, &[3, 4, 5, 7, 10][..]), (7, &[2, 4, 7])] {
        parts.extend(socket.dump(&request(kind, None), |_, payload| describe(payload, name, kinds))?);
    }
    // NFT_MSG_GETSET: _NAME, _FLAGS, _KEY_TYPE, _KEY_LEN.
    let sets = socket.dump(&request(10, None), |_, payload| {
        let described = describe(payload, name, &[2, 3, 4, 5])?;
        let set = find(payload, 2)?.map(|set| set.string()).unwrap_or_default();
        Ok(described.map(|described| (set, described)))
    })?;
    for (set, described) in sets {
        parts.push(described);
        // NFT_MSG_GETSETELEM: NFTA_SET_ELEM_LIST_ELEMENTS. A hash reports them in any order.
        let dumped = socket.dump(&request(13, Some(&set)), |_, payload| elements(payload).map(Some))?;
        let mut elements = dumped.concat();
        elements.sort_unstable();
        parts.extend(elements);
    }
    Ok(Some(parts))
}

/// The attributes `kinds` of an object of `table`; none of an object of another table.
///
/// # Errors
/// It is malformed.
pub fn describe(payload: &[u8], table: &str, kinds: &[u16]) -> Result<Option<Vec<u8>>, Malformed> {
    let mut description = Vec::new();
    let mut of_table = false;
    for attribute in split::<4>(payload)?.1 {
        let attribute = attribute?;
        of_table |= attribute.kind == 1 && attribute.string() == table;
        if kinds.contains(&attribute.kind) {
            description.extend(attribute.kind.to_ne_bytes());
            description.extend(attribute.payload.len().to_ne_bytes());
            description.extend(attribute.payload);
        }
    }
    Ok(of_table.then_some(description))
}

/// The elements of a set in a reply, undecoded.
///
/// # Errors
/// It is malformed.
pub fn elements(payload: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    let Some(list) = find(payload, 3)? else { return Ok(Vec::new()) };
    list.nested().map(|element| element.map(|element| element.payload.to_vec())).collect()
}

/// The attribute `kind` of a reply, behind its struct nfgenmsg.
///
/// # Errors
/// It is malformed.
pub(super) fn find(payload: &[u8], kind: u16) -> Result<Option<Attribute<'_>>, Malformed> {
    let mut attributes = split::<4>(payload)?.1;
    attributes.find(|one| one.is_err() || one.is_ok_and(|one| one.kind == kind)).transpose()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(payload in proptest::collection::vec(any::<u8>(), 0..96)) {
            let _ = (describe(&payload, "t", &[1, 2, 3]), elements(&payload));
        }
    }
}
