//! keepalived.conf of one virtual router. Pure.
//!
//! * One VRRP instance of version 3. Its adverts contain the constant anchor address only, since two nodes with different address
//!   lists refuse each other's adverts and both become MASTER. The VIPs, of both families, are in `virtual_ipaddress_excluded`.
//! * No statement is taken from a text that the configuration did not check, so a value cannot add statements.

use std::fmt::Write as _;
use std::path::Path;

use super::config::Router;
use super::run_dir::RunDir;

/// Name of the VRRP instance.
#[must_use]
pub fn instance(vrid: u8) -> String {
    format!("cgw_{vrid}")
}

/// Whether keepalived's configuration can contain the path.
#[must_use]
pub fn is_plain(path: &Path) -> bool {
    path.is_absolute()
        && path.to_str().is_some_and(|text| {
            text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+".contains(&byte))
        })
}

/// The text of keepalived.conf. `program` is this one, for the check script.
#[must_use]
pub fn render(router: &Router, program: &Path, run_dir: &RunDir) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut text, router, program, run_dir);
    text
}

fn write(out: &mut String, router: &Router, program: &Path, run_dir: &RunDir) -> std::fmt::Result {
    let Router { vrid, node, node_ip, interface, vip_interface, priority, .. } = router;
    let fifo = run_dir.fifo();
    let (program, run_dir, fifo) = (program.display(), run_dir.path().display(), fifo.display());
    let instance = instance(*vrid);
    let check = router.check_interval.as_secs();
    let centiseconds = router.advert_interval.as_millis() / 10;
    let (seconds, hundredths) = (centiseconds / 100, centiseconds % 100);
    writeln!(out, "# Written by cgw keeper; changes are overwritten.")?;
    writeln!(out, "global_defs {{")?;
    writeln!(out, "  router_id {node}")?;
    writeln!(out, "  vrrp_version 3")?;
    writeln!(out, "  script_user root")?;
    writeln!(out, "  enable_script_security")?;
    // Realtime scheduling once timers are late: a busy node then sends its adverts in time.
    writeln!(out, "  max_auto_priority 50")?;
    // Gratuitous ARP at once, after one second, and then every ten seconds: a switch may drop the first ones.
    writeln!(out, "  vrrp_garp_master_delay 1")?;
    writeln!(out, "  vrrp_garp_master_repeat 3")?;
    writeln!(out, "  vrrp_garp_master_refresh 10")?;
    writeln!(out, "  vrrp_notify_fifo {fifo}")?;
    writeln!(out, "}}")?;
    writeln!(out, "vrrp_script cgw_check {{")?;
    writeln!(out, "  script \"{program} keeper-check --run-dir {run_dir}\"")?;
    writeln!(out, "  interval {check}")?;
    writeln!(out, "  timeout {check}")?;
    writeln!(out, "  fall 2")?;
    writeln!(out, "  rise 1")?;
    writeln!(out, "}}")?;
    writeln!(out, "vrrp_instance {instance} {{")?;
    // Always BACKUP: MASTER here would take over from a MASTER that works.
    writeln!(out, "  state BACKUP")?;
    writeln!(out, "  interface {interface}")?;
    writeln!(out, "  virtual_router_id {vrid}")?;
    writeln!(out, "  priority {priority}")?;
    writeln!(out, "  advert_int {seconds}.{hundredths:02}")?;
    if !router.preempt {
        writeln!(out, "  nopreempt")?;
    }
    if !router.peers.is_empty() {
        writeln!(out, "  unicast_src_ip {node_ip}")?;
        writeln!(out, "  check_unicast_src")?;
        writeln!(out, "  unicast_peer {{")?;
        for peer in &router.peers {
            writeln!(out, "    {peer}")?;
        }
        writeln!(out, "  }}")?;
    }
    let anchor = router.anchor();
    writeln!(out, "  virtual_ipaddress {{")?;
    writeln!(out, "    {anchor}/{} dev lo", length(anchor.is_ipv4()))?;
    writeln!(out, "  }}")?;
    writeln!(out, "  virtual_ipaddress_excluded {{")?;
    for vip in router.vips.iter().flat_map(|range| range.iter()) {
        writeln!(out, "    {vip}/{} dev {vip_interface}", length(vip.address().is_ipv4()))?;
    }
    writeln!(out, "  }}")?;
    writeln!(out, "  track_script {{")?;
    writeln!(out, "    cgw_check")?;
    writeln!(out, "  }}")?;
    // keepalived tracks the interface of the adverts by itself, and refuses to be told so.
    if vip_interface != interface {
        writeln!(out, "  track_interface {{")?;
        writeln!(out, "    {vip_interface}")?;
        writeln!(out, "  }}")?;
    }
    writeln!(out, "}}")
}

/// Prefix length of a single address.
fn length(v4: bool) -> u8 {
    if v4 { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::config::File;

    fn rendered(text: &str) -> String {
        let file: File = common::config::parse(Path::new("f"), text).unwrap();
        let router = file.router("g1", "192.168.50.21".parse().unwrap()).unwrap();
        render(&router, Path::new("/usr/bin/cgw"), &RunDir::new("/run/cgw".into()))
    }

    #[test]
    fn two_nodes_differ_in_addresses_and_priority_only() {
        let text = rendered(
            "vrid: 51\ninterface: eth0\nvips: [192.168.50.201-192.168.50.202, 'fd00::201']\npeers: [192.168.50.21, 192.168.50.22]\n",
        );
        let expected = "\
vrrp_instance cgw_51 {
  state BACKUP
  interface eth0
  virtual_router_id 51
  priority 250
  advert_int 0.20
  nopreempt
  unicast_src_ip 192.168.50.21
  check_unicast_src
  unicast_peer {
    192.168.50.22
  }
  virtual_ipaddress {
    169.254.51.1/32 dev lo
  }
  virtual_ipaddress_excluded {
    192.168.50.201/32 dev eth0
    192.168.50.202/32 dev eth0
    fd00::201/128 dev eth0
  }
  track_script {
    cgw_check
  }
}
";
        assert!(text.ends_with(expected), "{text}");
        assert!(text.contains("script \"/usr/bin/cgw keeper-check --run-dir /run/cgw\"\n"));
        assert!(text.contains("vrrp_notify_fifo /run/cgw/notify.fifo\n"));
    }

    #[test]
    fn another_interface_of_the_vips_is_tracked() {
        let text = rendered(
            "vrid: 5\ninterface: eth0\nvipInterface: eth1\nvips: [10.0.0.1]\npeers: []\npreempt: true\nadvertInterval: 1s\n",
        );
        assert!(text.contains("  track_interface {\n    eth1\n  }\n") && text.contains("/32 dev eth1\n"));
        assert!(!text.contains("nopreempt") && !text.contains("unicast"), "{text}");
        assert!(text.contains("advert_int 1.00\n"));
    }

    #[test]
    fn only_plain_paths_are_taken() {
        for (path, plain) in
            [("/run/cgw-1/x", true), ("run", false), ("/a b", false), ("/a\"", false), ("/$A", false)]
        {
            assert_eq!(is_plain(Path::new(path)), plain, "{path}");
        }
    }
}
