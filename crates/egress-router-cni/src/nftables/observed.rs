//! An existing table, decoded from the kernel's replies.

use common::netlink::message::{Attribute, Attributes, Malformed, split};

use super::comment;

/// NFT_MSG_NEWTABLE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// NFTA_TABLE_NAME.
    pub name: String,
    /// NFTA_TABLE_FLAGS: 1 is dormant.
    pub flags: u32,
}

/// NFT_MSG_NEWCHAIN.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain {
    /// NFTA_CHAIN_TABLE.
    pub table: String,
    /// NFTA_CHAIN_NAME.
    pub name: String,
    /// NFTA_CHAIN_HOOK: number and priority.
    pub hook: Option<(u32, i32)>,
    /// NFTA_CHAIN_TYPE.
    pub kind: Option<String>,
    /// NFTA_CHAIN_POLICY.
    pub policy: Option<u32>,
}

/// NFT_MSG_NEWSET.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set {
    /// NFTA_SET_TABLE.
    pub table: String,
    /// NFTA_SET_NAME.
    pub name: String,
    /// NFTA_SET_FLAGS.
    pub flags: u32,
    /// NFTA_SET_KEY_LEN.
    pub key_length: u32,
}

/// NFT_MSG_NEWRULE.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// NFTA_RULE_TABLE.
    pub table: String,
    /// NFTA_RULE_CHAIN.
    pub chain: String,
    /// The comment in NFTA_RULE_USERDATA, or empty.
    pub comment: String,
    /// NFTA_RULE_EXPRESSIONS.
    pub expressions: Vec<Expression>,
}

/// An expression of a rule: its name and its raw attributes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expression {
    /// NFTA_EXPR_NAME.
    pub name: String,
    /// NFTA_EXPR_DATA.
    pub data: Vec<u8>,
}

/// The attributes of an answer, behind its struct nfgenmsg.
fn attributes(payload: &[u8]) -> Result<Attributes<'_>, Malformed> {
    split::<4>(payload).map(|(_, attributes)| attributes)
}

impl Table {
    /// Reads an answer's payload.
    ///
    /// # Errors
    /// It is malformed.
    pub fn read(payload: &[u8]) -> Result<Self, Malformed> {
        let mut table = Self { name: String::new(), flags: 0 };
        for attribute in attributes(payload)? {
            let attribute = attribute?;
            match attribute.kind {
                1 => table.name = attribute.string(),
                2 => table.flags = attribute.be32()?,
                _ => {}
            }
        }
        Ok(table)
    }
}

impl Chain {
    /// Reads an answer's payload.
    ///
    /// # Errors
    /// It is malformed.
    pub fn read(payload: &[u8]) -> Result<Self, Malformed> {
        let mut chain = Self::default();
        for attribute in attributes(payload)? {
            let attribute = attribute?;
            match attribute.kind {
                1 => chain.table = attribute.string(),
                3 => chain.name = attribute.string(),
                4 => chain.hook = Some(hook(attribute)?),
                5 => chain.policy = Some(attribute.be32()?),
                7 => chain.kind = Some(attribute.string()),
                _ => {}
            }
        }
        Ok(chain)
    }
}

fn hook(attribute: Attribute<'_>) -> Result<(u32, i32), Malformed> {
    let (mut number, mut priority) = (0, 0);
    for attribute in attribute.nested() {
        let attribute = attribute?;
        match attribute.kind {
            1 => number = attribute.be32()?,
            2 => priority = attribute.be32()?.cast_signed(),
            _ => {}
        }
    }
    Ok((number, priority))
}

impl Set {
    /// Reads an answer's payload.
    ///
    /// # Errors
    /// It is malformed.
    pub fn read(payload: &[u8]) -> Result<Self, Malformed> {
        let mut set = Self::default();
        for attribute in attributes(payload)? {
            let attribute = attribute?;
            match attribute.kind {
                1 => set.table = attribute.string(),
                2 => set.name = attribute.string(),
                3 => set.flags = attribute.be32()?,
                5 => set.key_length = attribute.be32()?,
                _ => {}
            }
        }
        Ok(set)
    }
}

impl Rule {
    /// Reads an answer's payload.
    ///
    /// # Errors
    /// It is malformed.
    pub fn read(payload: &[u8]) -> Result<Self, Malformed> {
        let mut rule = Self::default();
        for attribute in attributes(payload)? {
            let attribute = attribute?;
            match attribute.kind {
                1 => rule.table = attribute.string(),
                2 => rule.chain = attribute.string(),
                4 => {
                    rule.expressions = attribute
                        .nested()
                        .map(|element| Expression::read(element?))
                        .collect::<Result<_, _>>()?;
                }
                7 => rule.comment = comment::decode(attribute.payload).unwrap_or_default(),
                _ => {}
            }
        }
        Ok(rule)
    }
}

