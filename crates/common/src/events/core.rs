//! Events of the core API, as client-go's older recorder writes them.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{Event as CoreEvent, EventSource, ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    runtime::events::{Event, EventType, Reporter},
};
use serde_json::json;

/// How long the same Event counts up, as in kube's recorder.
const SERIES: Duration = Duration::from_secs(6 * 60);

/// Everything that makes two Events the same.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    namespace: String,
    uid: Option<String>,
    name: Option<String>,
    reason: String,
    action: String,
    note: Option<String>,
    related: Option<String>,
}

/// An Event that may occur again.
#[derive(Clone)]
struct Series {
    name: String,
    count: i32,
    last: Timestamp,
}

/// Publishes core Events, and counts a repeated one up.
pub(super) struct CoreRecorder {
    client: Client,
    reporter: Reporter,
    series: Mutex<HashMap<Key, Series>>,
}

impl CoreRecorder {
    pub fn new(client: Client, reporter: Reporter) -> CoreRecorder {
        CoreRecorder { client, reporter, series: Mutex::default() }
    }

    pub async fn publish(&self, event: &Event, regarding: &ObjectReference) -> kube::Result<()> {
        // Events of cluster-scoped objects are in the namespace default.
        let namespace = regarding.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let key = Key {
            namespace: namespace.clone(),
            uid: regarding.uid.clone(),
            name: regarding.name.clone(),
            reason: event.reason.clone(),
            action: event.action.clone(),
            note: event.note.clone(),
            related: event.secondary.as_ref().and_then(|related| related.name.clone()),
        };
        let api = Api::<CoreEvent>::namespaced(self.client.clone(), &namespace);
        let now = Timestamp::now();
        let known = self.series.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        let known = known.filter(|series| now.duration_since(series.last).unsigned_abs() < SERIES);
        let series = match known {
            Some(series) => Series { count: series.count.saturating_add(1), last: now, ..series },
            None => {
                let object = regarding.name.as_deref().unwrap_or_default();
                Series { name: format!("{object}.{:x}", now.as_nanosecond()), count: 1, last: now }
            }
        };
        if series.count == 1 {
            api.create(&PostParams::default(), &self.event(event, regarding, &series)).await?;
        } else {
            let patch = json!({ "count": series.count, "lastTimestamp": Time(now) });
            api.patch(&series.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        self.series.lock().unwrap_or_else(PoisonError::into_inner).insert(key, series);
        Ok(())
    }

    fn event(&self, event: &Event, regarding: &ObjectReference, series: &Series) -> CoreEvent {
        let Reporter { controller, instance } = &self.reporter;
        let mut object = CoreEvent {
            involved_object: regarding.clone(),
            reason: Some(event.reason.clone()),
            message: event.note.clone(),
            type_: Some(match event.type_ {
                EventType::Normal => "Normal".to_owned(),
                EventType::Warning => "Warning".to_owned(),
            }),
            action: Some(event.action.clone()),
            related: event.secondary.clone(),
            source: Some(EventSource { component: Some(controller.clone()), host: None }),
            reporting_component: Some(controller.clone()),
            reporting_instance: instance.clone(),
            first_timestamp: Some(Time(series.last)),
            last_timestamp: Some(Time(series.last)),
            count: Some(series.count),
            ..CoreEvent::default()
        };
        object.metadata.name = Some(series.name.clone());
        object.metadata.namespace.clone_from(&regarding.namespace);
        object
    }
}
