//! The tables of openshift-sdn 3.11 and 4.10 with the plugin ovs-multitenant, as its ovscontroller.go writes them.

use cgw_controller::agent::ovs::profile::{Profile, V3_7};

use super::{CLUSTER, EXT_2, Lab, Member, Pod, SERVICES, VNID_A, VNID_B, VNID_C, pod_mac};

const VNID_OF_TUNNEL: &str = "move:NXM_NX_TUN_ID[0..31]->NXM_NX_REG0[]";

/// The flows of a node.
pub fn base(profile: &Profile, lab: &Lab, node: &Member) -> Vec<String> {
    let mut flows = arrival(node);
    let (gateway, subnet) = (node.gateway(), format!("{}.0/23", node.subnet));
    let enp = format!("priority=10,ip,reg0={VNID_A:#x},nw_dst={EXT_2},actions=drop");
    // EgressNetworkPolicy of namespace A, on every node. The gateway of 3.11 applies it only if the VNID comes with the packet.
    let routing = if *profile == V3_7 {
        flows.extend([
            "table=21,priority=0,actions=goto_table:30".into(),
            "table=100,priority=300,udp,tp_dst=4789,actions=drop".into(),
            "table=100,priority=0,actions=goto_table:101".into(),
            format!("table=101,{enp}"),
            "table=101,priority=0,actions=output:2".into(),
            "table=253,actions=note:01.07.00.00.00.00".into(),
        ]);
        30
    } else {
        flows.extend([
            "table=0,priority=1000,ip,ct_state=-trk,actions=ct(table=0)".into(),
            "table=27,priority=500,actions=goto_table:30".into(),
            "table=30,priority=0,actions=goto_table:31".into(),
            format!("table=31,priority=250,ip,nw_dst={subnet},ct_state=+rpl,actions=ct(nat,table=70)"),
            "table=99,priority=0,actions=goto_table:100".into(),
            format!("table=100,{enp}"),
            "table=100,priority=0,actions=goto_table:101".into(),
            "table=101,priority=150,ct_state=+rpl,actions=output:2".into(),
            "table=101,priority=0,actions=output:2".into(),
            "table=253,actions=note:01.0d.00.00.00.00".into(),
        ]);
        31
    };
    let outside = if *profile == V3_7 { 100 } else { 99 };
    flows.extend(
        [
            format!("priority=300,arp,nw_dst={gateway},actions=output:2"),
            format!("priority=200,arp,nw_dst={subnet},actions=goto_table:40"),
            format!("priority=100,arp,nw_dst={CLUSTER},actions=goto_table:50"),
            format!("priority=300,ip,nw_dst={gateway},actions=output:2"),
            format!("priority=100,ip,nw_dst={SERVICES},actions=goto_table:60"),
            format!("priority=200,ip,nw_dst={subnet},actions=goto_table:70"),
            format!("priority=100,ip,nw_dst={CLUSTER},actions=goto_table:90"),
            "priority=50,in_port=1,ip,nw_dst=224.0.0.0/4,actions=goto_table:120".into(),
            "priority=25,ip,nw_dst=224.0.0.0/4,actions=goto_table:110".into(),
            format!("priority=0,ip,actions=goto_table:{outside}"),
            "priority=0,arp,actions=drop".into(),
        ]
        .map(|flow| format!("table={routing},{flow}")),
    );
    flows.extend([
        "table=60,priority=200,actions=output:2".into(),
        format!("table=80,priority=300,ip,nw_src={gateway},actions=output:NXM_NX_REG2[]"),
        "table=80,priority=200,reg0=0,actions=output:NXM_NX_REG2[]".into(),
        "table=80,priority=200,reg1=0,actions=output:NXM_NX_REG2[]".into(),
    ]);
    flows.extend(
        [10, 20, 25, 40, 50, 60, 70, 80, 90, 110, 120]
            .map(|table| format!("table={table},priority=0,actions=drop")),
    );
    flows.extend([VNID_A, VNID_B, VNID_C].map(|vnid| {
        format!("table=80,priority=100,reg0={vnid:#x},reg1={vnid:#x},actions=output:NXM_NX_REG2[]")
    }));
    for other in lab.nodes.values().filter(|other| other.name != node.name) {
        let (ip, subnet) = (other.ip, format!("{}.0/23", other.subnet));
        let send = format!("move:NXM_NX_REG0[]->NXM_NX_TUN_ID[0..31],set_field:{ip}->tun_dst,output:1");
        flows.push(format!("table=10,priority=100,tun_src={ip},actions=goto_table:30"));
        flows.push(format!("table=50,priority=100,arp,nw_dst={subnet},actions={send}"));
        flows.push(format!("table=90,priority=100,ip,nw_dst={subnet},actions={send}"));
    }
    let pods = lab.pods.values().filter(|pod| pod.node == node.name);
    flows.extend(pods.flat_map(|pod| of_pod(profile, pod)));
    flows
}

