//! A real OpenTelemetry collector on a port of its own, and the spans that it has received.

use std::collections::BTreeMap;

use anyhow::Result;
use e2e::assets;
use e2e::program::{Program, free_port};

pub struct Collector {
    program: Program,
    port: u16,
    _folder: tempfile::TempDir,
}

/// A span, as the collector's debug exporter prints it.
#[derive(Debug, Clone, Default)]
pub struct Span {
    pub name: String,
    pub kind: String,
    /// `Error`, or `Unset`.
    pub status: String,
    pub trace: String,
    pub id: String,
    /// Empty: none.
    pub parent: String,
    pub attributes: BTreeMap<String, String>,
    /// Of who sent it.
    pub resource: BTreeMap<String, String>,
    /// All that was said while it lasted, line by line.
    pub events: Vec<String>,
}

impl Collector {
    pub async fn start() -> Result<Collector> {
        let port = free_port()?;
        let folder = tempfile::tempdir()?;
        let config = folder.path().join("collector.yaml");
        std::fs::write(
            &config,
            format!(
                "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '127.0.0.1:{port}'}}}}}}}}\n\
                 exporters: {{debug: {{verbosity: detailed, use_internal_logger: false}}}}\n\
                 service:\n  telemetry: {{metrics: {{level: none}}}}\n  \
                 pipelines: {{traces: {{receivers: [otlp], exporters: [debug]}}}}\n"
            ),
        )?;
        let program = tokio::task::spawn_blocking(assets::collector).await??;
        let program =
            Program::at(program).arg("--config").arg(format!("file:{}", config.display())).start()?;
        program.wait_for_line(|line| line.contains("Everything is ready")).await?;
        Ok(Collector { program, port, _folder: folder })
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn spans(&self) -> Vec<Span> {
        parse(&self.program.output().lines())
    }
}

impl Span {
    /// Whether something was said in it that has this field.
    pub fn has_attribute(&self, key: &str, value: &str) -> bool {
        self.events.contains(&format!("{key}: {value}"))
    }
}

/// The text inside of `Str(...)`, `Int(...)` and the like.
fn untyped(value: &str) -> &str {
    let types = ["Str(", "Int(", "Bool(", "Double("];
    let inside = types.iter().find_map(|of| value.strip_prefix(of));
    inside.and_then(|inside| inside.strip_suffix(')')).unwrap_or(value)
}

/// The part of the output that a line `-> key: Str(value)` belongs to.
enum Part {
    Resource,
    Attributes,
    Events,
}

fn parse(lines: &[String]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    let mut resource = BTreeMap::new();
    let mut part = Part::Resource;
    for line in lines.iter().map(|line| line.trim()) {
        if line.starts_with("ResourceSpans #") {
            resource.clear();
            part = Part::Resource;
        } else if line.starts_with("Span #") {
            spans.push(Span { resource: resource.clone(), ..Span::default() });
            part = Part::Attributes;
        } else if line == "Events:" {
            part = Part::Events;
        } else if let Some(pair) = line.strip_prefix("-> ") {
            let Some((key, value)) = pair.split_once(": ") else { continue };
            let value = untyped(value);
            match (&part, spans.last_mut()) {
                (Part::Resource, _) => drop(resource.insert(key.to_owned(), value.to_owned())),
                (Part::Attributes, Some(span)) => {
                    drop(span.attributes.insert(key.to_owned(), value.to_owned()))
                }
                (Part::Events, Some(span)) => span.events.push(format!("{key}: {value}")),
                _ => {}
            }
        } else if let (Some((key, value)), Some(span)) = (line.split_once(':'), spans.last_mut()) {
            let value = value.trim().to_owned();
            match (key.trim(), &part) {
                (_, Part::Events) => span.events.push(value),
                ("Name", _) => span.name = value,
                ("Kind", _) => span.kind = value,
                ("Status code", _) => span.status = value,
                ("Trace ID", _) => span.trace = value,
                ("ID", _) => span.id = value,
                ("Parent ID", _) => span.parent = value,
                _ => {}
            }
        }
    }
    spans
}