impl Expression {
    /// Reads an NFTA_LIST_ELEM.
    ///
    /// # Errors
    /// It is malformed.
    pub fn read(element: Attribute<'_>) -> Result<Self, Malformed> {
        let mut expression = Self::default();
        for attribute in element.nested() {
            let attribute = attribute?;
            match attribute.kind {
                1 => expression.name = attribute.string(),
                2 => expression.data = attribute.payload.to_vec(),
                _ => {}
            }
        }
        Ok(expression)
    }
}

/// One of NFTA_SET_ELEM_LIST_ELEMENTS.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Element {
    /// NFTA_SET_ELEM_KEY.
    pub key: Vec<u8>,
    /// NFTA_SET_ELEM_FLAGS.
    pub flags: u32,
}

impl Element {
    /// It is a bound: the first value behind a range.
    #[must_use]
    pub fn end(&self) -> bool {
        self.flags & super::INTERVAL_END != 0
    }

    /// Reads the payload of an answer, which holds some of a set's elements.
    ///
    /// # Errors
    /// It is malformed.
    pub fn read_all(payload: &[u8]) -> Result<Vec<Self>, Malformed> {
        let mut elements = Vec::new();
        for attribute in attributes(payload)? {
            let attribute = attribute?;
            if attribute.kind == 3 {
                for element in attribute.nested() {
                    elements.push(Self::read(element?)?);
                }
            }
        }
        Ok(elements)
    }

    fn read(element: Attribute<'_>) -> Result<Self, Malformed> {
        let mut read = Self::default();
        for attribute in element.nested() {
            let attribute = attribute?;
            match attribute.kind {
                1 => {
                    let value = attribute.nested().next().ok_or(Malformed("an element of a set"))??;
                    read.key = value.payload.to_vec();
                }
                3 => read.flags = attribute.be32()?,
                _ => {}
            }
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nftables::difference::{Observed, differences};
    use crate::nftables::ruleset::{Hook, Kind};
    use crate::nftables::{Chain as Desired, Rule as Composed, Ruleset, Set as Listed};
    use proptest::prelude::*;

    /// A table with something of each kind.
    fn ruleset() -> Ruleset {
        let set = Listed::prefixes("some", false, &["10.0.0.0/8".parse().unwrap()]);
        let rule = Composed::new("in the allow-list").oifname("net1").daddr_in(&set).accept();
        let translate = Composed::new("").dnat("10.0.0.1".parse().unwrap(), Some(80));
        Ruleset {
            table: "t".into(),
            sets: vec![set],
            chains: vec![
                Desired::base("out", Kind::Filter, Hook::Output, -150, vec![rule]),
                Desired::inner("in", vec![translate]),
            ],
        }
    }

    /// Whatever `payload` is taken for.
    fn read(found: &mut Observed, payload: &[u8]) -> Result<(), Malformed> {
        found.table = Some(Table::read(payload)?);
        found.chains.push(Chain::read(payload)?);
        found.rules.push(Rule::read(payload)?);
        found.sets.push((Set::read(payload)?, Element::read_all(payload)?));
        Ok(())
    }

    #[test]
    fn sent_messages_are_decoded() {
        let ruleset = ruleset();
        let mut found = Observed::default();
        for (_, message) in ruleset.messages() {
            let payload = message.body();
            match message.kind() & 0xff {
                0 => found.table = Some(Table::read(payload).unwrap()),
                3 => found.chains.push(Chain::read(payload).unwrap()),
                6 => found.rules.push(Rule::read(payload).unwrap()),
                9 => found.sets.push((Set::read(payload).unwrap(), Vec::new())),
                12 => found.sets.last_mut().unwrap().1.extend(Element::read_all(payload).unwrap()),
                other => panic!("message {other}"),
            }
        }
        assert_eq!(differences(&ruleset, &found), Vec::<String>::new());
        found.rules[0].expressions.pop();
        assert_eq!(differences(&ruleset, &found), ["chain out: the rule \"in the allow-list\" was modified"]);
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(payload in proptest::collection::vec(any::<u8>(), 0..96)) {
            let mut found = Observed::default();
            let _ = read(&mut found, &payload);
            let _ = differences(&ruleset(), &found);
        }

        #[test]
        fn no_malformed_message_causes_a_panic(
            which in any::<prop::sample::Index>(),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let ruleset = ruleset();
            let messages = ruleset.messages();
            let mut payload = which.get(&messages).1.body().to_vec();
            for (place, byte) in changes {
                let place = place.index(payload.len());
                payload[place] = byte;
            }
            let mut found = Observed::default();
            let _ = read(&mut found, &payload);
            let _ = read(&mut found, &payload[..cut.index(payload.len())]);
            let _ = differences(&ruleset, &found);
        }
    }
}
