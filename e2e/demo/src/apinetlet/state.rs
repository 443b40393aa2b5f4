//! The objects of both clusters, side by side.

use anyhow::Result;
use apinetlet::api::network_policy::{NetworkPolicy, NetworkPolicyRule, SourceNetworkPolicy};
use apinetlet::api::{ApiNetKind, SourceKind, apinet, source};
use apinetlet::names::Flavor;
use apinetlet::provider_id::{InterfaceId, NetworkId};
use kube::ResourceExt as _;
use kube::api::ListParams;

use super::Demo;

/// Source object, what was written back to it, apinet object, its state.
type Row = [String; 4];

/// A UID is longer than a column; its beginning distinguishes the few objects of a demo.
const SHOWN: usize = 8;

impl Demo<'_> {
    /// Prints a line for each source object and its counterpart.
    pub(super) async fn show_both(&self) -> Result<()> {
        self.screen.command(&format!("kubectl get net,vip,ngw,lb,netpol,nic -n {}", self.source));
        self.screen.command(&format!("kubectl get net,ip,ngw,lb,lbrt,netpolrule,nic -n {}", self.apinet));
        let rows = [
            self.pairs("net", network, "net", uid, apinet_network).await?,
            self.pairs("vip", virtual_ip, "ip", uid, ip).await?,
            self.pairs("ngw", nat_gateway, "ngw", uid, apinet_nat_gateway).await?,
            self.pairs("lb", load_balancer, "lb", uid, apinet_load_balancer).await?,
            self.pairs("lb", |_: &source::LoadBalancer| String::new(), "lbrt", uid, routing).await?,
            self.pairs("netpol", |_: &SourceNetworkPolicy| String::new(), "netpolrule", uid, rule).await?,
            self.pairs("nic", interface, "nic", provider, apinet_interface).await?,
        ];
        self.screen.table(["source", "written back", "apinet", "its state"], &rows.concat());
        Ok(())
    }

    async fn pairs<S: SourceKind, A: ApiNetKind>(
        &self,
        kind: &str,
        written_back: impl Fn(&S) -> String,
        apinet_kind: &str,
        counterpart: impl Fn(&S) -> String,
        state: impl Fn(&A) -> String,
    ) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for source in self.pool.source::<S>().list(&ListParams::default()).await?.items {
            let name = counterpart(&source);
            let counterpart = match name.as_str() {
                "" => None,
                name => self.pool.apinet::<A>().get_opt(name).await?,
            };
            let is_uid = source.uid().is_some_and(|uid| uid == name);
            let shown: String = if is_uid { name.chars().take(SHOWN).collect() } else { name };
            rows.push([
                format!("{kind}/{}", source.name_any()),
                written_back(&source),
                counterpart.as_ref().map(|_| format!("{apinet_kind}/{shown}")).unwrap_or_default(),
                counterpart.as_ref().map(&state).unwrap_or_default(),
            ]);
        }
        Ok(rows)
    }

    /// Prints what `kubectl get` prints where there is nothing.
    pub(super) fn show_empty(&self) {
        for namespace in [&self.source, &self.apinet] {
            self.screen.command(&format!("kubectl get net,lb,ngw,nic -n {namespace}"));
            self.screen.output(&format!("No resources found in {namespace} namespace."));
        }
    }

    /// The number of source objects.
    pub(super) async fn source_objects(&self) -> Result<usize> {
        Ok(self.count_source::<source::Network>().await?
            + self.count_source::<source::NetworkInterface>().await?
            + self.count_source::<source::VirtualIp>().await?
            + self.count_source::<source::LoadBalancer>().await?
            + self.count_source::<source::LoadBalancerRouting>().await?
            + self.count_source::<source::NatGateway>().await?
            + self.count_source::<SourceNetworkPolicy>().await?)
    }

    /// The number of apinet objects.
    pub(super) async fn apinet_objects(&self) -> Result<usize> {
        Ok(self.count_apinet::<apinet::Network>().await?
            + self.count_apinet::<apinet::NetworkInterface>().await?
            + self.count_apinet::<apinet::Ip>().await?
            + self.count_apinet::<apinet::LoadBalancer>().await?
            + self.count_apinet::<apinet::LoadBalancerRouting>().await?
            + self.count_apinet::<apinet::NatGateway>().await?
            + self.count_apinet::<apinet::NatGatewayAutoscaler>().await?
            + self.count_apinet::<NetworkPolicy>().await?
            + self.count_apinet::<NetworkPolicyRule>().await?)
    }

    async fn count_source<K: SourceKind>(&self) -> Result<usize> {
        Ok(self.pool.source::<K>().list(&ListParams::default()).await?.items.len())
    }

    async fn count_apinet<K: ApiNetKind>(&self) -> Result<usize> {
        Ok(self.pool.apinet::<K>().list(&ListParams::default()).await?.items.len())
    }
}

