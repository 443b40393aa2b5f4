//! A simulated EC2 with six calls, as strict as the real one: unlike in moto, private addresses are unique in a subnet, and an Elastic IP is
//! associated with one.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

/// A network interface.
pub struct Interface {
    pub subnet: &'static str,
    /// The first is primary.
    pub addresses: Vec<Ipv4Addr>,
}

/// An Elastic IP.
pub struct Elastic {
    pub allocation: String,
    /// ID, interface, private address.
    pub association: Option<(String, String, Ipv4Addr)>,
}

/// One account in one region.
#[derive(Default)]
pub struct Ec2 {
    pub subnets: BTreeMap<&'static str, Ipv4Net>,
    pub interfaces: BTreeMap<String, Interface>,
    pub elastics: BTreeMap<Ipv4Addr, Elastic>,
    /// Maximum number of addresses of an interface.
    pub limit: usize,
    pub associations: u32,
    /// The instances of interfaces, if the test sets them.
    pub instances: BTreeMap<String, &'static str>,
    /// Number of lists that do not contain the newest address yet.
    pub lag: u32,
    /// Whether an address that the interface already has is refused.
    pub refuses_repeated: bool,
}

type Form = BTreeMap<String, String>;
type Refusal = (u16, &'static str, String);

fn refuse<T>(code: &'static str, message: impl Into<String>) -> Result<T, Refusal> {
    Err((if code == "UnauthorizedOperation" { 403 } else { 400 }, code, message.into()))
}

impl Ec2 {
    /// Handles a form. Returns status and document.
    pub fn respond(&mut self, form: &Form) -> (u16, String) {
        let action = form.get("Action").cloned().unwrap_or_default();
        match self.call(&action, form) {
            Ok(inner) => (
                200,
                format!(
                    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{action}Response \
                     xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\">\n    <requestId>r-1</requestId>\n    {inner}\n</{action}Response>"
                ),
            ),
            Err((status, code, message)) => (status, error(code, &message)),
        }
    }

    fn call(&mut self, action: &str, form: &Form) -> Result<String, Refusal> {
        if form.get("Version").map(String::as_str) != Some("2016-11-15") {
            return refuse("NoSuchVersion", "Version");
        }
        let allowed: &[&str] = match action {
            "DescribeAddresses" => &["PublicIp.1"],
            "DescribeNetworkInterfaces" => {
                &["NetworkInterfaceId.1", "Filter.1.Name", "Filter.1.Value.1", "MaxResults", "NextToken"]
            }
            "AssignPrivateIpAddresses" => &["NetworkInterfaceId", "PrivateIpAddress.1"],
            "UnassignPrivateIpAddresses" => &["NetworkInterfaceId", "PrivateIpAddress.1"],
            "AssociateAddress" => {
                &["AllocationId", "NetworkInterfaceId", "PrivateIpAddress", "AllowReassociation"]
            }
            "DisassociateAddress" => &["AssociationId"],
            other => panic!("unexpected action {other}"),
        };
        if let Some(unknown) = form
            .keys()
            .find(|key| !["Action", "Version"].contains(&key.as_str()) && !allowed.contains(&key.as_str()))
        {
            return refuse("UnknownParameter", unknown.clone());
        }
        match action {
            "DescribeAddresses" => self.addresses(form),
            "DescribeNetworkInterfaces" => self.describe(form),
            "AssignPrivateIpAddresses" => self.assign(form),
            "UnassignPrivateIpAddresses" => self.unassign(form),
            "AssociateAddress" => self.associate(form),
            _ => self.disassociate(form),
        }
    }

    fn addresses(&self, form: &Form) -> Result<String, Refusal> {
        let asked: Option<Ipv4Addr> = form.get("PublicIp.1").map(|text| text.parse().unwrap());
        if let Some(asked) = asked
            && !self.elastics.contains_key(&asked)
        {
            return refuse("InvalidAddress.NotFound", format!("Address '{asked}' not found."));
        }
        let items = self.elastics.iter().filter(|(public, _)| asked.is_none_or(|asked| asked == **public));
        let items = items.map(|(public, elastic)| {
            let association = match &elastic.association {
                None => String::new(),
                Some((id, interface, private)) => format!(
                    "<associationId>{id}</associationId><networkInterfaceId>{interface}</networkInterfaceId>{}\
                     <networkInterfaceOwnerId>1</networkInterfaceOwnerId><privateIpAddress>{private}</privateIpAddress>",
                    self.instances
                        .get(interface)
                        .map(|id| format!("<instanceId>{id}</instanceId>"))
                        .unwrap_or_default()
                ),
            };
            format!(
                "<item><publicIp>{public}</publicIp><allocationId>{}</allocationId><domain>vpc</domain>{association}</item>",
                elastic.allocation
            )
        });
        Ok(format!("<addressesSet>{}</addressesSet>", items.collect::<String>()))
    }

    fn describe(&mut self, form: &Form) -> Result<String, Refusal> {
        let mut behind = 0;
        if let Some(id) = form.get("NetworkInterfaceId.1") {
            self.interface(id)?;
            behind = usize::from(self.lag > 0);
            self.lag = self.lag.saturating_sub(1);
        }
        let subnet = form.get("Filter.1.Name").map(|name| {
            assert_eq!(name, "subnet-id");
            form["Filter.1.Value.1"].as_str()
        });
        let all: Vec<_> = self
            .interfaces
            .iter()
            .filter(|(id, _)| form.get("NetworkInterfaceId.1").is_none_or(|asked| asked == *id))
            .filter(|(_, interface)| subnet.is_none_or(|subnet| subnet == interface.subnet))
            .collect();
        // Fewer than MaxResults, as in the real EC2.
        let start: usize = form.get("NextToken").map_or(0, |token| token.parse().unwrap());
        let page = if subnet.is_some() { 2 } else { all.len() };
        let items = all.iter().skip(start).take(page).map(|(id, interface)| {
            // Its primary address is as old as the interface itself.
            let shown = (interface.addresses.len() - behind).max(1);
            let addresses = interface.addresses.iter().take(shown).enumerate().map(|(n, address)| {
                let public = self.elastics.iter().find(|(_, elastic)| {
                    elastic.association.as_ref().is_some_and(|(_, on, private)| on == *id && private == address)
                });
                let association = public.map_or_else(String::new, |(public, _)| {
                    format!("<association><publicIp>{public}</publicIp><ipOwnerId>1</ipOwnerId></association>")
                });
                format!(
                    "<item><privateIpAddress>{address}</privateIpAddress><primary>{}</primary>{association}</item>",
                    n == 0
                )
            });
            format!(
                "<item><networkInterfaceId>{id}</networkInterfaceId><subnetId>{}</subnetId><privateIpAddressesSet>{}\
                 </privateIpAddressesSet></item>",
                interface.subnet,
                addresses.collect::<String>()
            )
        });
        let items: String = items.collect();
        let next = start + page;
        let token = if next < all.len() { format!("<nextToken>{next}</nextToken>") } else { String::new() };
        Ok(format!("<networkInterfaceSet>{items}</networkInterfaceSet>{token}"))
    }

    fn assign(&mut self, form: &Form) -> Result<String, Refusal> {
        let (id, address) =
            (&form["NetworkInterfaceId"], form["PrivateIpAddress.1"].parse::<Ipv4Addr>().unwrap());
        let (subnet, limit) = (self.interface(id)?.subnet, self.limit);
        let block = self.subnets[subnet];
        let kept =
            u32::from(address).wrapping_sub(u32::from(block.network())) < 4 || address == block.broadcast();
        if !block.contains(&address) || kept {
            return refuse(
                "InvalidParameterValue",
                format!("Address {address} is reserved or not in the subnet's block"),
            );
        }
        let holder = self
            .interfaces
            .iter()
            .find(|(_, other)| other.subnet == subnet && other.addresses.contains(&address))
            .map(|(holder, _)| holder.clone());
        match holder {
            Some(holder) if holder != *id => {
                return refuse(
                    "InvalidParameterValue",
                    format!("[{address}] assigned, but move is not allowed."),
                );
            }
            Some(_) if self.refuses_repeated => {
                return refuse("InvalidParameterValue", format!("[{address}] is assigned already"));
            }
            Some(_) => {}
            None => {
                let interface = self.interfaces.get_mut(id).unwrap();
                if interface.addresses.len() >= limit {
                    return refuse(
                        "PrivateIpAddressLimitExceeded",
                        format!("Number of private addresses will exceed limit of {limit}."),
                    );
                }
                interface.addresses.push(address);
            }
        }
        Ok(format!(
            "<networkInterfaceId>{id}</networkInterfaceId><assignedPrivateIpAddressesSet><item><privateIpAddress>{address}\
             </privateIpAddress></item></assignedPrivateIpAddressesSet><return>true</return>"
        ))
    }

    fn unassign(&mut self, form: &Form) -> Result<String, Refusal> {
        let (id, address) =
            (form["NetworkInterfaceId"].clone(), form["PrivateIpAddress.1"].parse::<Ipv4Addr>().unwrap());
        self.interface(&id)?;
        let interface = self.interfaces.get_mut(&id).unwrap();
        match interface.addresses.iter().position(|held| *held == address) {
            None => refuse(
                "InvalidParameterValue",
                format!("Some of the specified addresses are not assigned to interface {id}"),
            ),
            Some(0) => refuse("InvalidParameterValue", "The primary address cannot be unassigned"),
            Some(at) => {
                interface.addresses.remove(at);
                for elastic in self.elastics.values_mut() {
                    elastic.association.take_if(|(_, on, private)| *on == id && *private == address);
                }
                Ok("<return>true</return>".into())
            }
        }
    }

    fn associate(&mut self, form: &Form) -> Result<String, Refusal> {
        let (id, private) =
            (form["NetworkInterfaceId"].clone(), form["PrivateIpAddress"].parse::<Ipv4Addr>().unwrap());
        if !self.interface(&id)?.addresses.contains(&private) {
            return refuse("InvalidParameterValue", format!("{private} is not assigned to {id}"));
        }
        self.associations += 1;
        let association = format!("eipassoc-{:08x}", self.associations);
        let Some(elastic) =
            self.elastics.values_mut().find(|elastic| elastic.allocation == form["AllocationId"])
        else {
            return refuse("InvalidAllocationID.NotFound", form["AllocationId"].clone());
        };
        if elastic.association.is_some() && form["AllowReassociation"] != "true" {
            return refuse("Resource.AlreadyAssociated", "resource is already associated");
        }
        elastic.association = Some((association.clone(), id, private));
        Ok(format!("<return>true</return><associationId>{association}</associationId>"))
    }

    fn disassociate(&mut self, form: &Form) -> Result<String, Refusal> {
        let asked = &form["AssociationId"];
        let found = self
            .elastics
            .values_mut()
            .find(|elastic| elastic.association.as_ref().is_some_and(|(id, ..)| id == asked));
        match found {
            None => refuse(
                "InvalidAssociationID.NotFound",
                format!("The association ID '{asked}' does not exist"),
            ),
            Some(elastic) => {
                elastic.association = None;
                Ok("<return>true</return>".into())
            }
        }
    }

    fn interface(&self, id: &str) -> Result<&Interface, Refusal> {
        match self.interfaces.get(id) {
            Some(interface) => Ok(interface),
            None => refuse(
                "InvalidNetworkInterfaceID.NotFound",
                format!("The networkInterface ID '{id}' does not exist"),
            ),
        }
    }
}

/// EC2's error document.
pub fn error(code: &str, message: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message>\
         </Error></Errors><RequestID>r-err</RequestID></Response>"
    )
}
