//! A log line as one flat JSON object.

use std::fmt;

use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::Value;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    fmt::{
        FmtContext, FormattedFields, MakeWriter,
        format::{FormatEvent, FormatFields, JsonFields, Writer},
    },
    registry::LookupSpan,
};

/// The layer that writes them.
pub(super) fn layer<S, W>(writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt::layer().with_writer(writer).fmt_fields(JsonFields::new()).event_format(Line)
}

/// `{"ts": …, "level": …, "target": …, "msg": …, <fields of the event>, <fields of its spans, the inner one wins>}`
struct Line;

impl<S> FormatEvent<S, JsonFields> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, JsonFields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let metadata = event.metadata();
        let mut fields = Fields::default();
        event.record(&mut fields);
        // In this order, because people read them too.
        let mut line = Object(vec![
            // To the microsecond: enough to order lines, and of one length.
            ("ts".to_owned(), format!("{:.6}", Timestamp::now()).into()),
            ("level".to_owned(), metadata.level().as_str().to_ascii_lowercase().into()),
            ("target".to_owned(), metadata.target().into()),
            ("msg".to_owned(), fields.message.into()),
        ]);
        for (key, value) in fields.others {
            line.put(key, value);
        }
        // From the inner span to the outer one: what is closer to the event says it better.
        for span in context.event_scope().into_iter().flatten() {
            let extensions = span.extensions();
            let text = extensions.get::<FormattedFields<JsonFields>>().map_or("", |fields| fields.as_str());
            if let Ok(Value::Object(fields)) = serde_json::from_str(text) {
                for (key, value) in fields {
                    // Words for the exporter of traces, not for a reader of logs.
                    if !key.starts_with("otel.") {
                        line.put(key, value);
                    }
                }
            }
        }
        writeln!(writer, "{}", serde_json::to_string(&line).map_err(|_| fmt::Error)?)
    }
}

/// A JSON object that keeps its order; the first value of a key stays.
struct Object(Vec<(String, Value)>);

impl Object {
    fn put(&mut self, key: String, value: Value) {
        if self.0.iter().all(|(known, _)| *known != key) {
            self.0.push((key, value));
        }
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: Vec<(String, Value)>,
}

impl Fields {
    fn put(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            ("message", value) => self.message = value.to_string(),
            (name, value) => self.others.push((name.to_owned(), value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }
    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.put(field, value.to_string().into());
    }
}

// The trait's bound on the field formatter is met by JsonFields; a mismatch would drop the fields of spans in silence.
const _: fn() = || {
    fn formats_fields<N: for<'a> FormatFields<'a> + 'static>() {}
    formats_fields::<JsonFields>();
};
