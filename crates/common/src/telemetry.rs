//! Logs on stderr, and traces to wherever the standard `OTEL_*` variables say.
//!
//! A log line is one flat JSON object (`ts`, `level`, `target`, `msg`, then fields; those of the spans around it too), or a
//! line for a person on a terminal. Its filter can be changed while the program runs.
//!
//! Traces go out over OTLP/gRPC where `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` is set, else
//! nowhere; over plain HTTP/2, so that an `https` endpoint is refused at the start, and a warning is logged where
//! `OTEL_EXPORTER_OTLP_PROTOCOL` names another protocol. `OTEL_SERVICE_NAME`,
//! `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_TRACES_SAMPLER`, `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_BSP_*`, `OTEL_TRACES_EXPORTER=none` and
//! `OTEL_SDK_DISABLED=true` mean what the OpenTelemetry specification says. A collector that is away costs nothing but its
//! traces: each complaint of the exporter is logged once in ten minutes.

use std::{io::IsTerminal, time::Duration};

use anyhow::Context;
use opentelemetry::{KeyValue, trace::TracerProvider};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::{FilterExt, filter_fn},
    fmt::MakeWriter,
    layer::SubscriberExt,
    registry::LookupSpan,
    reload,
};

use crate::{
    args::{LogArgs, LogFormat, Program},
    config::ConfigError,
};

mod json;
mod sparing;

/// The log filter where none is given.
const DEFAULT_FILTER: &str = "info";

/// How long the last spans may take to leave; the rest of the grace period after the drain is 5 s.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// The telemetry of this process, from [`Telemetry::start`] to [`Telemetry::end`].
#[derive(Debug)]
pub struct Telemetry {
    level: LogLevel,
    traces: Option<SdkTracerProvider>,
}

/// The log filter, changeable while the program runs. Clones share it.
#[derive(Clone, Debug)]
pub struct LogLevel {
    handle: reload::Handle<EnvFilter, Registry>,
}

impl LogLevel {
    /// The filter in force.
    #[must_use]
    pub fn get(&self) -> String {
        self.handle.with_current(ToString::to_string).unwrap_or_default()
    }

    /// Replaces the filter: a level, or levels by module.
    ///
    /// # Errors
    /// One line that says what is wrong with it; the old one stays.
    pub fn set(&self, filter: &str) -> Result<(), String> {
        let filter = parse(filter)?;
        self.handle.reload(filter).map_err(|error| error.to_string())
    }
}

fn parse(filter: &str) -> Result<EnvFilter, String> {
    if filter.trim().is_empty() {
        return Err(
            "an empty log filter; write a level (info) or levels by module (info,natgw=debug)".to_owned()
        );
    }
    EnvFilter::builder().parse(filter).map_err(|error| {
        format!(
            "log filter \"{filter}\": {error}; write a level (info) or levels by module (info,natgw=debug)"
        )
    })
}

impl Telemetry {
    /// Takes over logs and traces of the whole process. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`ConfigError`] for a filter or an `OTEL_*` variable that cannot be used; any other error when it was called before.
    pub fn start(program: &Program, args: &LogArgs) -> anyhow::Result<Telemetry> {
        let traces = traces(program)?;
        let (subscriber, level) = subscriber(args, traces.as_ref(), std::io::stderr)?;
        tracing::subscriber::set_global_default(subscriber).context("telemetry was started twice")?;
        if let Some(variable) = other_protocol().filter(|_| traces.is_some()) {
            tracing::warn!(
                variable,
                "this protocol is not supported: traces are sent over gRPC, to whose port the endpoint has to lead (4317)"
            );
        }
        Ok(Telemetry { level, traces })
    }

    /// The log filter.
    #[must_use]
    pub fn level(&self) -> LogLevel {
        self.level.clone()
    }

    /// Sends what is left of the traces; gives up after 3 s.
    pub async fn end(self) {
        let Some(traces) = self.traces else { return };
        // It blocks its thread until the exporter is done, and the exporter needs this one.
        let flush = tokio::task::spawn_blocking(move || traces.shutdown_with_timeout(FLUSH_TIMEOUT));
        match flush.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the last traces were not sent"),
            Err(error) => tracing::warn!(%error, "the last traces were not sent"),
        }
    }
}

