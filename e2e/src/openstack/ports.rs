//! Thousands of ports as rows of Neutron's database, because a thousand API calls would take minutes.

use anyhow::{Result, ensure};

use super::OpenStack;
use super::volumes::ensure_id;

/// Neutron's further tables with a row for each port.
const RELATED_TABLES: [&str; 3] = ["ml2_port_bindings", "securitygroupportbindings", "portsecuritybindings"];

impl OpenStack {
    /// A copy of a port for each of these addresses, each of another server. Neutron's API shows them like
    /// other ports.
    ///
    /// # Errors
    /// There is no such port, or an address is none of IPv4.
    pub fn copy_port(&self, id: &str, addresses: &[std::net::Ipv4Addr]) -> Result<()> {
        ensure_id(id)?;
        let places = addresses.iter().enumerate();
        let values: Vec<String> =
            places.map(|(place, address)| format!("({place}, uuid(), '{address}')")).collect();
        let mut sql = format!(
            "use neutron;
             create temporary table copy (place int primary key, new_id varchar(36), address varchar(64));
             insert into copy values {};
             insert into standardattributes (resource_type, created_at, updated_at, revision_number)
               select 'ports', now(), now(), 1 from copy order by place;
             set @first = last_insert_id();
             create temporary table row_ports as
               select ports.*, copy.place, copy.new_id from ports join copy where ports.id = '{id}';
             update row_ports set id = new_id, standard_attr_id = @first + place, device_id = uuid(),
               mac_address = concat('fa:16:3f:00:', lpad(hex(place div 256), 2, '0'), ':', lpad(hex(place mod 256), 2, '0'));
             alter table row_ports drop column place, drop column new_id;
             insert into ports select * from row_ports;
             insert into ipallocations (port_id, ip_address, subnet_id, network_id)
               select copy.new_id, copy.address, origin.subnet_id, origin.network_id from copy
               join ipallocations origin where origin.port_id = '{id}';",
            values.join(",")
        );
        for table in RELATED_TABLES {
            sql += &format!(
                "create temporary table row_{table} as
                   select {table}.*, copy.new_id from {table} join copy where {table}.port_id = '{id}';
                 update row_{table} set port_id = new_id;
                 alter table row_{table} drop column new_id;
                 insert into {table} select * from row_{table};"
            );
        }
        let made =
            self.0.site.sql(&(sql + "select count(*) from ports join copy on ports.id = copy.new_id"))?;
        ensure!(made.trim() == addresses.len().to_string(), "{} copies of port {id}", made.trim());
        Ok(())
    }
}
