//! The state that a script could change in a node, for comparison.

use std::collections::BTreeSet;

use super::Node;

/// Each line is prefixed with its section. Counters and comments are left out, and tables of iptables without a rule of
/// any kind are equal to no table, because listing a table creates it. One program edits all lines: snapshots would start a third of all
/// processes of the integration tests.
pub(crate) const TAKE: &str = r#"
section() { printf '\036%s\n' "$1"; }
{
  section link; ip -d -o link
  section address; ip -o addr
  section route; ip -4 route show table all
  section route6; ip -6 route show table all 2>/dev/null
  section rule; ip -4 rule
  section rule6; ip -6 rule 2>/dev/null
  for kind in nft legacy; do
    for family in iptables ip6tables; do
      section $family-$kind
      if command -v xtables-$kind-multi >/dev/null; then
        xtables-$kind-multi $family-save 2>/dev/null
      else
        echo "xtables-$kind-multi is not installed"
      fi
    done
  done
  cd /proc/sys/net/ipv4
  section sysctl; grep -rs '' ip_forward conf
  section netplan
  for file in /etc/netplan/* /run/netplan/*; do
    if [ -f "$file" ]; then echo "$(stat -c %a "$file") $file $(tr '\n' '~' <"$file")"; fi
  done
} | awk '
  /^\036/ { section = substr($0, 2); table = ""; next }
  section ~ /^(link|address)$/ { sub(/^[0-9]+: /, "") }
  section == "link" { sub(/@[^:]*:/, ":") }
  section == "address" { sub(/ valid_lft.*/, "") }
  section ~ /^ip6?tables-/ {
    if (/^#|^COMMIT|^:[A-Z]+ ACCEPT/) next
    if (/^\*/) { table = substr($0, 2) " "; next }
    sub(/ ?\[[0-9]+:[0-9]+\]/, "")
    $0 = table $0
  }
  { print section ": " $0 }'
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
