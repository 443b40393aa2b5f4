//! Opens the driver that the command line names.

use super::{
    args::{Args, DriverName},
    driver::{Driver, Error},
};

/// Opens the driver. It reads and writes nothing yet.
///
/// # Errors
/// The node cannot run the driver.
pub fn open(args: &Args) -> Result<Box<dyn Driver>, Error> {
    match args.own.driver {
        // vxlan::Vxlan::new(vxlan::Config::new(&args.vxlan))
        DriverName::Vxlan => Err(missing("vxlan")),
        // ovs::Ovs::new(ovs::Config::new(&args.ovs))
        DriverName::Ovs => Err(missing("ovs")),
    }
}

fn missing(driver: &str) -> Error {
    Error {
        operation: format!("opening driver {driver}"),
        cause: "this program was built without it".to_owned(),
        is_permanent: true,
    }
}
