//! Fields that a cloud may send as null.

use serde::{Deserialize, Deserializer};

/// Null is the same as nothing: an empty text, an empty list.
pub(super) fn or_empty<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}
