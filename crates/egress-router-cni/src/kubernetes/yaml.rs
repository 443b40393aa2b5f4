//! The subset of YAML in kubeconfigs, as kubectl, kubeadm and the programs of cloud providers write them, and JSON.
//!
//! A complete YAML crate would make the program a third larger. Supported are block mappings and
//! block sequences of scalars on one line (plain, 'single' or "double" quoted), flow collections, comments and one document.
//! Anchors, tags and scalars over several lines are refused, never read as something else. Source: YAML 1.2.2.

use serde_json::{Map, Value};

/// Deeper than any kubeconfig, and shallow enough for the stack.
const MAX_DEPTH: usize = 32;

/// The line (from 1) with an unsupported construct. It does not quote the line, which may contain a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unknown {
    /// From 1 on.
    pub line: usize,
}

/// A line that is not empty.
#[derive(Clone, Copy)]
struct Line<'a> {
    number: usize,
    indent: usize,
    text: &'a str,
}

/// The lines of a document and the position.
struct Document<'a> {
    lines: Vec<Line<'a>>,
    next: usize,
}

/// Parses the document; scalars are strings, except unquoted `true`, `false` and `null`.
///
/// # Errors
///
/// The first line that is not supported.
pub fn parse(text: &str) -> Result<Value, Unknown> {
    let mut document = Document { lines: Vec::new(), next: 0 };
    for (index, whole) in text.lines().enumerate() {
        let line = whole.trim_start_matches(' ');
        let (number, indent) = (index + 1, whole.len() - line.len());
        let first = document.lines.is_empty();
        match line.trim_end() {
            "" => {}
            comment if comment.starts_with('#') => {}
            "---" if first && indent == 0 => {}
            marker
                if indent == 0
                    && (marker.starts_with("---")
                        || marker.starts_with("...")
                        || marker.starts_with('%')) =>
            {
                return Err(Unknown { line: number });
            }
            text if text.starts_with('\t') => return Err(Unknown { line: number }),
            text => document.lines.push(Line { number, indent, text }),
        }
    }
    let Some(first) = document.peek() else { return Ok(Value::Null) };
    let value = document.block(first.indent, 0)?;
    match document.peek() {
        None => Ok(value),
        Some(line) => Err(Unknown { line: line.number }),
    }
}

impl<'a> Document<'a> {
    fn peek(&self) -> Option<Line<'a>> {
        self.lines.get(self.next).copied()
    }

    /// The value at `indent` from the next line on.
    fn block(&mut self, indent: usize, depth: usize) -> Result<Value, Unknown> {
        let Some(line) = self.peek() else { return Ok(Value::Null) };
        if depth > MAX_DEPTH {
            return Err(Unknown { line: line.number });
        }
        if is_item(line.text) {
            self.sequence(indent, depth)
        } else if split_key(line.text).is_some() {
            self.mapping(indent, depth)
        } else {
            self.next += 1;
            scalar(line.text).ok_or(Unknown { line: line.number })
        }
    }

    fn sequence(&mut self, indent: usize, depth: usize) -> Result<Value, Unknown> {
        let mut items = Vec::new();
        while let Some(line) = self.peek().filter(|line| line.indent == indent && is_item(line.text)) {
            let rest = line.text.get(1..).unwrap_or_default();
            let inner = rest.trim_start_matches(' ');
            if uncommented(inner).is_empty() {
                self.next += 1;
                items.push(self.below(indent, false, depth)?);
                continue;
            }
            // The text after the dash has its own indentation: `- name: a` begins a mapping.
            let inner_indent = indent + line.text.len() - inner.len();
            if let Some(place) = self.lines.get_mut(self.next) {
                *place = Line { number: line.number, indent: inner_indent, text: inner };
            }
            items.push(self.block(inner_indent, depth + 1)?);
        }
        Ok(Value::Array(items))
    }

    fn mapping(&mut self, indent: usize, depth: usize) -> Result<Value, Unknown> {
        let mut entries = Map::new();
        while let Some(line) = self.peek().filter(|line| line.indent == indent) {
            let unknown = Unknown { line: line.number };
            if is_item(line.text) {
                break;
            }
            let (key, rest) = split_key(line.text).ok_or(unknown)?;
            self.next += 1;
            let value = if uncommented(rest).is_empty() {
                self.below(indent, true, depth)?
            } else {
                scalar(rest).ok_or(unknown)?
            };
            if entries.insert(key, value).is_some() {
                return Err(unknown);
            }
        }
        Ok(Value::Object(entries))
    }

    /// The value below a key or a dash at `indent`. The items of a key's sequence may have the key's indentation.
    fn below(&mut self, indent: usize, of_key: bool, depth: usize) -> Result<Value, Unknown> {
        match self.peek() {
            Some(line) if line.indent > indent => self.block(line.indent, depth + 1),
            Some(line) if of_key && line.indent == indent && is_item(line.text) => {
                self.sequence(indent, depth + 1)
            }
            _ => Ok(Value::Null),
        }
    }
}

fn is_item(text: &str) -> bool {
    text == "-" || text.starts_with("- ")
}

/// `text` up to a comment, without spaces around.
fn uncommented(text: &str) -> &str {
    let text = text.trim();
    if text.starts_with('#') {
        return "";
    }
    text.split_once(" #").map_or(text, |(before, _)| before.trim_end())
}

