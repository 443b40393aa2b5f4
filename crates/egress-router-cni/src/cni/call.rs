//! One call of the plugin: the environment that the runtime sets.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use super::args::Args;
use super::error::{Code, Error};

/// `CNI_COMMAND`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// ADD
    Add,
    /// DEL
    Del,
    /// CHECK
    Check,
    /// STATUS
    Status,
    /// GC
    Gc,
    /// VERSION
    Version,
}

impl Command {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Add, Self::Del, Self::Check, Self::Status, Self::Gc, Self::Version];

    /// As `CNI_COMMAND` writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Del => "DEL",
            Self::Check => "CHECK",
            Self::Status => "STATUS",
            Self::Gc => "GC",
            Self::Version => "VERSION",
        }
    }

    /// Whether it is for one interface of one container.
    #[must_use]
    pub fn names_attachment(self) -> bool {
        matches!(self, Self::Add | Self::Del | Self::Check)
    }

    /// Whether it removes attachments. Such an operation must not fail because of a later mistake in the configuration, because the runtime
    /// would retry it for ever.
    #[must_use]
    pub fn is_teardown(self) -> bool {
        matches!(self, Self::Del | Self::Gc)
    }

    /// Whether it needs the pod's namespace.
    #[must_use]
    pub fn needs_namespace(self) -> bool {
        matches!(self, Self::Add | Self::Check)
    }
}

/// The environment, validated for the operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `CNI_COMMAND`.
    pub command: Command,
    /// `CNI_CONTAINERID`; empty if the operation needs none.
    pub container_id: String,
    /// `CNI_NETNS`: a path. DEL may come without.
    pub netns: Option<PathBuf>,
    /// `CNI_IFNAME`; empty where the verb needs none.
    pub ifname: String,
    /// `CNI_ARGS`; empty where the verb needs none.
    pub args: Args,
    /// `CNI_NETNS_OVERRIDE` is true: the plugin's own namespace is allowed as the pod's.
    pub netns_override: bool,
}

/// For the log: operation, container and interface.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.command.as_str(), self.container_id, self.ifname)
    }
}

impl Call {
    /// Reads the environment with `get`. None if `CNI_COMMAND` is unset or empty, when a user has started the program.
    ///
    /// `CNI_PATH` is not read, because only plugins that delegate need it.
    ///
    /// # Errors
    ///
    /// Code 4, with the variable, its value and the allowed values.
    pub fn from_env(get: impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, Error> {
        let Some(command) = text(&get, "CNI_COMMAND")? else { return Ok(None) };
        let command = Command::ALL.into_iter().find(|verb| verb.as_str() == command).ok_or_else(|| {
            let verbs = Command::ALL.map(Command::as_str).join(", ");
            invalid(format!("CNI_COMMAND is {command:?}: it must be one of {verbs}"))
        })?;
        let mut call = Self {
            command,
            container_id: String::new(),
            netns: None,
            ifname: String::new(),
            args: Args::default(),
            netns_override: false,
        };
        if !command.names_attachment() {
            return Ok(Some(call));
        }
        call.container_id = needed(&get, "CNI_CONTAINERID", command)?;
        if !is_name(&call.container_id) {
            return Err(invalid(format!("CNI_CONTAINERID is {:?}: {NAME}", call.container_id)));
        }
        call.ifname = needed(&get, "CNI_IFNAME", command)?;
        // ADD refuses more names than the specification. The runtime also calls DEL after it, and retries a refused DEL for ever.
        let wrong = if command == Command::Del { specified_name } else { interface_name };
        if let Some(wrong) = wrong(&call.ifname) {
            return Err(invalid(format!("CNI_IFNAME is {:?}: {wrong}", call.ifname)));
        }
        // A path, and so of any bytes.
        call.netns = get("CNI_NETNS").filter(|path| !path.is_empty()).map(PathBuf::from);
        if call.netns.is_none() && command.needs_namespace() {
            return Err(missing("CNI_NETNS", command));
        }
        // The runtime also calls DEL after an ADD that was refused for its arguments, and retries a refused DEL for ever.
        if command.needs_namespace() {
            call.args = match text(&get, "CNI_ARGS")? {
                Some(args) => Args::parse(&args)?,
                None => Args::default(),
            };
        }
        call.netns_override = text(&get, "CNI_NETNS_OVERRIDE")?
            .is_some_and(|flag| flag == "1" || flag.eq_ignore_ascii_case("true"));
        Ok(Some(call))
    }
}

/// The specification's rule for network names and container IDs.
pub(crate) const NAME: &str = "it must be a letter or digit, followed by letters, digits, '_', '.' and '-'";

/// Whether `text` matches [`NAME`].
pub(crate) fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphanumeric())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

