//! The syntax of `cloud.conf`: Git's configuration files as Go's gcfg reads them.
//!
//! Sections and keys are of any case; a section may have a quoted subsection; a key may come again, and without `=` it means
//! true. `#` and `;` begin a comment, outside quotes: a password that has one must be quoted, as for Go's programs.

use std::fmt;

/// The sections in their order. Errors name a line and never what stands on it.
#[derive(Debug, Default)]
pub(super) struct Gcfg {
    entries: Vec<Entry>,
}

struct Entry {
    section: String,
    subsection: Option<String>,
    key: String,
    value: String,
}

/// Without the value, which can be a password.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { section, subsection, key, .. } = self;
        f.debug_tuple("Entry").field(section).field(subsection).field(key).finish_non_exhaustive()
    }
}

impl Gcfg {
    pub fn parse(text: &str) -> Result<Gcfg, String> {
        let mut gcfg = Gcfg::default();
        let mut at: Option<(String, Option<String>)> = None;
        let text = text.trim_start_matches('\u{feff}');
        let mut lines = text.lines().enumerate();
        while let Some((number, line)) = lines.next() {
            let wrong = |why: &str| format!("line {}: {why}", number + 1);
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(rest) = line.strip_prefix('[') {
                at = Some(section(rest).map_err(wrong)?);
                continue;
            }
            let (section, subsection) = at.clone().ok_or_else(|| wrong("a key before the first section"))?;
            let end =
                line.find(|c: char| !(c.is_alphanumeric() || c == '-' || c == '_')).unwrap_or(line.len());
            let (key, rest) = line.split_at_checked(end).unwrap_or((line, ""));
            if key.is_empty() {
                return Err(wrong("neither a [section] nor a key = value"));
            }
            let value = match rest.trim_start() {
                rest if rest.is_empty() || rest.starts_with(['#', ';']) => "true".to_owned(),
                rest => {
                    let rest = rest
                        .strip_prefix('=')
                        .ok_or_else(|| wrong("neither a [section] nor a key = value"))?;
                    let mut value = Value::default();
                    let mut more = value.line(rest).map_err(wrong)?;
                    while more {
                        let (_, line) = lines.next().ok_or_else(|| wrong("the text ends within a value"))?;
                        more = value.line(line).map_err(wrong)?;
                    }
                    value.text()
                }
            };
            let key = key.to_ascii_lowercase();
            gcfg.entries.push(Entry { section, subsection, key, value });
        }
        Ok(gcfg)
    }

    /// The last value of a key in a section without subsection; None where there is none or it is empty.
    pub fn get(&self, section: &str, key: &str) -> Option<String> {
        let entry = self.entries.iter().rev().find(|entry| {
            entry.subsection.is_none() && entry.section == section.to_ascii_lowercase() && entry.key == key
        })?;
        Some(entry.value.clone()).filter(|value| !value.is_empty())
    }

    /// The same, of a switch.
    pub fn switch(&self, section: &str, key: &str) -> Result<bool, String> {
        match self.get(section, key).map(|value| value.to_ascii_lowercase()).as_deref() {
            None | Some("false" | "no" | "off" | "0") => Ok(false),
            Some("true" | "yes" | "on" | "1") => Ok(true),
            Some(_) => Err(format!("[{section}] {key} is neither true nor false")),
        }
    }
}

/// Parses the text after the opening bracket of a section: its name and its subsection.
fn section(rest: &str) -> Result<(String, Option<String>), &'static str> {
    let wrong = "a section is [name] or [name \"subsection\"]";
    let rest = rest.trim_start();
    let end = rest.find([']', '"', ' ', '\t']).ok_or(wrong)?;
    let (name, rest) = rest.split_at_checked(end).ok_or(wrong)?;
    if name.is_empty() {
        return Err(wrong);
    }
    let rest = rest.trim_start();
    let (subsection, rest) = match rest.strip_prefix('"') {
        None => (None, rest),
        Some(quoted) => {
            let (subsection, rest) = unquote(quoted).ok_or(wrong)?;
            (Some(subsection), rest.trim_start())
        }
    };
    let rest = rest.strip_prefix(']').ok_or(wrong)?.trim_start();
    match rest.is_empty() || rest.starts_with(['#', ';']) {
        true => Ok((name.to_ascii_lowercase(), subsection)),
        false => Err("something follows the section on its line"),
    }
}

/// A subsection up to its closing quote, and what follows it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next()? {
            '"' => return Some((name, chars.as_str())),
            '\\' => name.push(chars.next()?),
            c => name.push(c),
        }
    }
}