/// Table 0, which both releases have, and the flow against tunnels of pods.
fn arrival(node: &Member) -> Vec<String> {
    let (gateway, subnet) = (node.gateway(), format!("{}.0/23", node.subnet));
    let mut flows: Vec<String> = [
        format!("priority=200,in_port=1,arp,nw_src={CLUSTER},nw_dst={CLUSTER},actions={VNID_OF_TUNNEL},goto_table:10"),
        format!("priority=200,in_port=1,ip,nw_src={CLUSTER},actions={VNID_OF_TUNNEL},goto_table:10"),
        format!("priority=200,in_port=1,ip,nw_dst={CLUSTER},actions={VNID_OF_TUNNEL},goto_table:10"),
        "priority=150,in_port=1,actions=drop".into(),
        format!("priority=400,in_port=2,ip,nw_src={gateway},actions=goto_table:30"),
        format!("priority=300,in_port=2,ip,nw_src={subnet},nw_dst={CLUSTER},actions=goto_table:25"),
        "priority=250,in_port=2,ip,nw_dst=224.0.0.0/4,actions=drop".into(),
        format!("priority=200,in_port=2,arp,nw_src={gateway},nw_dst={CLUSTER},actions=goto_table:30"),
        "priority=200,in_port=2,ip,actions=goto_table:30".into(),
        "priority=150,in_port=2,actions=drop".into(),
        "priority=100,arp,actions=goto_table:20".into(),
        "priority=100,ip,actions=goto_table:20".into(),
        "priority=0,actions=drop".into(),
    ]
    .map(|flow| format!("table=0,{flow}"))
    .into();
    flows.push("table=20,priority=300,udp,tp_dst=4789,actions=drop".into());
    flows
}

/// The flows of a pod.
pub fn of_pod(profile: &Profile, pod: &Pod) -> Vec<String> {
    let (ip, port, vnid, mac) = (pod.ip, pod.port, pod.vnid, pod_mac(pod.ip));
    let load = format!("load:{vnid:#x}->NXM_NX_REG0[]");
    // ARP and Services of 4.10 do not have the table of egress policies.
    let (next, arp, service) = if *profile == V3_7 { (21, 21, 30) } else { (27, 30, 27) };
    vec![
        format!(
            "table=20,priority=100,in_port={port},arp,nw_src={ip},arp_sha={mac},actions={load},goto_table:{arp}"
        ),
        format!("table=20,priority=100,in_port={port},ip,nw_src={ip},actions={load},goto_table:{next}"),
        format!("table=25,priority=100,ip,nw_src={ip},actions={load},goto_table:{service}"),
        format!("table=40,priority=100,arp,nw_dst={ip},actions=output:{port}"),
        format!(
            "table=70,priority=100,ip,nw_dst={ip},actions=load:{vnid:#x}->NXM_NX_REG1[],load:{port:#x}->NXM_NX_REG2[],goto_table:80"
        ),
    ]
}
