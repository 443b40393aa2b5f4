//! Some fields of a cloud of clouds.yaml, out of the many of other services and programs.

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

/// The fields that are wanted, in their order; all others are passed over. A hyphen in a field's name is an underscore.
///
/// # Errors
/// It is no map, or the value of a field that is wanted is no text.
pub(super) fn selected_fields<'de, D: Deserializer<'de>>(
    from: D,
    selected: impl Fn(&str) -> bool,
) -> Result<Vec<(String, Option<String>)>, D::Error> {
    struct Fields<F>(F);
    impl<'de, F: Fn(&str) -> bool> Visitor<'de> for Fields<F> {
        type Value = Vec<(String, Option<String>)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the fields of a cloud")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
            let mut found = Vec::new();
            while let Some(name) = fields.next_key::<String>()? {
                let name = name.replace('-', "_");
                if self.0(&name) {
                    found.push((name, fields.next_value()?));
                } else {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
            Ok(found)
        }
    }
    from.deserialize_map(Fields(selected))
}
