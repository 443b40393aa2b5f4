//! One page of a list, decoded as a stream: each item is processed before the next one is decoded. A page of five hundred items needs
//! the memory of its text and of the kept values, not that of the whole JSON tree.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::Value;

/// The rest of a page.
pub(super) struct Page {
    /// Links to other pages; None if the server has no such field.
    pub links: Option<Vec<Link>>,
    /// Number of items.
    pub length: usize,
    /// ID of the last one, if that has one.
    pub last: Option<String>,
}

/// An entry of `<collection>_links`.
#[derive(Deserialize)]
pub(super) struct Link {
    /// `next`, `previous`.
    pub rel: String,
    /// URL of that page.
    pub href: String,
}

/// Calls `take` for each item under `key`.
///
/// # Errors
/// The text is not such a page; discard the items so far. A page without its list is an error, not an empty page.
pub(super) fn read<T: DeserializeOwned>(
    text: &[u8],
    key: &str,
    take: impl FnMut(T),
) -> Result<Page, serde_json::Error> {
    let mut json = serde_json::Deserializer::from_slice(text);
    let links = format!("{key}_links");
    let items = Items { take, length: 0, last: None, item: PhantomData };
    let page = Whole { key, links: &links, items }.deserialize(&mut json)?;
    json.end()?;
    Ok(page)
}

struct Whole<'a, T, F> {
    key: &'a str,
    links: &'a str,
    items: Items<T, F>,
}

struct Items<T, F> {
    take: F,
    length: usize,
    last: Option<String>,
    item: PhantomData<fn(T)>,
}

impl<'de, T: DeserializeOwned, F: FnMut(T)> DeserializeSeed<'de> for Whole<'_, T, F> {
    type Value = Page;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Page, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de, T: DeserializeOwned, F: FnMut(T)> Visitor<'de> for Whole<'_, T, F> {
    type Value = Page;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with {:?}", self.key)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut object: A) -> Result<Page, A::Error> {
        let (mut seen, mut links) = (false, None);
        while let Some(name) = object.next_key::<String>()? {
            if name == self.key {
                if std::mem::replace(&mut seen, true) {
                    return Err(A::Error::custom(format_args!("it has {:?} twice", self.key)));
                }
                object.next_value_seed(&mut self.items)?;
            } else if name == self.links {
                links = object.next_value()?;
            } else {
                object.next_value::<IgnoredAny>()?;
            }
        }
        if !seen {
            return Err(A::Error::custom(format_args!("it has no {:?}", self.key)));
        }
        Ok(Page { links, length: self.items.length, last: self.items.last })
    }
}

impl<'de, T: DeserializeOwned, F: FnMut(T)> DeserializeSeed<'de> for &mut Items<T, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, T: DeserializeOwned, F: FnMut(T)> Visitor<'de> for &mut Items<T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        // Through the JSON tree of the item, which has the ID even if `T` does not.
        while let Some(item) = list.next_element::<Value>()? {
            self.length += 1;
            self.last = item.get("id").and_then(Value::as_str).map(str::to_owned);
            (self.take)(serde_json::from_value(item).map_err(A::Error::custom)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(text: &str) -> Result<(Vec<u32>, Vec<String>), String> {
        let mut numbers = Vec::new();
        let page = read(text.as_bytes(), "ns", |number: u32| numbers.push(number));
        let page = page.map_err(|error| error.to_string())?;
        assert_eq!(page.length, numbers.len());
        let links = page.links.unwrap_or_default().into_iter();
        Ok((numbers, links.map(|link| link.rel + " " + &link.href).collect()))
    }

    #[test]
    fn items_and_links_are_found_in_any_order() {
        let text =
            r#"{"x": {"ns": [9]}, "ns_links": [{"rel": "next", "href": "/?a"}], "ns": [1, 2], "y": null}"#;
        assert_eq!(numbers(text).unwrap(), (vec![1, 2], vec!["next /?a".to_owned()]));
        assert_eq!(numbers(r#"{"ns": []}"#).unwrap(), (vec![], vec![]));
    }

    #[test]
    fn the_id_of_the_last_item_is_returned() {
        let last = |text: &str| read(text.as_bytes(), "xs", |_: Value| {}).unwrap().last;
        assert_eq!(last(r#"{"xs": [{"id": "a"}, {"id": "b"}]}"#), Some("b".to_owned()));
        assert_eq!(last(r#"{"xs": [{"id": "a"}, {}]}"#), None);
        assert!(read(br#"{"xs": [], "xs_links": null}"#, "xs", |_: Value| {}).unwrap().links.is_none());
    }

    #[test]
    fn a_text_that_is_no_page_is_an_error() {
        for (text, why) in [
            ("{}", "it has no \"ns\""),
            (r#"{"ns": null}"#, "expected a list"),
            (r#"{"ns": [1], "ns": [2]}"#, "twice"),
            (r#"{"ns": [1, "a"]}"#, "invalid type"),
            (r#"{"ns": [1]"#, "EOF"),
            (r#"{"ns": [1]} and more"#, "trailing"),
            ("[1]", "an object with \"ns\""),
            ("<html>", "expected value"),
        ] {
            let error = numbers(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
