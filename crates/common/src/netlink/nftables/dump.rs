//! An existing table, as raw attributes: to notice that another program has changed it.

use std::thread;
use std::time::Duration;

use super::{Family, message};
use crate::netlink::error::Error;
use crate::netlink::message::{Attribute, Malformed, Message, attributes, split};
use crate::netlink::socket::Socket;

/// A table with its content. Two dumps are equal if no program changed the table in between. Counters are omitted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dump {
    /// The attributes of NFT_MSG_NEWTABLE.
    pub table: Vec<u8>,
    /// The chains, in the order of their creation.
    pub chains: Vec<ChainDump>,
    /// The rules: chain by chain, in order of evaluation.
    pub rules: Vec<RuleDump>,
    /// The sets and maps, also anonymous ones, in the order of their creation.
    pub sets: Vec<SetDump>,
}

/// A chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainDump {
    /// NFTA_CHAIN_NAME.
    pub name: String,
    /// The attributes of NFT_MSG_NEWCHAIN, without counters.
    pub raw: Vec<u8>,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleDump {
    /// NFTA_RULE_CHAIN.
    pub chain: String,
    /// The attributes of NFT_MSG_NEWRULE, without the data of expressions that count.
    pub raw: Vec<u8>,
}

/// A set or map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetDump {
    /// NFTA_SET_NAME: of an anonymous set, the kernel's.
    pub name: String,
    /// The attributes of NFT_MSG_NEWSET.
    pub raw: Vec<u8>,
    /// The attributes of each element, sorted: the kernel's order depends on a random seed.
    pub elements: Vec<Vec<u8>>,
}

/// NFT_MSG_*.
const GET_TABLE: u16 = 1;
const GET_CHAIN: u16 = 4;
const GET_RULE: u16 = 7;
const GET_SET: u16 = 10;
const GET_ELEMENTS: u16 = 13;
const GET_GENERATION: u16 = 16;

/// Attempts to read a table while other programs change any table, or a set while the kernel resizes it.
const ATTEMPTS: u32 = 10;

/// The kernel resizes a set in a work queue, which a busy machine runs late.
const RESIZE_INTERVAL: Duration = Duration::from_millis(10);

/// The generation of the ruleset, which every batch of any program in the namespace increases. If it did not change, neither did any table.
///
/// # Errors
/// Why there is no reply.
pub fn generation(socket: &mut Socket) -> Result<u32, Error> {
    /// NFTA_GEN_ID.
    const ID: u16 = 1;
    let generation = socket.ask(&message(Family::Inet, GET_GENERATION, 0), |_, payload| {
        split::<4>(payload)?.1.of_kind(ID)?.ok_or(Malformed("a generation"))?.be32()
    });
    generation.map_err(|error| error.during("nf_tables: reading the generation of the ruleset"))
}

/// Whether the table has the chain.
///
/// # Errors
/// Why there is no reply.
pub fn has_chain(socket: &mut Socket, family: Family, table: &str, chain: &str) -> Result<bool, Error> {
    let mut request = message(family, GET_CHAIN, 0);
    // NFTA_CHAIN_TABLE, NFTA_CHAIN_NAME.
    request.string(1, table).string(3, chain);
    match socket.ask(&request, |_, _| Ok(())) {
        Ok(()) => Ok(true),
        Err(error) if error.is(&[libc::ENOENT]) => Ok(false),
        Err(error) => {
            Err(error.during(format_args!("nf_tables: reading the chain {chain} of the table {table}")))
        }
    }
}

/// Reads the table `name`; none if it does not exist. All of it is of one generation of the ruleset.
///
/// # Errors
/// [`Error::DumpInterrupted`] if other programs keep changing the ruleset; why there is no reply.
pub fn table(socket: &mut Socket, family: Family, name: &str) -> Result<Option<Dump>, Error> {
    for _ in 0..ATTEMPTS {
        let before = generation(socket)?;
        let dump = table_once(socket, family, name);
        if generation(socket)? == before {
            return dump.map_err(|error| error.during(format_args!("nf_tables: reading the table {name}")));
        }
    }
    Err(Error::DumpInterrupted(ATTEMPTS).during(format_args!("nf_tables: reading the table {name}")))
}

/// NFT_MSG_GETSETELEM: NFTA_SET_ELEM_LIST_TABLE, _SET.
fn of_set(family: Family, table: &str, set: &str) -> Message {
    let mut request = message(family, GET_ELEMENTS, 0);
    request.string(1, table).string(2, set);
    request
}

/// Sorts the elements of a set. Reads them again while one occurs twice: for each part of a dump, the kernel reads the hash table from its
/// begin and skips as many elements as it has sent. If it resizes the table between two parts, some elements are sent twice and others
/// never, and neither the generation nor a flag of the dump tells that (net/netfilter/nft_set_hash.c).
fn whole<T: Clone + Ord>(mut read: impl FnMut() -> Result<Vec<Vec<T>>, Error>) -> Result<Vec<T>, Error> {
    for _ in 0..ATTEMPTS {
        let mut elements = read()?.concat();
        elements.sort_unstable();
        if elements.is_sorted_by(|one, next| one < next) {
            return Ok(elements);
        }
        thread::sleep(RESIZE_INTERVAL);
    }
    Err(Error::DumpInterrupted(ATTEMPTS))
}

