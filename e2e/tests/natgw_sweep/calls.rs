//! natgw's calls, by kind, and the faults that can occur at each.

use anyhow::{Result, bail};
use e2e::fault_proxy::{Matcher, Recorded};
use e2e::natgw::TestEnv;
use e2e::sweep::{Case, Harm, Place};

/// A kind of call, and at how many calls in a row a fault occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    server: Server,
    /// RBAC verb or HTTP method.
    verb: &'static str,
    /// Resource or path; `*` is an ID.
    what: &'static str,
    times: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Kubernetes,
    Cloud,
}

const fn kubernetes(verb: &'static str, what: &'static str) -> Call {
    Call { server: Server::Kubernetes, verb, what, times: 1 }
}

const fn cloud(verb: &'static str, what: &'static str) -> Call {
    Call { server: Server::Cloud, verb, what, times: 1 }
}

const NODE_WATCH: Call = kubernetes("watch", "nodes");
const JOB_WATCH: Call = kubernetes("watch", "jobs");
const CREATE_JOB: Call = kubernetes("create", "jobs");
const FLOATING_IPS: Call = cloud("GET", "/floating_ips");

/// All calls. The ones with `true` are writes of which each gets the faults; of the others the first does, because Leases, Events
/// and polls occur by the clock.
const CALLS: &[(Call, bool)] = &[
    (kubernetes("list", "nodes"), false),
    (NODE_WATCH, false),
    (kubernetes("list", "jobs"), false),
    (JOB_WATCH, false),
    (kubernetes("patch", "nodes"), true),
    (CREATE_JOB, true),
    (kubernetes("delete", "jobs"), true),
    (kubernetes("create", "events"), false),
    (kubernetes("patch", "events"), false),
    (kubernetes("get", "leases"), false),
    (kubernetes("create", "leases"), false),
    (kubernetes("update", "leases"), false),
    (kubernetes("patch", "leases"), false),
    (cloud("GET", "/networks"), false),
    (cloud("GET", "/networks/*"), false),
    (cloud("GET", "/servers"), false),
    (cloud("GET", "/servers/*"), false),
    (FLOATING_IPS, false),
    (cloud("GET", "/actions"), false),
    (cloud("POST", "/networks/*/actions/add_route"), true),
    (cloud("POST", "/networks/*/actions/delete_route"), true),
];

/// Faults of every call.
const EVERYWHERE: [Harm; 6] =
    [Harm::Refused, Harm::LateResponse, Harm::Cut, Harm::TooMany, Harm::Rejected(500), Harm::Rejected(503)];
/// More faults of a write.
const WRITES: [Harm; 5] =
    [Harm::LateRequest, Harm::Rejected(409), Harm::Replaced(500), Harm::Replaced(503), Harm::Swallowed];
/// More faults of a write to the cloud.
const CLOUD_WRITES: [Harm; 3] = [Harm::Rejected(423), Harm::Rejected(502), Harm::Replaced(502)];
/// Faults of the events of a watch.
const EVENTS: [Harm; 3] = [Harm::LateEvent, Harm::WatchEnded, Harm::WatchExpired];
/// How many events of a watch get the faults. A Job that runs brings more.
const PLACES: u64 = 3;
/// Calls in a row, for the faults that are repeated.
const REPEATED: u64 = 3;

impl Call {
    fn is_write(self) -> bool {
        !matches!(self.verb, "get" | "list" | "watch" | "GET")
    }

    fn is(self, server: Server, call: &e2e::fault_proxy::Call) -> bool {
        self.server == server
            && match server {
                Server::Kubernetes => call
                    .kube()
                    .is_some_and(|request| request.verb == self.verb && request.full_resource() == self.what),
                Server::Cloud => {
                    let (given, own) = (call.path.split('/'), self.what.split('/'));
                    call.method.as_str() == self.verb
                        && given.clone().count() == own.clone().count()
                        && own.zip(given).all(|(own, given)| own == "*" || own == given)
                }
            }
    }

    /// The calls at which its faults occur.
    pub fn place(self, env: &TestEnv) -> Place {
        let proxy = match self.server {
            Server::Kubernetes => &env.api_proxy,
            Server::Cloud => &env.cloud_proxy,
        };
        Place::new(proxy.clone(), Matcher::any().when(move |call| self.is(self.server, call)), self.times)
    }
}

/// The calls since the first `from` to each server, with the number of each kind.
pub fn of(env: &TestEnv, from: (usize, usize)) -> Result<Vec<(Call, u64)>> {
    let mut counts: Vec<(Call, u64)> = CALLS.iter().map(|(call, _)| (*call, 0)).collect();
    let kubernetes = env.api_proxy.requests().split_off(from.0);
    let cloud = env.cloud_proxy.requests().split_off(from.1);
    let kubernetes = kubernetes.into_iter().map(|call| (Server::Kubernetes, call));
    for (server, recorded) in kubernetes.chain(cloud.into_iter().map(|call| (Server::Cloud, call))) {
        if recorded.write.is_some() && !recorded.is_accepted() {
            continue;
        }
        let Recorded { method, path, query, .. } = recorded;
        let call = e2e::fault_proxy::Call {
            method,
            path,
            query,
            headers: Default::default(),
            body: Default::default(),
        };
        let Some((_, count)) = counts.iter_mut().find(|(kind, _)| kind.is(server, &call)) else {
            bail!("a call that the sweep does not know: {} {}", call.method, call.path)
        };
        *count += 1;
    }
    Ok(counts.into_iter().filter(|(_, count)| *count > 0).collect())
}

/// The faults of an undisturbed run with these calls. `fresh`: natgw starts its watches in the run.
pub fn faults(calls: &[(Call, u64)], fresh: bool) -> Vec<Case<Call>> {
    let mut cases = Vec::new();
    for &(call, count) in calls {
        let each = CALLS.contains(&(call, true));
        let counts = [(call, if each { count } else { 1 })];
        if call.verb == "watch" {
            if fresh {
                cases.extend(Case::faults(&counts, &EVERYWHERE));
                cases.extend(Case::faults(&counts, &[Harm::Rejected(410)]));
            }
            continue;
        }
        cases.extend(Case::faults(&counts, &EVERYWHERE));
        if call.is_write() {
            cases.extend(Case::faults(&counts, &WRITES));
        }
        if each && call.server == Server::Cloud {
            cases.extend(Case::faults(&counts, &CLOUD_WRITES));
        }
        if each {
            let repeated = [(Call { times: REPEATED, ..call }, 1)];
            cases.extend(Case::faults(&repeated, &EVERYWHERE));
            cases.extend(Case::faults(&repeated, &WRITES));
        }
        if call == FLOATING_IPS {
            // Floating IPs are never listed: the move of the route does not wait for them.
            cases.extend(Case::faults(&[(Call { times: u64::MAX, ..call }, 1)], &[Harm::Rejected(500)]));
        }
    }
    // Nodes report their status all the time; Jobs have events if one was created.
    cases.extend(Case::faults(&[(NODE_WATCH, PLACES)], &EVENTS));
    if calls.iter().any(|(call, _)| *call == CREATE_JOB) {
        cases.extend(Case::faults(&[(JOB_WATCH, PLACES)], &EVENTS));
    }
    cases
}