/// The key of `key: …` or `key:`, and what follows the colon.
fn split_key(text: &str) -> Option<(String, &str)> {
    let (key, rest) = if text.starts_with(['"', '\'']) {
        let (key, rest) = quoted(text)?;
        (key, rest.trim_start().strip_prefix(':')?)
    } else {
        let end = text
            .char_indices()
            .find(|(at, letter)| {
                *letter == ':'
                    && text.get(at + 1..).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            })?
            .0;
        let (key, rest) = text.split_at(end);
        (plain_key(key.trim_end())?.to_owned(), rest.get(1..)?)
    };
    (rest.is_empty() || rest.starts_with(' ')).then_some((key, rest))
}

/// A value on one line, followed only by a comment.
fn scalar(text: &str) -> Option<Value> {
    let text = text.trim();
    let (value, rest) = match text.chars().next()? {
        '"' | '\'' => quoted(text).map(|(text, rest)| (Value::String(text), rest))?,
        '{' | '[' => flow(text, 0)?,
        _ => return known(plain(uncommented(text))?),
    };
    let nothing = rest.is_empty() || (rest.starts_with(' ') && uncommented(rest).is_empty());
    nothing.then_some(value)
}

fn known(text: &str) -> Option<Value> {
    Some(match text {
        "true" => true.into(),
        "false" => false.into(),
        "null" | "~" | "" => Value::Null,
        text => text.into(),
    })
}

/// A plain scalar; none if it has an indicator with another meaning.
fn plain(text: &str) -> Option<&str> {
    let begins = text
        .starts_with(['&', '*', '!', '|', '>', '%', '@', '`', '{', '}', '[', ']', ',', '#', '"', '\''])
        || text.starts_with("- ")
        || text.starts_with("? ")
        || matches!(text, "-" | "?" | ":");
    (!begins && !text.contains(": ") && !text.ends_with(':') && !text.contains(" #") && !text.contains('\t'))
        .then_some(text)
}

/// A key that is not quoted: a name, as all of a kubeconfig's are.
fn plain_key(text: &str) -> Option<&str> {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let name = text.starts_with(|letter: char| letter.is_ascii_alphabetic()) && text.bytes().all(inner);
    (name && !["true", "false", "null"].contains(&text)).then_some(text)
}

/// A quoted scalar at the beginning of `text`, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut letters = text.char_indices();
    let (_, quote) = letters.next()?;
    let mut out = String::new();
    while let Some((at, letter)) = letters.next() {
        let rest = text.get(at + letter.len_utf8()..)?;
        match letter {
            '\'' if quote == '\'' && rest.starts_with('\'') => {
                letters.next();
                out.push('\'');
            }
            letter if letter == quote => return Some((out, rest)),
            '\\' if quote == '"' => match letters.next()?.1 {
                'n' => out.push('\n'),
                't' => out.push('\t'),
                letter @ ('"' | '\\' | '/') => out.push(letter),
                _ => return None,
            },
            letter => out.push(letter),
        }
    }
    None
}

/// `{a: b, c: [d]}` at the beginning of `text`, and what follows it.
fn flow(text: &str, depth: usize) -> Option<(Value, &str)> {
    if depth > MAX_DEPTH {
        return None;
    }
    let text = text.trim_start();
    match text.chars().next()? {
        '{' => {
            let mut entries = Map::new();
            let mut rest = text.get(1..)?.trim_start();
            while !rest.starts_with('}') {
                let (key, after) = flow_word(rest, true)?;
                let (value, after) = match after.trim_start().strip_prefix(':') {
                    Some(after) => flow(after, depth + 1)?,
                    None => return None,
                };
                if entries.insert(key, value).is_some() {
                    return None;
                }
                rest = comma(after, '}')?;
            }
            Some((entries.into(), rest.get(1..)?))
        }
        '[' => {
            let mut items = Vec::new();
            let mut rest = text.get(1..)?.trim_start();
            while !rest.starts_with(']') {
                let (value, after) = flow(rest, depth + 1)?;
                items.push(value);
                rest = comma(after, ']')?;
            }
            Some((items.into(), rest.get(1..)?))
        }
        '"' | '\'' => quoted(text).map(|(text, rest)| (text.into(), rest)),
        _ => {
            let (word, rest) = flow_word(text, false)?;
            Some((known(&word)?, rest))
        }
    }
}

/// The text after a comma, or the whole text if it begins with `end`. None for any other text.
fn comma(text: &str, end: char) -> Option<&str> {
    let text = text.trim_start();
    match text.strip_prefix(',') {
        Some(rest) => Some(rest.trim_start()),
        None => text.starts_with(end).then_some(text),
    }
}

/// A quoted or plain word inside of a flow collection; a key ends at its colon too.
fn flow_word(text: &str, key: bool) -> Option<(String, &str)> {
    if text.starts_with(['"', '\'']) {
        return quoted(text);
    }
    let ends = |(at, letter): &(usize, char)| match letter {
        ',' | '{' | '}' | '[' | ']' => true,
        ':' if key => text.get(at + 1..).is_some_and(|rest| rest.starts_with(' ')),
        _ => false,
    };
    let end = text.char_indices().find(ends)?.0;
    let (word, rest) = text.split_at(end);
    let word = word.trim_end();
    Some((if key { plain_key(word)? } else { plain(word)? }.to_owned(), rest))
}

#[cfg(test)]
mod tests;
