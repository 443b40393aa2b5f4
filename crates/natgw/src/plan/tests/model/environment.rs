//! The environment of natgw: changes of the cluster by users, kubelets, the Job controller, the cloud and time.

use super::cluster::{Boot, Cluster, End, Hop, Ip, Job, Kernel, Probed, Ready, Retry};

/// One change of the cluster that natgw does not make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Label(u8, Option<Ip>),
    Ready(u8, Ready),
    Cordon(u8, bool),
    Reboot(u8),
    /// The Node's server joins or leaves the network.
    Attach(u8, bool),
    /// The floating IP is assigned to that Node's server, or to none; the label stays.
    Assign(Ip, Option<u8>),
    /// The health checks of that Node have another result.
    Probe(u8, Probed),
    /// The third reference of the health checks responds, or does not.
    Reference(bool),
    /// The same assignments of floating IPs have been polled several times.
    Confirm,
    /// Another client points the route to its server, or removes it.
    Route(Hop),
    JobEnds(u8, usize, End),
    /// A deleted Job is gone, or the TTL of a finished one has expired.
    JobGoes(u8, usize),
    /// The backoff after a failed Job has expired.
    Due(u8),
}

/// The set of disturbances of an exploration.
#[derive(Clone, Copy, Debug)]
pub struct Alphabet {
    /// Labels that each Node may get besides none.
    pub labels: [&'static [Ip]; 3],
    pub ready: &'static [Ready],
    pub reboots: bool,
    pub detaches: bool,
    pub assigns: bool,
    pub foreign_routes: bool,
    /// Whether the first attempt of a Job may fail.
    pub fails: bool,
}

impl Alphabet {
    pub const ALL: Alphabet = Alphabet {
        labels: [&Ip::ALL; 3],
        ready: &[Ready::True, Ready::False, Ready::Unknown],
        reboots: true,
        detaches: true,
        assigns: true,
        foreign_routes: true,
        fails: true,
    };

    /// The disturbances: actions of other clients, and failures.
    pub fn disturbances(&self, cluster: &Cluster) -> Vec<Event> {
        let mut events = Vec::new();
        for (i, node) in (0..).zip(cluster.nodes()) {
            let own = self.labels[usize::from(i)].iter().copied().map(Some);
            let labels = own.chain([None]).filter(|label| *label != node.label);
            events.extend(labels.map(|label| Event::Label(i, label)));
            let ready = self.ready.iter().filter(|ready| **ready != node.ready);
            events.extend(ready.map(|ready| Event::Ready(i, *ready)));
            events.push(Event::Cordon(i, !node.cordoned));
            if self.reboots {
                events.push(Event::Reboot(i));
            }
            if self.detaches {
                events.push(Event::Attach(i, !node.attached));
            }
        }
        if self.assigns {
            for ip in Ip::ALL {
                let holders = (0..cluster.len).map(Some).chain([None]);
                let others = holders.filter(|holder| *holder != cluster.assigned[ip as usize]);
                events.extend(others.map(|holder| Event::Assign(ip, holder)));
            }
        }
        if let Some(probed) = cluster.probed {
            for (i, now) in (0..cluster.len).zip(probed) {
                let all = [Probed::Responds, Probed::Fails, Probed::Recovers];
                events.extend(all.into_iter().filter(|one| *one != now).map(|one| Event::Probe(i, one)));
            }
            events.push(Event::Reference(!cluster.reference));
        }
        if cluster.confirmed == Some(false) {
            events.push(Event::Confirm);
        }
        if self.foreign_routes {
            let hops = [Hop::None, Hop::Foreign].into_iter().filter(|hop| *hop != cluster.route);
            events.extend(hops.map(Event::Route));
        }
        events
    }

    /// The events that are not disturbances: a Job ends or is removed, a backoff expires. While a kubelet does not
    /// report, the pods of its Node neither start nor end.
    pub fn course(&self, cluster: &Cluster) -> Vec<Event> {
        let mut events = Vec::new();
        for (i, node) in (0..).zip(cluster.nodes()) {
            if node.retry == Retry::Later {
                events.push(Event::Due(i));
            }
            for (place, job) in node.jobs().enumerate() {
                let heard = node.ready != Ready::Unknown;
                if heard && job.end == End::Running {
                    events.push(Event::JobEnds(i, place, End::Succeeded));
                    if self.fails && job.attempt == 1 && !job.terminating {
                        events.push(Event::JobEnds(i, place, End::Failed));
                    }
                }
                if heard && job.terminating || !job.is_alive() {
                    events.push(Event::JobGoes(i, place));
                }
            }
        }
        events
    }

