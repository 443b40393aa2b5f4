//! The decision table, row by row; then properties, and every history of two replicas.

mod model;
mod properties;
mod repairs;

use super::*;
use crate::api::TunMac;
use crate::api::service::Gateway;

pub(super) fn vip(text: &str) -> Vip {
    text.parse().unwrap()
}

pub(super) const VIP: &str = "192.168.50.201";
pub(super) const OTHER: &str = "192.168.50.202";

pub(super) fn gateway(last: u8) -> Gateway {
    Gateway {
        node_ip: format!("192.168.50.{last}").parse().unwrap(),
        tun_mac: TunMac::new([2, 0x63, 192, 168, 50, last]).unwrap(),
    }
}

pub(super) fn master(last: u8, epoch: u64) -> Master {
    Master { gateway: gateway(last), epoch: Epoch(epoch) }
}

pub(super) fn namespace(namespace: &str) -> Owner {
    Owner::Namespace { namespace: namespace.to_owned() }
}

pub(super) fn service(namespace: &str, service: &str) -> Owner {
    Owner::Service { namespace: namespace.to_owned(), service: service.to_owned() }
}

pub(super) fn record(owner: Owner, number: u32) -> Bind {
    Bind { v: 1, owner, tun_id: TunId::new(number).unwrap(), unbinding: false }
}

pub(super) fn tenant(namespace: &str, name: &str, port: u16) -> Tenant {
    Tenant {
        name: ObjectKey::new(namespace, name),
        uid: format!("uid-{name}"),
        version: "1".to_owned(),
        vip: None,
        carried: None,
        desired_tun_id: None,
        epoch: Epoch(0),
        ports: BTreeSet::from([Port { protocol: "TCP".to_owned(), port }]),
        publication: Publication::None,
        listed: Vec::new(),
    }
}

pub(super) fn carrying(mut tenant: Tenant, address: &str, number: u32, master: Option<Master>) -> Tenant {
    let (gateway, epoch) = master.map_or((None, Epoch(0)), |master| (Some(master.gateway), master.epoch));
    tenant.vip = Some(vip(address));
    tenant.desired_tun_id = None;
    tenant.epoch = epoch;
    let tun_id = TunId::new(number).unwrap();
    tenant.carried = Some(Carried { vip: vip(address), tun_id, gateway, epoch });
    tenant
}

/// The VIP is free; Services x/a (port 80), x/b (81), x/same (80) and y/c (80) exist; the gateway .21 is MASTER since 100.
pub(super) fn free() -> Snapshot {
    let services =
        [tenant("x", "a", 80), tenant("x", "b", 81), tenant("x", "same", 80), tenant("y", "c", 80)];
    Snapshot {
        vip: vip(VIP),
        binds: Arc::default(),
        is_served: true,
        has_namespace: true,
        services: services.into_iter().map(|tenant| (tenant.name.clone(), tenant)).collect(),
        master: Some(master(21, 100)),
        has_no_master: false,
    }
}

pub(super) fn with(mut snapshot: Snapshot, owner: Owner, carriers: &[&str]) -> Snapshot {
    for name in carriers {
        put(&mut snapshot, carrying(tenant(owner.namespace(), name, 80), VIP, 1, Some(master(21, 100))));
    }
    Arc::make_mut(&mut snapshot.binds).insert(vip(VIP), record(owner, 1));
    snapshot
}

pub(super) fn put(snapshot: &mut Snapshot, tenant: Tenant) {
    snapshot.services.insert(tenant.name.clone(), tenant);
}

fn names(verdict: &Verdict) -> Vec<&'static str> {
    verdict.writes.iter().map(common::plan::Action::name).collect()
}

fn check(what: &str, snapshot: &Snapshot, request: Request, code: u16, writes: &[&str]) {
    let verdict = plan(&request, &Progress::default(), snapshot);
    assert_eq!((verdict.reply.code, names(&verdict)), (code, writes.to_vec()), "{what}: {verdict:?}");
}

const BIND_SERVICE: [&str; 2] = ["RecordBinding", "BindService"];

#[test]
fn a_free_vip_is_recorded_and_then_carried() {
    let free = free();
    check("S, bind X", &free, Request::Bind(namespace("x")), 201, &["RecordBinding"]);
    check("S, bind X/s", &free, Request::Bind(service("x", "a")), 201, &BIND_SERVICE);
    check("S, unbind X", &free, Request::Unbind(namespace("x")), 404, &[]);
    check("S, unbind X/s", &free, Request::Unbind(service("x", "a")), 404, &[]);
}

