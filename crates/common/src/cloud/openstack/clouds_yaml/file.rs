//! Reads single values of a YAML file and ignores the rest.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize as _, Deserializer};

use crate::cloud::openstack::credentials::ConfigError;

/// The value at a path of keys, if there is one.
pub(super) fn at<T: DeserializeOwned>(
    place: &str,
    text: &str,
    path: &[&str],
) -> Result<Option<T>, ConfigError> {
    serde_yaml::with_deserializer_from_str(text, |from| At { path, of: PhantomData }.deserialize(from))
        .map_err(|error| broken(place, Some(&error)))
}

struct At<'a, T> {
    path: &'a [&'a str],
    of: PhantomData<T>,
}

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for At<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<T>, D::Error> {
        if self.path.is_empty() { Option::deserialize(from) } else { from.deserialize_option(self) }
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for At<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("clouds by their names")
    }

    fn visit_none<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Option<T>, D::Error> {
        from.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Option<T>, A::Error> {
        let mut found = None;
        let (first, rest) = self.path.split_first().unwrap_or((&"", &[]));
        while let Some(key) = fields.next_key::<String>()? {
            if key == *first {
                found = fields.next_value_seed(At { path: rest, of: PhantomData })?;
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Without the parser's own message: it has an excerpt of the text, which has secrets.
pub(super) fn broken(place: &str, error: Option<&serde_yaml::Error>) -> ConfigError {
    let line = error.and_then(serde_yaml::Error::location);
    let line = line.map(|at| format!("line {}: ", at.line())).unwrap_or_default();
    ConfigError::new(
        place,
        format!("{line}this is no YAML, or a field of another kind than clouds.yaml has there"),
    )
}

/// The selected fields of a cloud, in their order; all others are ignored. A hyphen in a name counts as an underscore.
///
/// # Errors
/// It is no map, or the value of a selected field is no text.
pub(in crate::cloud::openstack) fn selected_fields<'de, D: Deserializer<'de>>(
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
