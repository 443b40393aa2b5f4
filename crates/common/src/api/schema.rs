//! Schemas of types that bring none: for `#[schemars(schema_with = "…")]`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use schemars::{Schema, SchemaGenerator, json_schema};

/// Without `uint8`, `uint32` and the like, which are schemars' words: Kubernetes does not know them and warns. The bounds of
/// such a number stand beside them.
#[must_use]
pub fn with_known_formats(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut definition.spec.versions {
        if let Some(schema) = version.schema.as_mut().and_then(|schema| schema.open_api_v3_schema.as_mut()) {
            forget_unsigned(schema);
        }
    }
    definition
}

fn forget_unsigned(schema: &mut JSONSchemaProps) {
    if schema.format.as_deref().is_some_and(|format| format.starts_with("uint")) {
        schema.format = None;
    }
    for property in schema.properties.iter_mut().flat_map(|properties| properties.values_mut()) {
        forget_unsigned(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        forget_unsigned(items);
    }
}

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
