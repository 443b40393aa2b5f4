//! The flags in force, for `/flagz`.

use std::collections::BTreeMap;

use clap::{ArgMatches, parser::ValueSource};

/// Every flag of a parsed command line with its value, whether given, taken from the environment or a default, and of its
/// sub-command. Nothing is redacted: no program of ours takes a secret as a flag's value, only files that hold one.
#[must_use]
pub fn shown(matches: &ArgMatches) -> BTreeMap<String, String> {
    let mut flags = BTreeMap::new();
    for id in matches.ids() {
        // Groups of flags have ids too, but no raw values of their own.
        let (Ok(Some(values)), Some(source)) =
            (matches.try_get_raw(id.as_str()), matches.value_source(id.as_str()))
        else {
            continue;
        };
        let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
        let from = match source {
            ValueSource::EnvVariable => " (environment)",
            ValueSource::DefaultValue => " (default)",
            _ => "",
        };
        flags.insert(id.as_str().replace('_', "-"), format!("{}{from}", values.join(",")));
    }
    if let Some((name, matches)) = matches.subcommand() {
        flags.insert("command".into(), name.into());
        flags.extend(shown(matches));
    }
    flags
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::*;

    #[test]
    fn shows_where_a_value_comes_from() {
        let command = Command::new("x")
            .arg(Arg::new("a_b").long("a-b").default_value("1"))
            .arg(Arg::new("c").long("c"))
            .arg(Arg::new("d").long("d"));
        let flags = shown(&command.get_matches_from(["x", "--c", "2"]));
        let flags: Vec<(&str, &str)> = flags.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(flags, [("a-b", "1 (default)"), ("c", "2")]);
    }
}
