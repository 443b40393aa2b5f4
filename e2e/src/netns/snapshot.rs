//! The state that a script could change in a node, for comparison.

use std::collections::BTreeSet;

use super::Node;

/// Each line is prefixed with its section. Counters and comments are left out, and tables of iptables without a rule of
/// any kind are equal to no table, because listing a table creates it.
pub(crate) const TAKE: &str = r#"
section() { sed "s|^|$1: |"; }
ip -d -o link | sed -E 's/^[0-9]+: //; s/@[^:]*:/:/' | section link
ip -o addr | sed -E 's/^[0-9]+: //; s/ valid_lft.*//' | section address
ip -4 route show table all | section route
ip -6 route show table all 2>/dev/null | section route6
ip -4 rule | section rule
ip -6 rule 2>/dev/null | section rule6
for kind in nft legacy; do
  for family in iptables ip6tables; do
    if command -v xtables-$kind-multi >/dev/null; then
      xtables-$kind-multi $family-save 2>/dev/null |
        sed -E '/^#|^COMMIT|^:[A-Z]+ ACCEPT/d; s/ ?\[[0-9]+:[0-9]+\]//; /^\*/{h;d}; G; s/(.*)\n\*(.*)/\2 \1/' |
        section $family-$kind
    else
      echo "xtables-$kind-multi is not installed" | section $family-$kind
    fi
  done
done
cd /proc/sys/net/ipv4
grep -rs '' ip_forward conf | section sysctl
for file in /etc/netplan/* /run/netplan/*; do
  if [ -f "$file" ]; then echo "$(stat -c %a "$file") $file $(tr '\n' '~' <"$file")" | section netplan; fi
done
"#;

/// Links, addresses, routes, rules, iptables of both kinds, switches and netplan's files of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    lines: BTreeSet<String>,
}

impl Snapshot {
    /// From what [`TAKE`] prints.
    pub(crate) fn read(text: &str) -> Self {
        Self { lines: text.lines().map(|line| line.trim_end().to_owned()).collect() }
    }

    /// The difference: `- ` lines that only `self` has, then `+ ` lines that only `after` has.
    pub fn changes(&self, after: &Snapshot) -> Vec<String> {
        let gone = self.lines.difference(&after.lines).map(|line| format!("- {line}"));
        let new = after.lines.difference(&self.lines).map(|line| format!("+ {line}"));
        gone.chain(new).collect()
    }

    /// The lines of a section (`link address route rule iptables-nft iptables-legacy sysctl netplan`), without its name.
    pub fn section<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let prefix = format!("{name}: ");
        self.lines.iter().filter_map(move |line| line.strip_prefix(&prefix))
    }
}

impl Node {
    /// The current state.
    ///
    /// # Errors
    /// When a tool fails.
    pub fn snapshot(&self) -> anyhow::Result<Snapshot> {
        Ok(Snapshot::read(&self.sh(TAKE)?))
    }
}
