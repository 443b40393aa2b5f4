//! Chains of iptables: the form in which `iptables-save` prints them, and the input of `iptables-restore --noflush`.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
};

/// Names of the driver's chains begin with this.
pub const PREFIX: &str = "CGW-";

/// A table of iptables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    /// Packets are dropped here before their address is translated.
    Mangle,
    /// Packets to the gateway itself.
    Filter,
    /// DNAT and SNAT.
    Nat,
}

impl Table {
    fn of_name(name: &str) -> Option<Table> {
        match name {
            "mangle" => Some(Table::Mangle),
            "filter" => Some(Table::Filter),
            "nat" => Some(Table::Nat),
            _ => None,
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Table::Mangle => "mangle",
            Table::Filter => "filter",
            Table::Nat => "nat",
        })
    }
}

/// A chain of a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chain {
    /// Its table. Tables are written in this order: the guards of mangle precede the translations of nat.
    pub table: Table,
    /// Its name.
    pub name: String,
}

impl Chain {
    /// A chain of the driver: the name follows [`PREFIX`].
    #[must_use]
    pub fn ours(table: Table, name: &str) -> Chain {
        Chain { table, name: format!("{PREFIX}{name}") }
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.table, self.name)
    }
}

/// Rules of the driver in all tables. A rule is the text that follows `-A <chain>` in the output of `iptables-save`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The driver's chains.
    pub chains: BTreeMap<Chain, Vec<String>>,
    /// Rules of other chains that jump to a chain of the driver, with their position, which begins with 1.
    pub jumps: BTreeMap<Chain, Vec<(usize, String)>>,
}

impl Rules {
    /// Appends a rule, and adds the chain if it is new.
    pub fn append(&mut self, chain: &Chain, rule: String) {
        self.chains.entry(chain.clone()).or_default().push(rule);
    }
}

/// The chains of the driver, and the jumps to them, in the output of `iptables-save`.
///
/// # Errors
/// The output has a form that `iptables-save` does not print.
pub fn parse_save(text: &str) -> Result<Rules, String> {
    let mut rules = Rules::default();
    let mut table = None;
    let mut positions: BTreeMap<String, usize> = BTreeMap::new();
    for line in text.lines() {
        let line = line.trim_end();
        if line.is_empty() || line.starts_with('#') || line == "COMMIT" {
            continue;
        }
        if let Some(name) = line.strip_prefix('*') {
            // Other tables (raw, security) have no chain of the driver.
            table = Some(Table::of_name(name));
            positions.clear();
            continue;
        }
        let table = table.ok_or_else(|| format!("the line {line:?} is in no table"))?;
        let Some(table) = table else { continue };
        if let Some(declaration) = line.strip_prefix(':') {
            let name = declaration.split(' ').next().unwrap_or_default();
            if name.starts_with(PREFIX) {
                rules.chains.entry(Chain { table, name: name.to_owned() }).or_default();
            }
        } else if let Some(rule) = line.strip_prefix("-A ") {
            let (name, rule) = rule.split_once(' ').unwrap_or((rule, ""));
            let position = positions.entry(name.to_owned()).or_default();
            *position += 1;
            let chain = Chain { table, name: name.to_owned() };
            if name.starts_with(PREFIX) {
                rules.append(&chain, rule.to_owned());
            } else if target(rule).is_some_and(|target| target.starts_with(PREFIX)) {
                rules.jumps.entry(chain).or_default().push((*position, rule.to_owned()));
            }
        } else {
            return Err(format!("the line {line:?} is no rule"));
        }
    }
    Ok(rules)
}

/// The target of a rule.
fn target(rule: &str) -> Option<&str> {
    let (_, target) = rule.rsplit_once("-j ").or_else(|| rule.rsplit_once("-g "))?;
    target.split(' ').next()
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Gives a chain of the driver these rules; adds it if it is absent.
    Replace(Chain, Vec<String>),
    /// Removes a rule from a foreign chain.
    DeleteJump(Chain, String),
    /// Inserts a rule at position 1 of a foreign chain.
    InsertJump(Chain, String),
    /// Removes a chain of the driver. No rule jumps to it any more.
    Remove(Chain),
}

impl Step {
    /// The chain that is changed.
    #[must_use]
    pub fn chain(&self) -> &Chain {
        match self {
            Step::Replace(chain, _)
            | Step::DeleteJump(chain, _)
            | Step::InsertJump(chain, _)
            | Step::Remove(chain) => chain,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Replace(chain, rules) => write!(f, "chain {chain}: {} rules", rules.len()),
            Step::DeleteJump(chain, rule) => write!(f, "chain {chain}: remove \"{rule}\""),
            Step::InsertJump(chain, rule) => write!(f, "chain {chain}: insert \"{rule}\" at position 1"),
            Step::Remove(chain) => write!(f, "chain {chain}: remove"),
        }
    }
}

