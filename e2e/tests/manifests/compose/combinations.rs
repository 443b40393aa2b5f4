//! The combinations of controllers, components, namespaces and name prefixes, each rendered once.

use std::sync::OnceLock;

use e2e::kustomize::{self, Overlay};
use e2e::sweep::Slice;
use serde_json::Value;

/// The controllers and their components: all that `manifests` has, as a test compares.
pub(super) const CONTROLLERS: [(&str, &[&str]); 6] = [
    (
        "apinetlet",
        &[
            "ha/apinetlet",
            "networkpolicy/apinetlet",
            "monitoring/apinetlet",
            "otlp",
            "apinetlet-kubeconfig",
            "apinetlet-onmetal",
        ],
    ),
    (
        "cgw-controller",
        &["ha/cgw-controller", "networkpolicy/cgw-controller", "monitoring/cgw-controller", "otlp"],
    ),
    (
        "deorbiter",
        &[
            "ha/deorbiter",
            "networkpolicy/deorbiter",
            "monitoring/deorbiter",
            "otlp",
            "deorbiter-hook",
            "deorbiter-namespace",
        ],
    ),
    ("egress-router-cni", &["networkpolicy/egress-router-cni"]),
    ("natgw", &["ha/natgw", "monitoring/natgw", "otlp"]),
    (
        "routegc",
        &[
            "ha/routegc",
            "networkpolicy/routegc",
            "monitoring/routegc",
            "otlp",
            "routegc-nodes",
            "routegc-cluster-api",
        ],
    ),
];
/// The component that an overlay with `namespace:` and two controllers needs.
pub(super) const SHARED: &str = "shared-namespace";
pub(super) const EDGE: &str = "edge";
const PREFIX: &str = "acme-";
/// kubectl processes at the same time: each starts slowly on a machine that is busy with other tests.
const RENDERERS: usize = 8;

pub(super) struct Rendering {
    pub(super) overlay: Overlay<'static>,
    pub(super) objects: Vec<Value>,
}

impl Rendering {
    /// The combination in one line, for the list of combinations and for messages.
    pub(super) fn title(&self) -> String {
        let Overlay { controllers, components, namespace, name_prefix } = &self.overlay;
        format!(
            "{} + [{}] namespace: {} namePrefix: {}",
            controllers.join(" "),
            components.join(" "),
            namespace.unwrap_or("-"),
            name_prefix.unwrap_or("-")
        )
    }

    pub(super) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    pub(super) fn has(&self, kind: &str, namespace: &Value, name: &Value) -> bool {
        self.of_kind(kind).any(|object| {
            object["metadata"]["name"] == *name && object["metadata"]["namespace"] == *namespace
        })
    }

    /// The workloads: (the controller, its object).
    pub(super) fn workloads(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.of_kind("Deployment")
            .chain(self.of_kind("DaemonSet"))
            .map(|object| (object["metadata"]["labels"]["app.kubernetes.io/name"].as_str().unwrap(), object))
    }
}

/// One, two, or all of the controllers.
fn groups() -> Vec<Vec<&'static str>> {
    let names: Vec<&str> = CONTROLLERS.iter().map(|(name, _)| *name).collect();
    let mut groups: Vec<Vec<&str>> = names.iter().map(|name| vec![*name]).collect();
    for (index, first) in names.iter().enumerate() {
        groups.extend(names[index + 1..].iter().map(|second| vec![*first, *second]));
    }
    groups.push(names);
    groups
}

pub(super) fn components_of(group: &[&str]) -> Vec<&'static str> {
    let mut components = Vec::new();
    for (_, more) in CONTROLLERS.iter().filter(|(name, _)| group.contains(name)) {
        components
            .extend(more.iter().filter(|component| !components.contains(*component)).collect::<Vec<_>>());
    }
    components
}

/// The values of `namespace:` and `namePrefix:` in the overlays.
const PLACES: [(Option<&str>, Option<&str>); 3] =
    [(None, None), (Some(EDGE), None), (Some(EDGE), Some(PREFIX))];

/// `make test` renders one in so many overlays of pairs.
const SLICES_OF_PAIRS: u64 = 3;

/// Without components and with all of them, in each place; and a single controller with each component.
fn overlays() -> Vec<Overlay<'static>> {
    let slice = Slice::chosen("pairs of controllers", SLICES_OF_PAIRS).unwrap();
    let (pairs, mut overlays): (Vec<_>, Vec<_>) =
        all().into_iter().partition(|one| one.controllers.len() == 2);
    overlays.extend(slice.pick(pairs));
    overlays
}

fn all() -> Vec<Overlay<'static>> {
    let mut overlays = Vec::new();
    for group in groups() {
        let all = components_of(&group);
        let mut choices = vec![(Vec::new(), &PLACES[..]), (all.clone(), &PLACES[..])];
        if group.len() == 1 && all.len() > 1 {
            choices.extend(all.iter().map(|component| (vec![*component], &PLACES[1..2])));
        }
        for (components, places) in choices {
            for (namespace, name_prefix) in places.iter().copied() {
                let mut components = components.clone();
                if namespace.is_some() && group.len() > 1 {
                    components.push(SHARED);
                }
                overlays.push(Overlay { controllers: group.clone(), components, namespace, name_prefix });
            }
        }
    }
    overlays
}

pub(super) fn rendered() -> &'static [Rendering] {
    static RENDERED: OnceLock<Vec<Rendering>> = OnceLock::new();
    RENDERED.get_or_init(|| {
        let render = |overlay: Overlay<'static>| {
            let folder = overlay.write().unwrap();
            let objects = kustomize::objects(&kustomize::render(folder.path()).unwrap()).unwrap();
            Rendering { overlay, objects }
        };
        let overlays = overlays();
        std::thread::scope(|scope| {
            let chunks = overlays.chunks(overlays.len().div_ceil(RENDERERS));
            let threads: Vec<_> = chunks
                .map(|chunk| scope.spawn(move || chunk.iter().cloned().map(render).collect::<Vec<_>>()))
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        })
    })
}
