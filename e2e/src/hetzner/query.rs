//! Query strings, and the lists that they select: filters and pages.

use serde_json::{Value, json};
use std::collections::BTreeMap;

use super::{refusal::Refusal, selector::Selector};

/// The API's default and maximum for `per_page`.
const PER_PAGE: usize = 25;
const MOST_PER_PAGE: usize = 50;

#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Unknown parameters are refused: to ignore a misspelt filter would return everything.
    pub fn parse(raw: Option<&str>, known: &[&str]) -> Result<Self, Refusal> {
        let pairs: Vec<(String, String)> = raw
            .unwrap_or_default()
            .split('&')
            .filter(|part| !part.is_empty())
            .map(|part| part.split_once('=').unwrap_or((part, "")))
            .map(|(name, value)| (decode(name), decode(value)))
            .collect();
        let unknown: Vec<(String, String)> = pairs
            .iter()
            .filter(|(name, _)| !known.contains(&name.as_str()))
            .map(|(name, _)| (name.clone(), "Unknown field.".to_owned()))
            .collect();
        if unknown.is_empty() { Ok(Self(pairs)) } else { Err(Refusal::fields(&unknown)) }
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn number(&self, name: &str, default: usize, most: usize) -> Result<usize, Refusal> {
        let Some(text) = self.get(name) else { return Ok(default) };
        match text.parse() {
            Ok(number) if (1..=most).contains(&number) => Ok(number),
            Ok(_) if most == usize::MAX => Err(Refusal::field(name, "must be at least 1")),
            Ok(_) => Err(Refusal::field(name, format!("must be between 1 and {most}"))),
            Err(_) => Err(Refusal::field(name, "Not a valid integer.")),
        }
    }
}

/// `+` and `%XX`, as in forms. Bytes that are not UTF-8 become replacement characters: no name has them.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = match rest {
            [b'%', high, low, ..] => char::from(*high)
                .to_digit(16)
                .zip(char::from(*low).to_digit(16))
                .and_then(|(high, low)| u8::try_from(high * 16 + low).ok()),
            _ => None,
        };
        match (escaped, rest) {
            (Some(byte), [_, _, _, after @ ..]) => {
                bytes.push(byte);
                rest = after;
            }
            _ => {
                bytes.push(if *first == b'+' { b' ' } else { *first });
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One page of `items`, which are sorted by ID, under the key `collection`. `meta.pagination` has all keys, as a number or null.
pub(super) fn list(query: &Query, collection: &str, items: Vec<Value>) -> Result<Value, Refusal> {
    let items = filtered(query, items)?;
    // The only order that natgw's client names.
    if query.get("sort").is_some_and(|order| order != "id:asc") {
        return Err(Refusal::field("sort", "not allowed"));
    }
    let page = query.number("page", 1, usize::MAX)?;
    let per_page = query.number("per_page", PER_PAGE, MOST_PER_PAGE)?;
    let total = items.len();
    // The documentation shows last_page 1 for an empty list.
    let last = total.div_ceil(per_page).max(1);
    let shown: Vec<Value> =
        items.into_iter().skip((page - 1).saturating_mul(per_page)).take(per_page).collect();
    Ok(json!({
        collection: shown,
        "meta": {"pagination": {
            "page": page,
            "per_page": per_page,
            "previous_page": (page > 1).then(|| page - 1),
            "next_page": (page < last).then(|| page + 1),
            "last_page": last,
            "total_entries": total,
        }},
    }))
}

fn filtered(query: &Query, mut items: Vec<Value>) -> Result<Vec<Value>, Refusal> {
    if let Some(name) = query.get("name") {
        items.retain(|item| item["name"] == name);
    }
    if let Some(text) = query.get("label_selector") {
        let selector = Selector::parse(text).map_err(|why| Refusal::field("label_selector", why))?;
        items.retain(|item| {
            let labels: BTreeMap<String, String> =
                serde_json::from_value(item["labels"].clone()).unwrap_or_default();
            selector.matches(&labels)
        });
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(raw: &str) -> Query {
        Query::parse(Some(raw), &["name", "page", "per_page", "sort", "label_selector", "id"]).unwrap()
    }

    fn items(count: usize) -> Vec<Value> {
        (1..=count)
            .map(|n| json!({"id": n, "name": format!("n{n}"), "labels": {"odd": (n % 2).to_string()}}))
            .collect()
    }

    #[test]
    fn escapes_are_decoded() {
        assert_eq!(parse("label_selector=env+in+%28a%2cb%29").get("label_selector"), Some("env in (a,b)"));
        assert_eq!(parse("name=50%25&name=%zz%4").all("name").collect::<Vec<_>>(), ["50%", "%zz%4"]);
    }

    #[test]
    fn page_has_the_numbers_of_its_neighbours() {
        let page = list(&parse("page=2"), "servers", items(60)).unwrap();
        assert_eq!(page["servers"].as_array().unwrap().len(), 25);
        assert_eq!(
            page["meta"]["pagination"],
            json!({"page": 2, "per_page": 25, "previous_page": 1, "next_page": 3, "last_page": 3, "total_entries": 60})
        );
        let empty = list(&parse("page=9&per_page=50"), "servers", items(0)).unwrap();
        assert_eq!(empty["servers"], json!([]));
        assert_eq!(empty["meta"]["pagination"]["next_page"], Value::Null);
        assert_eq!(empty["meta"]["pagination"]["last_page"], 1);
    }

    #[test]
    fn values_out_of_range_and_unknown_parameters_are_refused() {
        for bad in ["per_page=51", "per_page=0", "page=0", "page=x", "sort=colour", "label_selector=="] {
            assert!(list(&parse(bad), "servers", items(1)).is_err(), "{bad}");
        }
        assert!(Query::parse(Some("nmae=x"), &["name"]).is_err());
    }

    #[test]
    fn items_are_filtered_by_name_and_label() {
        let odd = list(&parse("label_selector=odd%3D1&name=n3"), "x", items(5)).unwrap();
        assert_eq!(odd["meta"]["pagination"]["total_entries"], 1);
    }
}