/// A value as it is read, over one or more lines.
#[derive(Default)]
struct Value {
    text: String,
    quoted: bool,
    /// Length of the text without unquoted white space at its end.
    kept: usize,
}

impl Value {
    /// Whether the next line belongs to the value.
    fn line(&mut self, line: &str) -> Result<bool, &'static str> {
        let line = if self.text.is_empty() && !self.quoted { line.trim_start() } else { line };
        let mut chars = line.chars();
        while let Some(c) = chars.next() {
            match c {
                '"' => {
                    self.quoted = !self.quoted;
                    self.kept = self.text.len();
                }
                '\\' => match chars.next() {
                    None => return Ok(true),
                    Some('n') => self.keep('\n'),
                    Some('t') => self.keep('\t'),
                    Some('b') => self.keep('\u{8}'),
                    Some(c @ ('"' | '\\')) => self.keep(c),
                    Some(_) => return Err("an unknown escape: \\\\, \\\", \\n, \\t and \\b are known"),
                },
                '#' | ';' if !self.quoted => break,
                c if c.is_whitespace() && !self.quoted => self.text.push(c),
                c => self.keep(c),
            }
        }
        match self.quoted {
            true => Err("a quote is not closed"),
            false => Ok(false),
        }
    }

    fn keep(&mut self, c: char) {
        self.text.push(c);
        self.kept = self.text.len();
    }

    fn text(mut self) -> String {
        self.text.truncate(self.kept);
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn values_are_read_as_gcfg_reads_them() {
        let text = "\u{feff}; a comment\n# another\n[GLOBAL] # here too\r\n\
            auth-url = https://a/v3 ; the rest is a comment\n\
            Password=\"a #1; \\\"b\\\" \\\\ \"\n\
            two=one \\\n  line\n\
            username = first\nusername = last\n\
            path = a\"  b \"c   \n\
            empty =\nhollow = \"\"\n\
            use-clouds\ntls-insecure ; really\n\
            [LoadBalancerClass \"x ] y\"]\nusername = other\n\
            [ Route ]\nrouter-id=4711";
        let conf = Gcfg::parse(text).unwrap();
        let get = |key: &str| conf.get("Global", key);
        let debug = format!("{conf:?}");
        assert!(debug.contains("password") && !debug.contains("a #1"), "{debug}");
        for (key, value) in [
            ("auth-url", Some("https://a/v3")),
            ("password", Some("a #1; \"b\" \\ ")),
            ("two", Some("one   line")),
            ("username", Some("last")),
            ("path", Some("a  b c")),
            ("empty", None),
            ("hollow", None),
            ("use-clouds", Some("true")),
            ("nothing", None),
        ] {
            assert_eq!(get(key).as_deref(), value, "{key}");
        }
        assert_eq!(conf.get("route", "router-id").as_deref(), Some("4711"));
        assert_eq!(conf.switch("Global", "tls-insecure"), Ok(true));
        assert_eq!(conf.switch("Global", "nothing"), Ok(false));
        assert!(conf.switch("Global", "username").unwrap_err().contains("[Global] username"));
    }

    #[test]
    fn mistakes_name_the_line_and_show_nothing() {
        for (text, line) in [
            ("password = s3cr3t", "line 1: "),
            ("[Global]\npassword s3cr3t", "line 2: "),
            ("[Global]\n\npassword = \"s3cr3t", "line 3: "),
            ("[Global]\npassword = s3cr3t\\", "line 2: "),
            ("[Global]\npassword = s3\\cr3t", "line 2: "),
            ("[Global\npassword = s3cr3t", "line 1: "),
            ("[Global \"s3cr3t]\n", "line 1: "),
            ("[Global] s3cr3t\n", "line 1: "),
            ("[]\n", "line 1: "),
            ("[Global]\n= s3cr3t", "line 2: "),
        ] {
            let why = Gcfg::parse(text).unwrap_err();
            assert!(why.starts_with(line) && !why.contains("s3cr3t"), "{text:?}: {why}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in any::<String>(), lines in "(\\[?[a-zG\"\\\\ü \t\\]]{0,8}[=#;\\\\\n\"]){0,20}") {
            drop(Gcfg::parse(&text));
            drop(Gcfg::parse(&format!("[Global]\n{lines}")));
        }

        /// Parsing a quoted value returns the original text.
        #[test]
        fn a_quoted_value_is_itself(value in "[ -~ü]{0,40}") {
            let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
            let conf = Gcfg::parse(&format!("[Global]\npassword = \"{quoted}\" # its end\n")).unwrap();
            prop_assert_eq!(conf.get("Global", "password"), Some(value).filter(|value| !value.is_empty()));
        }
    }
}
