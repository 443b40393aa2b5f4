//! EC2's responses as trees of elements, for tests that read or change any part of them.

use quick_xml::Reader;
use quick_xml::events::Event;

/// EC2 nests eight deep.
const MAX_DEPTH: usize = 32;
/// A page of 200 network interfaces with 50 addresses each has about 100,000.
const MAX_COUNT: usize = 400_000;

/// One element, without attributes and comments; EC2 only has the namespace attribute.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Element {
    /// Name without prefix.
    pub name: String,
    /// Its own text, without spaces around it.
    pub text: String,
    /// Children in order.
    pub children: Vec<Element>,
}

/// Why a document is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

impl Element {
    /// The root of a whole document.
    ///
    /// # Errors
    ///
    /// It is not well-formed or not UTF-8, declares a document type or entities, or exceeds the limits.
    pub fn parse(document: &[u8]) -> Result<Self, Malformed> {
        let document = std::str::from_utf8(document).map_err(|_| Malformed("no UTF-8".into()))?;
        let refuse = |why: &str| Err(Malformed(why.into()));
        let mut reader = Reader::from_str(document);
        let mut open: Vec<Self> = Vec::new();
        let mut root = None;
        let mut elements = 0;
        loop {
            let event = reader.read_event().map_err(|error| Malformed(error.to_string()))?;
            let closed = match event {
                Event::Start(start) => {
                    open.push(Self { name: start.local_name().as_ref().to_owned(), ..Self::default() });
                    None
                }
                Event::Empty(start) => {
                    Some(Self { name: start.local_name().as_ref().to_owned(), ..Self::default() })
                }
                // The reader has compared the names.
                Event::End(_) => open.pop(),
                Event::Text(text) => {
                    match open.last_mut() {
                        Some(element) => element.text.push_str(&text.xml10_content()),
                        None if text.xml10_content().trim().is_empty() => {}
                        None => return refuse("text outside of the root element"),
                    }
                    continue;
                }
                Event::CData(text) => {
                    match open.last_mut() {
                        Some(element) => element.text.push_str(&text.xml10_content()),
                        None => return refuse("text outside of the root element"),
                    }
                    continue;
                }
                Event::GeneralRef(reference) => {
                    let character = match reference.resolve_char_ref() {
                        Ok(Some(character)) => Some(character),
                        Ok(None) => match reference.xml10_content().as_ref() {
                            "amp" => Some('&'),
                            "lt" => Some('<'),
                            "gt" => Some('>'),
                            "quot" => Some('"'),
                            "apos" => Some('\''),
                            _ => None,
                        },
                        Err(_) => None,
                    };
                    match (character, open.last_mut()) {
                        (Some(character), Some(element)) => element.text.push(character),
                        _ => return refuse("a reference to what is not declared"),
                    }
                    continue;
                }
                Event::DocType(_) => return refuse("a document type"),
                Event::Decl(_) | Event::PI(_) | Event::Comment(_) => continue,
                Event::Eof => break,
            };
            if [closed.as_ref(), open.last()].into_iter().flatten().any(|element| element.name.is_empty()) {
                return refuse("an element without a name");
            }
            elements += 1;
            if open.len() > MAX_DEPTH || elements > MAX_COUNT {
                return refuse("deeper or larger than any answer of EC2");
            }
            let Some(mut closed) = closed else { continue };
            closed.text = closed.text.trim().to_owned();
            match open.last_mut() {
                Some(parent) => parent.children.push(closed),
                None if root.is_none() => root = Some(closed),
                None => return refuse("two root elements"),
            }
        }
        if !open.is_empty() {
            return refuse("it ends in the middle");
        }
        root.ok_or_else(|| Malformed("no element".into()))
    }

    /// The first child of that name.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The text of the first child of that name, unless empty: EC2 writes an empty element for a missing value.
    #[must_use]
    pub fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(|child| child.text.as_str()).filter(|text| !text.is_empty())
    }

    /// The `item`s of the list `name`; none where the list is not there.
    pub fn items<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Self> {
        self.child(name).into_iter().flat_map(|list| &list.children).filter(|child| child.name == "item")
    }
}
