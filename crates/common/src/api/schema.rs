//! Schemas of types that bring none: for `#[schemars(schema_with = "…")]`.

use schemars::{Schema, SchemaGenerator, json_schema};

/// A point in time, as [`jiff::Timestamp`] is written.
pub fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// A point in time that may be absent.
pub fn optional_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time", "nullable": true })
}

/// A list of [`crate::conditions::Condition`], one a type, as Kubernetes' own kinds have it.
pub fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": {
            "type": "object",
            "required": ["type", "status", "lastTransitionTime", "reason", "message"],
            "properties": {
                "type": { "type": "string", "description": "What it is about, CamelCase." },
                "status": { "type": "string", "enum": ["True", "False", "Unknown"], "description": "Whether it holds." },
                "observedGeneration": { "type": "integer", "format": "int64", "description": "The metadata.generation that it was seen for." },
                "lastTransitionTime": { "type": "string", "format": "date-time", "description": "When the status last changed." },
                "reason": { "type": "string", "description": "Why, one CamelCase word of a closed set." },
                "message": { "type": "string", "description": "Why, for a person, and what to do." }
            }
        }
    })
}