/// The layers; where they write to is the test's choice.
fn subscriber<W>(
    args: &LogArgs,
    traces: Option<&SdkTracerProvider>,
    writer: W,
) -> anyhow::Result<(impl Subscriber + Send + Sync, LogLevel)>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    // An empty RUST_LOG is the same as none.
    let filter = args.log_filter.as_deref().filter(|filter| !filter.is_empty()).unwrap_or(DEFAULT_FILTER);
    let filter = parse(filter).map_err(ConfigError)?;
    let (filter, handle) = reload::Layer::new(filter);
    let terminal = std::io::stderr().is_terminal();
    let format = args.log_format.unwrap_or(if terminal { LogFormat::Plain } else { LogFormat::Json });
    let logs = match format {
        LogFormat::Json => json::layer(writer).boxed(),
        LogFormat::Plain => tracing_subscriber::fmt::layer()
            .with_writer(writer)
            .with_ansi(terminal)
            .with_target(false)
            .boxed(),
    };
    let filter = filter.and(sparing::Sparing::default());
    let subscriber = Registry::default().with(logs.with_filter(filter)).with(traces.map(spans));
    Ok((subscriber, LogLevel { handle }))
}

/// Spans at info and above, of our own code: the exporter's own calls would make spans that make calls. Their events do not contain
/// responses.
fn spans<S>(traces: &SdkTracerProvider) -> impl Layer<S> + use<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    const FOREIGN: [&str; 6] = ["opentelemetry", "tonic", "h2", "hyper", "tower", sparing::RESPONSES];
    tracing_opentelemetry::layer()
        .with_tracer(traces.tracer("perimeter"))
        // There is one thread.
        .with_threads(false)
        .with_filter(filter_fn(|metadata| !FOREIGN.iter().any(|name| metadata.target().starts_with(name))))
        .with_filter(LevelFilter::INFO)
}

fn traces(program: &Program) -> anyhow::Result<Option<SdkTracerProvider>> {
    let set = |name: &str| std::env::var(name).is_ok_and(|value| !value.is_empty());
    let is = |name: &str, word: &str| std::env::var(name).is_ok_and(|value| value.eq_ignore_ascii_case(word));
    let disabled = is("OTEL_SDK_DISABLED", "true") || is("OTEL_TRACES_EXPORTER", "none");
    if disabled || !(set("OTEL_EXPORTER_OTLP_ENDPOINT") || set("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")) {
        return Ok(None);
    }
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_protocol(opentelemetry_otlp::Protocol::Grpc)
        .build()
        .map_err(|error| refused(&error.to_string(), |name| std::env::var(name).ok()))?;
    let mut resource = Resource::builder()
        .with_attribute(KeyValue::new("service.version", program.version))
        .with_attribute(KeyValue::new("vcs.ref.head.revision", program.revision));
    if !set("OTEL_SERVICE_NAME") && !std::env::var("OTEL_RESOURCE_ATTRIBUTES").is_ok_and(names_the_service) {
        resource = resource.with_service_name(program.name);
    }
    Ok(Some(
        SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build(),
    ))
}

/// The error of an endpoint, whose URL can have a user and a password.
fn refused(why: &str, value: impl Fn(&'static str) -> Option<String>) -> ConfigError {
    let variables = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
    let secret = variables.into_iter().filter_map(value).filter(|url| url.contains('@'));
    let why = secret.fold(why.to_owned(), |why, url| why.replace(url.trim(), "[redacted]"));
    ConfigError(format!("OTEL_EXPORTER_OTLP_ENDPOINT: {why}"))
}

/// The variable that names another protocol than gRPC; that of the traces has precedence.
fn other_protocol() -> Option<String> {
    let value = |name: &'static str| {
        let value = std::env::var(name).ok().filter(|value| !value.is_empty())?;
        Some((name, value))
    };
    let (name, protocol) =
        value("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL").or_else(|| value("OTEL_EXPORTER_OTLP_PROTOCOL"))?;
    (!protocol.eq_ignore_ascii_case("grpc")).then(|| format!("{name}={protocol}"))
}