    /// The next event if every Job succeeds and is kept until it is deleted. None if no event is left.
    pub fn quiet(&self, cluster: &Cluster) -> Option<Event> {
        let good = |event: &Event| match event {
            Event::JobEnds(_, _, end) => *end == End::Succeeded,
            Event::JobGoes(node, place) => cluster
                .nodes()
                .get(usize::from(*node))
                .and_then(|node| node.jobs().nth(*place))
                .is_some_and(|job| job.terminating),
            _ => false,
        };
        let course = self.course(cluster);
        let due = || course.iter().find(|event| matches!(event, Event::Due(_)));
        course.iter().find(|event| good(event)).or_else(due).copied()
    }
}

impl Event {
    pub fn happen(self, cluster: &mut Cluster) {
        if matches!(self, Event::Label(..) | Event::Assign(..)) {
            cluster.confirmed = cluster.confirmed.map(|_| false);
        }
        match self {
            Event::Confirm => cluster.confirmed = Some(true),
            Event::Label(i, label) => {
                cluster.node(i).label = label;
                // A floating IP is assigned before its label is written.
                if let Some(ip) = label {
                    cluster.assigned[ip as usize] = Some(i);
                }
            }
            Event::Ready(i, ready) => cluster.node(i).ready = ready,
            Event::Cordon(i, cordoned) => cluster.node(i).cordoned = cordoned,
            Event::Reboot(i) => reboot(cluster, i),
            Event::Attach(i, attached) => cluster.node(i).attached = attached,
            Event::Assign(ip, holder) => cluster.assigned[ip as usize] = holder,
            Event::Probe(i, now) => {
                if let Some(probed) = &mut cluster.probed {
                    probed[usize::from(i)] = now;
                }
            }
            Event::Reference(responds) => cluster.reference = responds,
            Event::Route(hop) => cluster.route = hop,
            Event::JobEnds(i, place, end) => {
                let node = cluster.node(i);
                let Some(job) = &mut node.jobs[place] else { unreachable!("{self:?}") };
                job.end = end;
                let Job { work, boot, .. } = *job;
                // The pod of a Job from before the boot may have succeeded before or after it: the state of this kernel
                // is unknown.
                if end == End::Succeeded && boot == Boot::This {
                    *node.kernel(work.ip) = if work.setup { Kernel::SetUp } else { Kernel::Clean };
                }
            }
            Event::JobGoes(i, place) => cluster.node(i).remove(place),
            Event::Due(i) => cluster.node(i).retry = Retry::Due,
        }
    }

    /// The Node whose object in the API server it changes.
    pub fn changes_node(self) -> Option<u8> {
        match self {
            Event::Label(i, _) | Event::Ready(i, _) | Event::Cordon(i, _) | Event::Reboot(i) => Some(i),
            _ => None,
        }
    }

    /// Nodes, as bits, that may become or stop being a candidate by this event.
    pub fn touches(self, cluster: &Cluster) -> u8 {
        match self {
            // The label of one takes the floating IP from all others.
            Event::Label(..) | Event::Assign(..) | Event::Probe(..) | Event::Reference(_) => cluster.all(),
            Event::Attach(i, _) => cluster.touched(i),
            other => other.changes_node().map_or(0, |i| cluster.touched(i)),
        }
    }
}

fn reboot(cluster: &mut Cluster, i: u8) {
    let node = cluster.node(i);
    node.kernel = [Kernel::Clean; 2];
    node.setup_boot = node.setup_boot.map(|_| Boot::Earlier);
    for job in node.jobs.iter_mut().flatten() {
        job.boot = Boot::Earlier;
        // Its pod, or a new one of the Job controller, may start after the boot, and then it changes the new kernel.
        if job.end == End::Running {
            node.kernel[job.work.ip as usize] = Kernel::Dirty;
        }
    }
}
