//! A caller of CNI plugins, as runtimes are: environment and standard input, in the node's namespaces.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{Pod, TestEnv};
use crate::netns::Node;

/// One attachment of one pod: which plugin, under which name, with which configuration.
#[derive(Debug, Clone)]
pub struct Plugin {
    node: Node,
    program: PathBuf,
    /// A wrapping command: `strace`, `nice`.
    wrapper: Vec<String>,
    environment: BTreeMap<String, String>,
    /// The network configuration.
    pub config: Value,
}

/// The output of a call.
#[derive(Debug, Clone)]
pub struct CallOutput {
    /// Exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// Standard output as JSON; null if it is empty or invalid.
    pub json: Value,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl TestEnv {
    /// egress-router, to be called for `ifname` of `pod`.
    ///
    /// # Errors
    /// It is not built.
    pub fn plugin(&self, pod: &Pod, ifname: &str, config: Value) -> Result<Plugin> {
        Ok(self.other_plugin(super::plugin()?, pod, ifname, config))
    }

    /// Another plugin.
    pub fn other_plugin(&self, program: PathBuf, pod: &Pod, ifname: &str, config: Value) -> Plugin {
        let name = pod.name();
        let environment = [
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            ("CNI_CONTAINERID", name.to_owned()),
            ("CNI_NETNS", pod.netns.clone()),
            ("CNI_IFNAME", ifname.to_owned()),
            ("CNI_PATH", "/usr/lib/cni".to_owned()),
            (
                "CNI_ARGS",
                format!(
                    "IgnoreUnknown=true;K8S_POD_NAMESPACE=default;K8S_POD_NAME={name};K8S_POD_UID=7d6a;K8S_POD_INFRA_CONTAINER_ID={name}"
                ),
            ),
        ];
        Plugin {
            node: self.node.clone(),
            program,
            wrapper: Vec::new(),
            environment: environment.map(|(key, value)| (key.to_owned(), value)).into(),
            config,
        }
    }
}

impl Plugin {
    /// Sets a variable; an empty value removes it.
    pub fn env(mut self, key: &str, value: &str) -> Self {
        self.environment.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Sets the wrapping command (`strace -f …`).
    pub fn wrapped<S: Into<String>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.wrapper = words.into_iter().map(Into::into).collect();
        self
    }

    /// The same attachment with another configuration.
    pub fn with(&self, config: Value) -> Self {
        Self { config, ..self.clone() }
    }

    /// Calls it with `verb`, with any result.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn call(&self, verb: &str, config: &str) -> Result<CallOutput> {
        let mut command: Vec<OsString> =
            vec!["env".into(), "-i".into(), format!("CNI_COMMAND={verb}").into()];
        let variables = self.environment.iter().filter(|(_, value)| !value.is_empty());
        command.extend(variables.map(|(key, value)| format!("{key}={value}").into()));
        command.extend(self.wrapper.iter().map(OsString::from));
        command.push(self.program.clone().into());
        let output = self.node.run_as_runtime(command, config)?;
        let json = serde_json::from_str(&output.stdout).unwrap_or(Value::Null);
        Ok(CallOutput { code: output.code, json, stdout: output.stdout, stderr: output.stderr })
    }

    /// ADD that must succeed; its result.
    ///
    /// # Errors
    /// It does not.
    pub fn add(&self) -> Result<Value> {
        self.call("ADD", &self.config.to_string())?.result().context("ADD")
    }

    /// ADD that must be refused with an error of the specification.
    ///
    /// # Errors
    /// It succeeds, or returns something else.
    pub fn refused(&self) -> Result<CallOutput> {
        self.call("ADD", &self.config.to_string())?.refusal().context("ADD")
    }

    /// DEL that must succeed, with the cached result of ADD.
    ///
    /// # Errors
    /// It does not.
    pub fn del(&self, result: Option<&Value>) -> Result<()> {
        let output = self.call("DEL", &self.after(result).to_string())?;
        ensure!(output.code == Some(0), "DEL: {output:#?}");
        Ok(())
    }

    /// CHECK that must succeed, with the cached result of ADD.
    ///
    /// # Errors
    /// It does not.
    pub fn check_succeeds(&self, result: &Value) -> Result<()> {
        let output = self.check(result)?;
        ensure!(output.code == Some(0), "CHECK: {output:#?}");
        Ok(())
    }

    /// CHECK, with any result.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn check(&self, result: &Value) -> Result<CallOutput> {
        self.call("CHECK", &self.after(Some(result)).to_string())
    }

    /// The configuration with `prevResult`.
    pub fn after(&self, result: Option<&Value>) -> Value {
        let mut config = self.config.clone();
        if let (Some(result), Some(object)) = (result, config.as_object_mut()) {
            object.insert("prevResult".to_owned(), result.clone());
        }
        config
    }
}

impl CallOutput {
    /// The result of a call that must have succeeded.
    ///
    /// # Errors
    /// It failed, or returned nothing.
    pub fn result(self) -> Result<Value> {
        ensure!(self.code == Some(0) && self.json.is_object(), "{self:#?}");
        Ok(self.json)
    }

    /// The output, if it is an error of the specification: a code and a message on standard output.
    ///
    /// # Errors
    /// It is not.
    pub fn refusal(self) -> Result<Self> {
        let message = self.json.get("msg").and_then(Value::as_str).unwrap_or_default();
        let error = self.error_code().is_some() && !message.is_empty();
        ensure!(self.code.is_some_and(|code| code != 0) && error, "{self:#?}");
        Ok(self)
    }

    /// `code` of an error.
    pub fn error_code(&self) -> Option<u64> {
        self.json.get("code").and_then(Value::as_u64)
    }

    /// `msg` and `details` of an error.
    pub fn words(&self) -> String {
        let text = |key: &str| self.json.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        format!("{} {}", text("msg"), text("details"))
    }
}

/// A network configuration whose `ip` is `ip`.
pub fn config(ip: Value) -> Value {
    json!({"cniVersion": "1.1.0", "name": "egress", "type": "egress-router", "ip": ip})
}