fn names_the_service(attributes: String) -> bool {
    attributes.split(',').any(|pair| pair.trim().starts_with("service.name="))
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

    use serde_json::Value;

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl Sink {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn with_logs(format: LogFormat, filter: Option<&str>, work: impl FnOnce(&LogLevel)) -> String {
        let sink = Sink::default();
        let writer = sink.clone();
        let args = LogArgs { log_format: Some(format), log_filter: filter.map(str::to_owned) };
        let (subscriber, level) = subscriber(&args, None, move || writer.clone()).unwrap();
        tracing::subscriber::with_default(subscriber, || work(&level));
        sink.text()
    }

    #[test]
    fn a_json_line_is_flat_and_has_the_fields_of_its_spans() {
        let text = with_logs(LogFormat::Json, None, |_| {
            let _outer =
                tracing::info_span!("pass", reconcile_id = 7, node = "outer", otel.kind = "internal")
                    .entered();
            let _inner = tracing::info_span!("step", node = "inner").entered();
            tracing::warn!(ok = true, error = %io::Error::other("a \"quoted\" fault"), count = 3, "it {}", "failed");
        });
        let line: Value = serde_json::from_str(&text).unwrap();
        let mut keys: Vec<_> = line.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["count", "error", "level", "msg", "node", "ok", "reconcile_id", "target", "ts"]);
        assert!(text.starts_with("{\"ts\":\""), "{text}");
        assert_eq!((&line["level"], &line["msg"]), (&"warn".into(), &"it failed".into()));
        assert_eq!(
            (&line["ok"], &line["count"], &line["reconcile_id"]),
            (&true.into(), &3.into(), &7.into())
        );
        assert_eq!((&line["error"], &line["node"]), (&"a \"quoted\" fault".into(), &"inner".into()));
        assert!(line["target"].as_str().unwrap().starts_with("common::telemetry"));
        line["ts"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    }

    #[test]
    fn a_plain_line_is_for_a_person() {
        let text = with_logs(LogFormat::Plain, None, |_| tracing::info!(address = "[::]:8080", "listens"));
        assert!(
            text.contains("INFO") && text.trim_end().ends_with("listens address=\"[::]:8080\""),
            "{text:?}"
        );
    }

    #[test]
    fn a_secret_that_cannot_be_decoded_is_not_logged() {
        let text = with_logs(LogFormat::Plain, Some("trace"), |_| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
                    let body = br#"{"metadata": {"name": 7}, "data": {"token": "aGlkZGVu"}}"#;
                    Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::from(
                        body.to_vec(),
                    )))
                });
                let client = kube::Client::new(service, "default");
                assert!(crate::secret::SecretData::read(&client, "a", "b").await.is_err());
            });
            tracing::warn!("the end");
        });
        assert!(text.contains("the end") && !text.contains("aGlkZGVu"), "{text}");
    }

    #[test]
    fn the_filter_changes_while_it_runs_and_a_bad_one_changes_nothing() {
        let text = with_logs(LogFormat::Plain, None, |level| {
            tracing::debug!("one");
            assert_eq!(level.get(), "info");
            level.set("common=debug").unwrap();
            tracing::debug!("two");
            for bad in ["common=loud", ""] {
                let why = level.set(bad).unwrap_err();
                assert!(why.contains("info,natgw=debug"), "{why}");
            }
            tracing::debug!("three");
            level.set("error").unwrap();
            tracing::warn!("four");
        });
        let seen = |word| text.contains(word);
        assert_eq!(
            [seen("one"), seen("two"), seen("three"), seen("four")],
            [false, true, true, false],
            "{text}"
        );
    }

    #[test]
    fn a_refused_endpoint_is_reported_without_its_password() {
        let of = |url: &'static str| {
            let why = format!("endpoint '{url}/' uses HTTPS");
            let value =
                |name: &'static str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| format!("{url} "));
            refused(&why, value).to_string()
        };
        let text = of("https://user:hidden@collector:4317");
        assert!(text.contains("uses HTTPS") && !text.contains("hidden"), "{text}");
        assert!(of("https://collector:4317").contains("https://collector:4317"));
    }

    #[test]
    fn a_bad_filter_at_start_is_bad_configuration() {
        let args = LogArgs { log_format: None, log_filter: Some("natgw=loud".into()) };
        let error = subscriber(&args, None, io::stderr).err().unwrap();
        assert!(error.is::<ConfigError>() && error.to_string().contains("natgw=loud"), "{error}");
    }
}
