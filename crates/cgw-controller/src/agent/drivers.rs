//! Opens the driver that the command line names.

use super::{
    args::{Args, Dnat, DriverName, OvsArgs, OvsProfile, VxlanArgs},
    driver::{Driver, Error},
    ovs::{self, Ovs},
    vxlan::{self, Vxlan},
};

/// Opens the driver. It reads and writes nothing yet.
///
/// # Errors
/// The node cannot run the driver.
pub fn open(args: &Args) -> Result<Box<dyn Driver>, Error> {
    Ok(match args.own.driver {
        DriverName::Vxlan => Box::new(Vxlan::new(vxlan_config(&args.vxlan))?),
        DriverName::Ovs => Box::new(Ovs::new(ovs_config(&args.ovs))),
    })
}

fn vxlan_config(args: &VxlanArgs) -> vxlan::Config {
    vxlan::Config {
        port: args.port(),
        vni: args.id(),
        mark_mask: args.marks(),
        mtu: args.mtu.map(u32::from),
        ..vxlan::Config::default()
    }
}

fn ovs_config(args: &OvsArgs) -> ovs::Config {
    ovs::Config {
        profile: match args.profile() {
            OvsProfile::V3_7 => ovs::profile::V3_7,
            OvsProfile::V4_10 => ovs::profile::V4_10,
        },
        ports: match args.dnat() {
            Dnat::Own => ovs::plan::PortMode::Own,
            Dnat::KubeProxy => ovs::plan::PortMode::KubeProxy,
        },
        bridge: args.bridge().to_owned(),
        ..ovs::Config::default()
    }
}