#[test]
fn of_a_namespace_each_service_may_join() {
    let none = with(free(), namespace("x"), &[]);
    let one = with(free(), namespace("x"), &["a"]);
    check("N, bind X/s", &none, Request::Bind(service("x", "a")), 200, &["BindService"]);
    check("N, bind X/s once more", &one, Request::Bind(service("x", "a")), 200, &[]);
    check("N, bind X/t", &one, Request::Bind(service("x", "b")), 200, &["BindService"]);
    let both = with(free(), namespace("x"), &["a", "same"]);
    check("N, same port, carried", &both, Request::Bind(service("x", "same")), 409, &[]);
    check("N, same port", &one, Request::Bind(service("x", "same")), 409, &[]);
    check("N, bind X", &one, Request::Bind(namespace("x")), 200, &[]);
    check("N, bind Y", &one, Request::Bind(namespace("y")), 409, &[]);
    check("N, bind Y/s", &one, Request::Bind(service("y", "c")), 409, &[]);
    check("N, unbind X/s", &one, Request::Unbind(service("x", "a")), 200, &["UnbindService"]);
    check("N, unbind X/t", &one, Request::Unbind(service("x", "b")), 404, &[]);
    check("N, unbind X, carried", &one, Request::Unbind(namespace("x")), 409, &[]);
    check("N, unbind X", &none, Request::Unbind(namespace("x")), 200, &["RecordUnbind", "RemoveBinding"]);
    check("N, unbind Y", &none, Request::Unbind(namespace("y")), 404, &[]);
    check("N, unbind Y/s", &none, Request::Unbind(service("y", "c")), 404, &[]);
}

#[test]
fn an_exclusive_vip_admits_one_service() {
    let bound = with(free(), service("x", "a"), &["a"]);
    check("E, bind X/s", &bound, Request::Bind(service("x", "a")), 200, &[]);
    check("E, bind X/t", &bound, Request::Bind(service("x", "b")), 409, &[]);
    check("E, bind X", &bound, Request::Bind(namespace("x")), 409, &[]);
    check("E, bind Y", &bound, Request::Bind(namespace("y")), 409, &[]);
    check("E, bind Y/s", &bound, Request::Bind(service("y", "c")), 409, &[]);
    check("E, unbind X", &bound, Request::Unbind(namespace("x")), 409, &[]);
    check("E, unbind X/t", &bound, Request::Unbind(service("x", "b")), 404, &[]);
    check("E, unbind Y/s", &bound, Request::Unbind(service("y", "c")), 404, &[]);
    let writes = ["RecordUnbind", "UnbindService", "RemoveBinding"];
    check("E, unbind X/s", &bound, Request::Unbind(service("x", "a")), 200, &writes);
    // The bind stopped between its two writes.
    let recorded = with(free(), service("x", "a"), &[]);
    check("E without annotations, bind", &recorded, Request::Bind(service("x", "a")), 200, &["BindService"]);
}

#[test]
fn a_bind_is_refused_before_anything_is_recorded() {
    let mut snapshot = free();
    snapshot.is_served = false;
    check("no host", &snapshot, Request::Bind(namespace("x")), 422, &[]);
    check("no host", &snapshot, Request::Bind(service("x", "a")), 422, &[]);
    snapshot = free();
    snapshot.has_namespace = false;
    check("no namespace", &snapshot, Request::Bind(namespace("z")), 404, &[]);
    check("no Service", &free(), Request::Bind(service("x", "z")), 404, &[]);
    snapshot = free();
    Arc::make_mut(&mut snapshot.binds).insert(vip(OTHER), record(namespace("x"), 1));
    put(&mut snapshot, carrying(tenant("x", "a", 80), OTHER, 1, None));
    check("another VIP", &snapshot, Request::Bind(service("x", "a")), 409, &[]);
    // The annotations that no binding admits have no effect.
    Arc::make_mut(&mut snapshot.binds).clear();
    check("stale annotations", &snapshot, Request::Bind(service("x", "a")), 201, &BIND_SERVICE);
    Arc::make_mut(&mut snapshot.binds).insert(vip(OTHER), record(service("x", "a"), 1));
    put(&mut snapshot, tenant("x", "a", 80));
    check("recorded for another VIP", &snapshot, Request::Bind(service("x", "a")), 409, &[]);
}