fn table_once(socket: &mut Socket, family: Family, name: &str) -> Result<Option<Dump>, Error> {
    let of_table = |kind| {
        let mut request = message(family, kind, 0);
        // NFTA_*_TABLE. Kernels before 6.4 do not filter chains.
        request.string(1, name);
        request
    };
    let table = match socket.ask(&of_table(GET_TABLE), |_, payload| Ok(Raw::read(payload, &[])?.kept)) {
        Err(error) if error.is(&[libc::ENOENT]) => return Ok(None),
        table => table?,
    };
    // NFTA_CHAIN_COUNTERS.
    let chains = socket.dump(&of_table(GET_CHAIN), |_, payload| {
        let raw = Raw::read(payload, &[8])?;
        Ok(raw.is_of(name).then(|| ChainDump { name: raw.string(3), raw: raw.kept }))
    })?;
    let rules = socket.dump(&of_table(GET_RULE), |_, payload| {
        let raw = Raw::read(payload, &[4])?;
        if !raw.is_of(name) {
            return Ok(None);
        }
        let expressions = without_counters(raw.get(4).unwrap_or_default())?;
        Ok(Some(RuleDump { chain: raw.string(2), raw: [raw.kept.as_slice(), &expressions].concat() }))
    })?;
    let mut sets = socket.dump(&of_table(GET_SET), |_, payload| {
        let raw = Raw::read(payload, &[])?;
        Ok(raw.is_of(name).then(|| SetDump { name: raw.string(2), raw: raw.kept, elements: Vec::new() }))
    })?;
    for set in &mut sets {
        let request = of_set(family, name, &set.name);
        set.elements = whole(|| socket.dump(&request, |_, payload| raw_elements(payload).map(Some)))?;
    }
    Ok(Some(Dump { table, chains, rules, sets }))
}

/// The attributes of a reply.
struct Raw<'a> {
    all: &'a [u8],
    /// All attributes but the omitted ones.
    kept: Vec<u8>,
}

impl<'a> Raw<'a> {
    /// Reads a reply's payload; the attributes of `omitted` types are not kept.
    fn read(payload: &'a [u8], omitted: &[u16]) -> Result<Self, Malformed> {
        split::<4>(payload)?;
        let all = payload.get(4..).unwrap_or_default();
        let mut kept = Message::new(0, 0, &[]);
        for attribute in attributes(all) {
            let attribute = attribute?;
            if !omitted.contains(&attribute.kind) {
                kept.attribute(attribute.raw_kind, attribute.payload);
            }
        }
        Ok(Self { all, kept: kept.body().to_vec() })
    }

    fn attribute(&self, kind: u16) -> Option<Attribute<'a>> {
        attributes(self.all).of_kind(kind).ok().flatten()
    }

    fn get(&self, kind: u16) -> Option<&'a [u8]> {
        self.attribute(kind).map(|attribute| attribute.payload)
    }

    fn string(&self, kind: u16) -> String {
        self.attribute(kind).map(|attribute| attribute.string()).unwrap_or_default()
    }

    /// Whether the object is of the table `name`: NFTA_*_TABLE.
    fn is_of(&self, name: &str) -> bool {
        self.string(1) == name
    }
}

/// NFTA_RULE_EXPRESSIONS without the data of those that count.
fn without_counters(expressions: &[u8]) -> Result<Vec<u8>, Malformed> {
    /// Expressions whose data are state: packets, bytes, tokens.
    const COUNTING: [&str; 5] = ["counter", "quota", "limit", "last", "connlimit"];
    /// NFTA_EXPR_NAME.
    const NAME: u16 = 1;
    let mut kept = Message::new(0, 0, &[]);
    for expression in attributes(expressions) {
        let expression = expression?;
        match expression.nested().of_kind(NAME).ok().flatten() {
            Some(name) if COUNTING.contains(&name.string().as_str()) => {
                kept.attribute(NAME, name.payload);
            }
            _ => {
                kept.attribute(expression.raw_kind, expression.payload);
            }
        }
    }
    Ok(kept.body().to_vec())
}

/// The attributes of each element of an NFT_MSG_NEWSETELEM, without those that are state.
pub(super) fn raw_elements(payload: &[u8]) -> Result<Vec<Vec<u8>>, Malformed> {
    /// NFTA_SET_ELEM_LIST_ELEMENTS.
    const ELEMENTS: u16 = 3;
    /// NFTA_SET_ELEM_EXPIRATION, _EXPR, _EXPRESSIONS.
    const STATE: [u16; 3] = [5, 7, 11];
    let mut elements = Vec::new();
    for list in split::<4>(payload)?.1 {
        let list = list?;
        for element in list.nested().filter(|_| list.kind == ELEMENTS) {
            let mut kept = Message::new(0, 0, &[]);
            for attribute in element?.nested() {
                let attribute = attribute?;
                if !STATE.contains(&attribute.kind) {
                    kept.attribute(attribute.raw_kind, attribute.payload);
                }
            }
            elements.push(kept.body().to_vec());
        }
    }
    Ok(elements)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_set_that_is_resized_during_a_dump_is_read_again() {
        let mut dumps = [vec![vec![1, 2], vec![2, 4]], vec![vec![4, 2], vec![1, 3]]].into_iter();
        assert_eq!(whole(|| Ok(dumps.next().unwrap())).unwrap(), [1, 2, 3, 4]);
        let error = whole(|| Ok(vec![vec![1], vec![1]])).unwrap_err();
        assert!(matches!(error, Error::DumpInterrupted(_)), "{error}");
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes: Vec<u8>) {
            let payload = [&[0; 4], bytes.as_slice()].concat();
            if let Ok(raw) = Raw::read(&payload, &[4]) {
                let _ = (raw.string(1), raw.get(4).map(without_counters));
            }
            let _ = (raw_elements(&payload), without_counters(&bytes));
        }
    }
}
