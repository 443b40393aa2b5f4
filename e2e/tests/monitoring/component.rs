//! The monitoring of one controller, as it is rendered into an overlay.

use std::path::Path;

use e2e::kustomize;
use serde_json::{Value, json};

/// All that the overlay holds.
pub struct Component {
    pub controller: &'static str,
    pub yaml: String,
    objects: Vec<Value>,
}

/// One alert.
pub struct Alert {
    pub name: String,
    pub severity: String,
    pub annotations: Value,
}

impl Component {
    pub fn of(controller: &'static str) -> Component {
        // As a user has it who takes everything.
        let own = ["ha", "monitoring"].map(|component| format!("{component}/{controller}"));
        let overlay = kustomize::overlay(controller, &["otlp", &own[0], &own[1]]).unwrap();
        let yaml = kustomize::render(overlay.path()).unwrap();
        let objects = kustomize::objects(&yaml).unwrap();
        Component { controller, yaml, objects }
    }

    pub fn only(&self, kind: &str) -> &Value {
        kustomize::only(&self.objects, kind).unwrap()
    }

    pub fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    fn groups(&self) -> &Value {
        &self.only("PrometheusRule")["spec"]["groups"]
    }

    fn rules(&self) -> impl Iterator<Item = &Value> {
        self.groups().as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap())
    }

    pub fn alerts(&self) -> Vec<Alert> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.rules()
            .filter(|rule| rule.get("alert").is_some())
            .map(|rule| Alert {
                name: text(&rule["alert"]),
                severity: text(&rule["labels"]["severity"]),
                annotations: rule["annotations"].clone(),
            })
            .collect()
    }

    /// The rules as prometheus-operator hands them to Prometheus; the file's path.
    pub fn rules_file(&self, folder: &Path) -> String {
        let file = folder.join("rules.json");
        // JSON is YAML.
        std::fs::write(&file, json!({ "groups": self.groups() }).to_string()).unwrap();
        file.to_str().unwrap().to_owned()
    }

    pub fn dashboard(&self) -> (&Value, Value) {
        let expected = format!("{}-dashboard", self.controller);
        let map = self.objects.iter().find(|object| object["metadata"]["name"] == expected.as_str()).unwrap();
        let text = map["data"][format!("{}.json", self.controller)].as_str().unwrap();
        (map, serde_json::from_str(text).unwrap())
    }

    /// Every PromQL expression, and where it stands.
    pub fn expressions(&self) -> Vec<(String, String)> {
        let mut all: Vec<(String, String)> = self
            .rules()
            .map(|rule| {
                let name = rule.get("alert").or_else(|| rule.get("record")).unwrap().as_str().unwrap();
                (name.to_owned(), rule["expr"].as_str().unwrap().to_owned())
            })
            .collect();
        let (_, dashboard) = self.dashboard();
        for panel in dashboard["panels"].as_array().unwrap() {
            let title = panel["title"].as_str().unwrap();
            for target in panel["targets"].as_array().into_iter().flatten() {
                all.push((format!("panel {title}"), target["expr"].as_str().unwrap().to_owned()));
            }
        }
        for annotation in dashboard["annotations"]["list"].as_array().unwrap() {
            all.push(("an annotation".into(), annotation["expr"].as_str().unwrap().to_owned()));
        }
        for variable in dashboard["templating"]["list"].as_array().unwrap() {
            if let Some(query) = variable["definition"].as_str() {
                let series = query.strip_prefix("label_values(").unwrap().rsplit_once(',').unwrap().0;
                all.push(("a variable".into(), series.to_owned()));
            }
        }
        all
    }
}