#[test]
fn without_a_master_the_last_annotations_stay() {
    let mut snapshot = with(free(), namespace("x"), &["a"]);
    snapshot.master = None;
    check("E, known gateway", &snapshot, Request::Bind(service("x", "a")), 503, &[]);
    check("join", &snapshot, Request::Bind(service("x", "b")), 503, &["BindService"]);
    check("namespace", &snapshot, Request::Bind(namespace("x")), 200, &[]);
    let mut snapshot = free();
    snapshot.master = None;
    check("first", &snapshot, Request::Bind(service("x", "a")), 503, &BIND_SERVICE);
    let verdict = plan(&Request::Bind(service("x", "a")), &Progress::default(), &snapshot);
    let Write::Carry { carried, .. } = &verdict.writes[1] else { panic!("{verdict:?}") };
    assert_eq!((carried.gateway, carried.epoch), (None, Epoch(0)));
}

#[test]
fn a_binding_whose_service_or_namespace_is_gone_can_be_removed() {
    let mut snapshot = with(free(), service("x", "gone"), &[]);
    snapshot.has_namespace = false;
    let writes = ["RecordUnbind", "RemoveBinding"];
    check("Service", &snapshot, Request::Unbind(service("x", "gone")), 200, &writes);
    Arc::make_mut(&mut snapshot.binds).insert(vip(VIP), record(namespace("x"), 1));
    snapshot.services.clear();
    check("namespace", &snapshot, Request::Unbind(namespace("x")), 200, &writes);
}

#[test]
fn an_unbind_that_stopped_is_completed_and_admits_no_bind() {
    let mut snapshot = with(free(), service("x", "a"), &["a"]);
    Arc::make_mut(&mut snapshot.binds).get_mut(&vip(VIP)).unwrap().unbinding = true;
    check("bind", &snapshot, Request::Bind(service("x", "a")), 409, &[]);
    let writes = ["UnbindService", "RemoveBinding"];
    check("unbind", &snapshot, Request::Unbind(service("x", "a")), 200, &writes);
    put(&mut snapshot, tenant("x", "a", 80));
    check("unbind", &snapshot, Request::Unbind(service("x", "a")), 200, &["RemoveBinding"]);
    let mut snapshot = with(free(), namespace("x"), &["a"]);
    Arc::make_mut(&mut snapshot.binds).get_mut(&vip(VIP)).unwrap().unbinding = true;
    check("join", &snapshot, Request::Bind(service("x", "b")), 409, &[]);
    check("carried", &snapshot, Request::Unbind(namespace("x")), 409, &["RecordBinding"]);
    check("Service", &snapshot, Request::Unbind(service("x", "a")), 200, &["UnbindService"]);
}

#[test]
fn a_bind_that_was_unbound_meanwhile_undoes_its_write() {
    let request = Request::Bind(service("x", "a"));
    let joined = Progress { joined: true, ..Progress::default() };
    let recorded = Progress { recorded: TunId::new(1).ok(), ..joined.clone() };
    for (progress, owner) in [(&joined, namespace("x")), (&recorded, service("x", "a"))] {
        let mut snapshot = with(free(), owner, &["a"]);
        assert!(plan(&request, progress, &snapshot).writes.is_empty());
        Arc::make_mut(&mut snapshot.binds).get_mut(&vip(VIP)).unwrap().unbinding = true;
        for _ in 0..2 {
            let verdict = plan(&request, progress, &snapshot);
            assert_eq!((verdict.reply.code, names(&verdict)), (409, vec!["UnbindService"]), "{verdict:?}");
            Arc::make_mut(&mut snapshot.binds).clear();
        }
    }
    // Two Services with the same port joined at the same time: each that sees the other one undoes its write.
    let snapshot = with(free(), namespace("x"), &["a", "same"]);
    let verdict = plan(&request, &joined, &snapshot);
    assert_eq!((verdict.reply.code, names(&verdict)), (409, vec!["UnbindService"]), "{verdict:?}");
    // A record whose Service joined another VIP at the same time does not stay.
    let mut snapshot = with(free(), service("x", "a"), &[]);
    Arc::make_mut(&mut snapshot.binds).insert(vip(OTHER), record(namespace("x"), 2));
    put(&mut snapshot, carrying(tenant("x", "a", 80), OTHER, 2, None));
    let progress = Progress { recorded: TunId::new(1).ok(), ..Progress::default() };
    let verdict = plan(&request, &progress, &snapshot);
    assert_eq!((verdict.reply.code, names(&verdict)), (409, vec!["RemoveBinding"]), "{verdict:?}");
}