/// The rule that an interface's name violates, of the kernel's rules (dev_valid_name in net/core/dev.c) and IFNAMSIZ.
/// None if it is valid.
pub(crate) fn interface_name(name: &str) -> Option<&'static str> {
    specified_name(name).or_else(|| any_name(name))
}

/// The rule of the specification that it violates, of those for `CNI_IFNAME`.
fn specified_name(name: &str) -> Option<&'static str> {
    if name.is_empty() || name.len() > 15 {
        return Some("an interface's name has 1 to 15 bytes");
    }
    if name == "." || name == ".." {
        return Some("\".\" and \"..\" are not valid interface names");
    }
    let refused = |letter: char| matches!(letter, '/' | ':') || letter.is_whitespace();
    name.contains(refused).then_some(LETTERS)
}

/// The same of a name by which an interface may also be known (ip-link(8), altname), by ALTIFNAMSIZ.
pub(crate) fn alternative_name(name: &str) -> Option<&'static str> {
    if name.is_empty() || name.len() > 127 {
        return Some("an interface's name has 1 to 15 bytes, and one of its alternative names up to 127");
    }
    any_name(name)
}

fn any_name(name: &str) -> Option<&'static str> {
    if name == "." || name == ".." {
        return Some("\".\" and \"..\" are not valid interface names");
    }
    // These are also names of sysctl folders (sysctl_dev_name_is_allowed in linux/net.h).
    if name == "all" || name == "default" {
        return Some("\"all\" and \"default\" are not valid interface names");
    }
    // '%': the kernel counts such names through (dev_alloc_name), and the interface would have another one.
    name.chars()
        .any(|letter| matches!(letter, '/' | ':' | '%') || letter.is_whitespace() || letter.is_control())
        .then_some(LETTERS)
}

/// For both: a user corrects the name once.
const LETTERS: &str = "an interface's name has no '/', no ':', no '%', no space and no control character";

fn invalid(message: String) -> Error {
    Error::new(Code::InvalidEnvironment, message)
}

fn missing(name: &str, command: Command) -> Error {
    invalid(format!("{name} is missing: {} needs it", command.as_str()))
}

fn text(get: &impl Fn(&str) -> Option<OsString>, name: &str) -> Result<Option<String>, Error> {
    match get(name).filter(|value| !value.is_empty()).map(OsString::into_string) {
        None => Ok(None),
        Some(Ok(value)) => Ok(Some(value)),
        Some(Err(value)) => Err(invalid(format!("{name} is {value:?}: it must be UTF-8"))),
    }
}