fn uid<K: SourceKind>(object: &K) -> String {
    object.uid().unwrap_or_default()
}

fn provider(interface: &source::NetworkInterface) -> String {
    InterfaceId::parse(Flavor::Ironcore, &interface.spec.provider_id)
        .map(|id| id.name.to_owned())
        .unwrap_or_default()
}

fn network(network: &source::Network) -> String {
    let id = NetworkId::parse(Flavor::Ironcore, &network.spec.provider_id).map(|id| id.id);
    format!("{} ID {}", network.status.state, id.unwrap_or_default())
}

fn apinet_network(network: &apinet::Network) -> String {
    format!("ID {}", network.spec.id)
}

fn virtual_ip(virtual_ip: &source::VirtualIp) -> String {
    virtual_ip.status.ip.clone().unwrap_or_default()
}

fn ip(ip: &apinet::Ip) -> String {
    ip.spec.ip.clone().unwrap_or_default()
}

fn nat_gateway(gateway: &source::NatGateway) -> String {
    gateway.status.ips.join(" ")
}

fn apinet_nat_gateway(gateway: &apinet::NatGateway) -> String {
    joined(gateway.spec.ips.iter().filter_map(|one| one.ip.as_deref()))
}

fn load_balancer(balancer: &source::LoadBalancer) -> String {
    balancer.status.ips.join(" ")
}

fn apinet_load_balancer(balancer: &apinet::LoadBalancer) -> String {
    joined(balancer.spec.ips.iter().filter_map(|one| one.ip.as_deref()))
}

fn routing(routing: &apinet::LoadBalancerRouting) -> String {
    let targets = joined(routing.destinations.iter().map(|one| one.ip.as_str()));
    if targets.is_empty() { "no targets".to_owned() } else { format!("to {targets}") }
}

fn rule(rule: &NetworkPolicyRule) -> String {
    let peers = rule.ingress.iter().flat_map(|one| &one.ips).filter_map(|one| one.prefix.as_deref());
    let peers = peers.map(|prefix| prefix.trim_end_matches("/32"));
    let (peers, targets) = (joined(peers), joined(rule.targets.iter().map(|one| one.ip.as_str())));
    if targets.is_empty() { "no targets".to_owned() } else { format!("{peers} to {targets}") }
}

fn interface(interface: &source::NetworkInterface) -> String {
    let status = &interface.status;
    let addresses = status.ips.iter().chain(&status.virtual_ip).map(String::as_str);
    format!("{} {}", status.state, joined(addresses))
}

fn apinet_interface(interface: &apinet::NetworkInterface) -> String {
    let public = joined(interface.spec.public_ips.iter().filter_map(|one| one.ip.as_deref()));
    let nat = if interface.spec.nat_gateways.is_empty() { "" } else { "NAT" };
    format!("{} {public}{nat}", interface.status.state)
}

fn joined<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.collect::<Vec<_>>().join(" ")
}