#[test]
fn the_lowest_free_number_is_allocated() {
    let mut snapshot = free();
    for (last, number) in [(1, 1), (2, 2), (3, 4)] {
        let owner = namespace(&format!("n{last}"));
        Arc::make_mut(&mut snapshot.binds).insert(vip(&format!("10.0.0.{last}")), record(owner, number));
    }
    let number = |snapshot: &Snapshot| {
        let verdict = plan(&Request::Bind(namespace("x")), &Progress::default(), snapshot);
        let Some(Write::Record { bind, .. }) = verdict.writes.first() else { panic!("{verdict:?}") };
        bind.tun_id.number()
    };
    assert_eq!(number(&snapshot), 3);
    Arc::make_mut(&mut snapshot.binds).insert(vip("10.0.0.4"), record(namespace("n4"), 3));
    assert_eq!(number(&snapshot), 5);
    Arc::make_mut(&mut snapshot.binds).clear();
    assert_eq!(number(&snapshot), 1);
}

#[test]
fn the_number_that_a_service_desires_is_its_own_or_the_bind_is_refused() {
    let desiring = |snapshot: &mut Snapshot, text: &str| {
        put(snapshot, Tenant { desired_tun_id: Some(text.parse()), ..tenant("x", "a", 80) });
    };
    let bind = Request::Bind(service("x", "a"));
    let mut snapshot = free();
    desiring(&mut snapshot, "0xaabb");
    let verdict = plan(&bind, &Progress::default(), &snapshot);
    let numbers: Vec<u32> = verdict
        .writes
        .iter()
        .map(|write| match write {
            Write::Record { bind, .. } => bind.tun_id.number(),
            Write::Carry { carried, .. } => carried.tun_id.number(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!((verdict.reply.code, numbers), (201, vec![0xaabb, 0xaabb]));
    // A binding of its namespace does not concern the Service.
    check("namespace", &snapshot, Request::Bind(namespace("x")), 201, &["RecordBinding"]);

    Arc::make_mut(&mut snapshot.binds).insert(vip(OTHER), record(namespace("y"), 0xaabb));
    let Reply { code, message } = plan(&bind, &Progress::default(), &snapshot).reply;
    assert!(code == 409 && message.contains("0x0000aabb") && message.contains(OTHER), "{code}: {message}");
    desiring(&mut snapshot, "aabb");
    let Reply { code, message } = plan(&bind, &Progress::default(), &snapshot).reply;
    assert!(code == 422 && message.contains("\"aabb\""), "{code}: {message}");

    let mut shared = with(free(), namespace("x"), &[]);
    desiring(&mut shared, "0x00000001");
    check("the number of the binding", &shared, bind.clone(), 200, &["BindService"]);
    desiring(&mut shared, "0x00000002");
    check("another number", &shared, bind.clone(), 409, &[]);
    desiring(&mut shared, "2");
    check("no number", &shared, bind, 422, &[]);
}

#[test]
fn ingress_is_added_after_the_annotations_and_removed_before_them() {
    let status = Publication::Status(IpMode::Proxy);
    let mut snapshot = free();
    let mut a = tenant("x", "a", 80);
    a.publication = status;
    a.listed = vec![Listed { ip: "192.0.2.1".parse().unwrap(), ip_mode: None }];
    put(&mut snapshot, a.clone());
    let writes = ["RecordBinding", "BindService", "AddIngress"];
    check("bind", &snapshot, Request::Bind(service("x", "a")), 201, &writes);
    let mut snapshot = with(snapshot, service("x", "a"), &[]);
    let mut a = carrying(a, VIP, 1, Some(master(21, 100)));
    put(&mut snapshot, a.clone());
    check("bind once more", &snapshot, Request::Bind(service("x", "a")), 200, &["AddIngress"]);
    a.listed.push(Listed { ip: VIP.parse().unwrap(), ip_mode: Some("VIP".to_owned()) });
    put(&mut snapshot, a.clone());
    check("another mode", &snapshot, Request::Bind(service("x", "a")), 200, &["AddIngress"]);
    a.listed[1].ip_mode = Some("Proxy".to_owned());
    put(&mut snapshot, a);
    check("complete", &snapshot, Request::Bind(service("x", "a")), 200, &[]);
    let writes = ["RecordUnbind", "RemoveIngress", "UnbindService", "RemoveBinding"];
    check("unbind", &snapshot, Request::Unbind(service("x", "a")), 200, &writes);
}