fn needed(get: &impl Fn(&str) -> Option<OsString>, name: &str, command: Command) -> Result<String, Error> {
    text(get, name)?.ok_or_else(|| missing(name, command))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::path::Path;

    use proptest::prelude::*;

    use super::{Call, Command, interface_name, is_name};
    use crate::cni::{Code, Error};

    fn call(variables: &[(&str, &str)]) -> Result<Option<Call>, Error> {
        Call::from_env(|name| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value))
        })
    }

    const ADD: [(&str, &str); 4] = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c0ffee"),
        ("CNI_NETNS", "/run/netns/pod"),
        ("CNI_IFNAME", "net1"),
    ];

    fn add_with(name: &'static str, value: &'static str) -> Result<Option<Call>, Error> {
        let mut variables = ADD.to_vec();
        variables.retain(|(key, _)| *key != name);
        variables.push((name, value));
        call(&variables)
    }

    #[test]
    fn without_cni_command_there_is_no_call() {
        assert_eq!(call(&[]).unwrap(), None);
        assert_eq!(call(&[("CNI_COMMAND", ""), ("CNI_IFNAME", "a/b")]).unwrap(), None);
    }

    #[test]
    fn an_add_says_everything() {
        let call =
            add_with("CNI_ARGS", "IgnoreUnknown=1;K8S_POD_NAME=a;K8S_POD_NAMESPACE=b").unwrap().unwrap();
        assert_eq!(call.command, Command::Add);
        assert_eq!((call.container_id.as_str(), call.ifname.as_str()), ("c0ffee", "net1"));
        assert_eq!(call.netns.as_deref(), Some(Path::new("/run/netns/pod")));
        assert_eq!(call.args.pod_name.as_deref(), Some("a"));
        assert!(!call.netns_override);
        assert!(add_with("CNI_NETNS_OVERRIDE", "True").unwrap().unwrap().netns_override);
    }

    #[test]
    fn each_operation_needs_the_variables_of_the_specification() {
        let table: [(&str, &[&str]); 6] = [
            ("ADD", &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"]),
            ("CHECK", &["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"]),
            ("DEL", &["CNI_CONTAINERID", "CNI_IFNAME"]),
            ("STATUS", &[]),
            ("GC", &[]),
            ("VERSION", &[]),
        ];
        for (verb, needs) in table {
            let all = ADD.map(|(key, value)| match key {
                "CNI_COMMAND" => ("CNI_COMMAND", verb),
                key => (key, value),
            });
            for without in ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"] {
                for empty in [true, false] {
                    let mut some: Vec<_> = all.iter().copied().filter(|(key, _)| *key != without).collect();
                    if empty {
                        some.push((without, ""));
                    }
                    match call(&some) {
                        Ok(Some(_)) => assert!(!needs.contains(&without), "{verb} without {without}"),
                        Err(error) => {
                            assert!(needs.contains(&without), "{verb} without {without}: {error}");
                            assert_eq!(error.code, Code::InvalidEnvironment);
                            assert!(error.message.contains(without) && error.message.contains(verb));
                        }
                        Ok(None) => unreachable!(),
                    }
                }
            }
        }
    }

    #[test]
    fn an_error_has_the_variable_and_the_allowed_values() {
        for (name, value) in [
            ("CNI_COMMAND", "add"),
            ("CNI_COMMAND", "UPDATE"),
            ("CNI_CONTAINERID", "-x"),
            ("CNI_CONTAINERID", "a/../b"),
            ("CNI_CONTAINERID", "a b"),
            ("CNI_IFNAME", "."),
            ("CNI_IFNAME", ".."),
            ("CNI_IFNAME", "a/b"),
            ("CNI_IFNAME", "a:b"),
            ("CNI_IFNAME", "a b"),
            ("CNI_IFNAME", "net%d"),
            ("CNI_IFNAME", "all"),
            ("CNI_IFNAME", "default"),
            ("CNI_IFNAME", "sixteen-letters-"),
            ("CNI_ARGS", "K8S_POD_NAME"),
        ] {
            let error = add_with(name, value).unwrap_err();
            assert_eq!(error.code, Code::InvalidEnvironment);
            assert!(error.message.contains(name) && error.message.contains(value), "{error}");
        }
        let error =
            Call::from_env(|name| (name == "CNI_COMMAND").then(|| OsString::from_vec(vec![b'A', 0xff])))
                .unwrap_err();
        assert_eq!(error.code, Code::InvalidEnvironment);
    }

    #[test]
    fn del_accepts_arguments_that_add_refused() {
        let variables =
            ADD.map(|(key, value)| if key == "CNI_COMMAND" { (key, "DEL") } else { (key, value) });
        let with = [&variables[..], &[("CNI_ARGS", "K8S_POD_NAME")]].concat();
        assert_eq!(call(&with).unwrap().unwrap().args, super::Args::default());
    }

    /// A pod's annotation may have such a name (`egress@all`). Otherwise the pod could never be deleted.
    #[test]
    fn del_accepts_interface_names_that_only_add_refuses() {
        for (name, specified) in
            [("all", true), ("default", true), ("net%d", true), ("a/b", false), ("..", false)]
        {
            let variables = ADD.map(|(key, value)| match key {
                "CNI_COMMAND" => (key, "DEL"),
                "CNI_IFNAME" => (key, name),
                key => (key, value),
            });
            assert!(add_with("CNI_IFNAME", name).is_err(), "{name}");
            assert_eq!(call(&variables).is_ok(), specified, "{name}");
        }
    }

    #[test]
    fn operations_of_the_node_ignore_variables_of_a_pod() {
        assert!(
            call(&[("CNI_COMMAND", "VERSION"), ("CNI_ARGS", "x"), ("CNI_IFNAME", "a/b")]).unwrap().is_some()
        );
    }

    proptest! {
        #[test]
        fn never_a_panic(values in proptest::collection::vec(any::<Vec<u8>>(), 6)) {
            let names = ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_NETNS_OVERRIDE"];
            let _ = Call::from_env(|name| {
                let value = names.iter().position(|key| *key == name).map(|index| values[index].clone())?;
                Some(if name == "CNI_COMMAND" { OsString::from("ADD") } else { OsString::from_vec(value) })
            });
        }

        #[test]
        fn names_match_the_specifications_expression(name in "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,20}") {
            prop_assert!(is_name(&name));
            prop_assert!(interface_name(&name).is_none() || name.len() > 15);
        }
    }
}