/// Input of `iptables-restore --noflush`: one transaction for each table, in the order of the tables. Chains that are declared
/// are flushed, and other chains stay.
#[must_use]
pub fn render(steps: &[Step]) -> String {
    let mut text = String::new();
    for table in [Table::Mangle, Table::Filter, Table::Nat] {
        let steps: Vec<&Step> = steps.iter().filter(|step| step.chain().table == table).collect();
        if steps.is_empty() {
            continue;
        }
        let mut lines = vec![format!("*{table}")];
        // All chains are declared before the first rule, because a rule may jump to a later chain.
        for step in &steps {
            if let Step::Replace(chain, _) | Step::Remove(chain) = step {
                lines.push(format!(":{} - [0:0]", chain.name));
            }
        }
        for step in &steps {
            match step {
                Step::Replace(chain, rules) => {
                    lines.extend(rules.iter().map(|rule| format!("-A {} {rule}", chain.name)));
                }
                Step::DeleteJump(chain, rule) => lines.push(format!("-D {} {rule}", chain.name)),
                Step::InsertJump(chain, rule) => lines.push(format!("-I {} 1 {rule}", chain.name)),
                Step::Remove(_) => {}
            }
        }
        for step in &steps {
            if let Step::Remove(chain) = step {
                lines.push(format!("-X {}", chain.name));
            }
        }
        lines.push("COMMIT".into());
        for line in lines {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// iptables 1.8.9 (nf_tables) after kube-proxy inserted its own jumps.
    const SAVE: &str = include_str!("tests/save.txt");

    fn chain(table: Table, name: &str) -> Chain {
        Chain { table, name: name.into() }
    }

    #[test]
    fn own_chains_and_jumps_are_read() {
        let rules = parse_save(SAVE).unwrap();
        assert_eq!(
            rules.chains.keys().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "mangle CGW-GUARD",
                "filter CGW-INPUT",
                "nat CGW-MARK",
                "nat CGW-POSTROUTING",
                "nat CGW-PREROUTING",
                "nat CGW-SERVICES",
                "nat CGW-SNAT",
                "nat CGW-SVC-A",
            ]
        );
        assert_eq!(
            rules.chains[&chain(Table::Nat, "CGW-SERVICES")],
            [
                "-d 192.168.50.201/32 -p tcp -m tcp --dport 80 -m comment --comment \"ns-a/svc-a:http\" -j CGW-SVC-A",
                "-d 192.168.50.201/32 -p sctp -m sctp --dport 80 -m comment --comment \"ns-a/svc-a:http\" -j CGW-SVC-A",
            ]
        );
        assert!(rules.chains[&chain(Table::Nat, "CGW-SNAT")].is_empty());
        assert_eq!(
            rules.jumps,
            BTreeMap::from([
                (chain(Table::Mangle, "FORWARD"), vec![(1, "-i tun0 -j CGW-GUARD".to_owned())]),
                (chain(Table::Mangle, "POSTROUTING"), vec![(1, "! -o tun0 -j CGW-GUARD".to_owned())]),
                (chain(Table::Nat, "PREROUTING"), vec![(2, "-j CGW-PREROUTING".to_owned())]),
            ])
        );
    }

    #[test]
    fn text_that_is_no_dump_is_refused() {
        assert!(parse_save("-A INPUT -j DROP").is_err());
        assert!(parse_save("*nat\niptables-save: command failed").is_err());
        assert_eq!(parse_save("*raw\n:CGW-X - [0:0]\n-A CGW-X -j DROP\nCOMMIT\n").unwrap(), Rules::default());
    }

    #[test]
    fn transaction_is_rendered_by_table() {
        let steps = [
            Step::Replace(chain(Table::Nat, "CGW-A"), vec!["-j CGW-B".into()]),
            Step::Replace(chain(Table::Nat, "CGW-B"), vec!["-j ACCEPT".into()]),
            Step::DeleteJump(chain(Table::Nat, "PREROUTING"), "-j CGW-A".into()),
            Step::InsertJump(chain(Table::Nat, "PREROUTING"), "-j CGW-A".into()),
            Step::Remove(chain(Table::Nat, "CGW-OLD")),
            Step::InsertJump(chain(Table::Mangle, "FORWARD"), "-i tun0 -j CGW-F".into()),
        ];
        assert_eq!(
            render(&steps),
            "*mangle\n-I FORWARD 1 -i tun0 -j CGW-F\nCOMMIT\n*nat\n:CGW-A - [0:0]\n:CGW-B - [0:0]\n:CGW-OLD - [0:0]\n\
             -A CGW-A -j CGW-B\n-A CGW-B -j ACCEPT\n-D PREROUTING -j CGW-A\n-I PREROUTING 1 -j CGW-A\n-X CGW-OLD\nCOMMIT\n"
        );
        assert_eq!(render(&[]), "");
    }
}
