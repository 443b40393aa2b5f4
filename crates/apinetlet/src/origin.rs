//! The metadata of an apinet object that names its source object.
//!
//! | layout | labels | annotations |
//! |---|---|---|
//! | [`Layout::Labels`] | `<kind>-uid`, `<kind>-namespace`, `<kind>-name` | |
//! | [`Layout::Annotated`] | `<kind>-uid`, `<kind>-namespace` | `<kind>-name` |
//!
//! onmetal-api-net and ironcore-net up to v0.3 write the first layout. A label's value has at most 63 characters and a name has
//! up to 253, so ironcore-net v0.4 moved the name into an annotation. Both layouts are read.

use std::collections::BTreeMap;

use common::validation::is_label_value;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::names::{Flavor, Kind};

/// A source object, as an apinet object names it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// metadata.uid
    pub uid: String,
    /// metadata.namespace
    pub namespace: String,
    /// metadata.name
    pub name: String,
}

/// Where the name of the source object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// In a label. A name that is too long for one is in the annotation.
    Labels,
    /// In an annotation.
    Annotated,
}

/// The keys of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Label.
    pub uid: String,
    /// Label.
    pub namespace: String,
    /// Label or annotation.
    pub name: String,
}

impl Keys {
    /// The keys of a kind.
    #[must_use]
    pub fn of(flavor: Flavor, kind: Kind) -> Keys {
        let key = |part: &str| format!("{}/{}-{part}", flavor.names().origin, kind.lowercase());
        Keys { uid: key("uid"), namespace: key("namespace"), name: key("name") }
    }

    /// The source object that the metadata names; None if a part is missing. Where label and annotation differ, the annotation is
    /// newer.
    #[must_use]
    pub fn read(&self, metadata: &ObjectMeta) -> Option<Origin> {
        let labels = metadata.labels.as_ref()?;
        let annotation = metadata.annotations.as_ref().and_then(|annotations| annotations.get(&self.name));
        Some(Origin {
            uid: labels.get(&self.uid)?.clone(),
            namespace: labels.get(&self.namespace)?.clone(),
            name: annotation.or_else(|| labels.get(&self.name))?.clone(),
        })
    }

    /// The labels and annotations that name the source object.
    #[must_use]
    pub fn write(&self, origin: &Origin, layout: Layout) -> Written {
        let Origin { uid, namespace, name } = origin.clone();
        let mut written = Written::default();
        written.labels.insert(self.uid.clone(), uid);
        written.labels.insert(self.namespace.clone(), namespace);
        let as_label = layout == Layout::Labels && is_label_value(&name);
        let with_name = if as_label { &mut written.labels } else { &mut written.annotations };
        with_name.insert(self.name.clone(), name);
        written
    }
}

/// Labels and annotations to write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
}

impl Origin {
    /// An object of the source cluster; None without a UID or a namespace, which the API server serves for none of its kinds.
    #[must_use]
    pub fn of(metadata: &ObjectMeta) -> Option<Origin> {
        let ObjectMeta { uid, namespace, name, .. } = metadata;
        Some(Origin { uid: uid.clone()?, namespace: namespace.clone()?, name: name.clone()? })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn origin(name: &str) -> Origin {
        Origin { uid: "u".into(), namespace: "team".into(), name: name.into() }
    }

    fn metadata(written: Written) -> ObjectMeta {
        let Written { labels, annotations } = written;
        ObjectMeta { labels: Some(labels), annotations: Some(annotations), ..ObjectMeta::default() }
    }

    #[test]
    fn keys_are_those_of_the_go_programs() {
        let written = Keys::of(Flavor::Onmetal, Kind::LoadBalancer).write(&origin("web"), Layout::Labels);
        let pairs = [
            ("apinetlet.api.onmetal.de/loadbalancer-name", "web"),
            ("apinetlet.api.onmetal.de/loadbalancer-namespace", "team"),
            ("apinetlet.api.onmetal.de/loadbalancer-uid", "u"),
        ];
        assert_eq!(written.labels, BTreeMap::from(pairs.map(|(key, value)| (key.into(), value.into()))));
        assert!(written.annotations.is_empty());
        let written = Keys::of(Flavor::Ironcore, Kind::VirtualIp).write(&origin("a"), Layout::Annotated);
        assert_eq!(written.annotations["apinetlet.ironcore.dev/virtualip-name"], "a");
        assert_eq!(written.labels.len(), 2);
    }

    #[test]
    fn a_name_that_is_too_long_for_a_label_is_in_the_annotation() {
        let keys = Keys::of(Flavor::Ironcore, Kind::Network);
        for (length, labels) in [(63, 3), (64, 2), (253, 2)] {
            let origin = origin(&"a".repeat(length));
            let written = keys.write(&origin, Layout::Labels);
            assert_eq!(written.labels.len(), labels);
            assert_eq!(keys.read(&metadata(written)), Some(origin));
        }
    }

    #[test]
    fn an_incomplete_origin_names_nothing() {
        let keys = Keys::of(Flavor::Ironcore, Kind::Network);
        let written = keys.write(&origin("a"), Layout::Annotated);
        for missing in [&keys.uid, &keys.namespace] {
            let mut written = written.clone();
            written.labels.remove(missing);
            assert_eq!(keys.read(&metadata(written)), None);
        }
        assert_eq!(keys.read(&metadata(Written { annotations: BTreeMap::new(), ..written })), None);
        assert_eq!(keys.read(&ObjectMeta::default()), None);
        let other = Keys::of(Flavor::Ironcore, Kind::NatGateway).write(&origin("a"), Layout::Annotated);
        assert_eq!(keys.read(&metadata(other)), None, "the origin of another kind");
    }

    proptest! {
        #[test]
        fn each_origin_is_read_as_it_was_written(name in "[a-z0-9.-]{1,253}", annotated in any::<bool>()) {
            let keys = Keys::of(Flavor::Onmetal, Kind::NetworkInterface);
            let layout = if annotated { Layout::Annotated } else { Layout::Labels };
            let origin = origin(&name);
            prop_assert_eq!(keys.read(&metadata(keys.write(&origin, layout))), Some(origin));
        }
    }
}
