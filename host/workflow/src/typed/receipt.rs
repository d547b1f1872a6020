//! What a node sees of a receipt, as a schema.

use serde_json::{Map, Value, json};

use super::schema::without_references;
use crate::model::Operation;
use crate::shape;

/// The schema of the body that an operation exposes; `None` when it exposes nothing.
pub(super) fn schema(operation: &Operation) -> Option<Value> {
    let expose = &operation.declarations.expose;
    let open = Value::Bool(true);
    let response = operation.response_schema.as_ref().unwrap_or(&open);
    if expose.iter().any(String::is_empty) {
        return Some(without_references(response, response));
    }
    if expose.is_empty() {
        return None;
    }
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for pointer in expose {
        let Some(name) = shape::tokens(pointer).last() else { continue };
        let member = match shape::find(response, pointer) {
            shape::Place::Described { schema, always } => {
                if always {
                    required.push(Value::from(name.as_str()));
                }
                without_references(response, schema)
            }
            shape::Place::Absent { .. } | shape::Place::Unlisted { .. } | shape::Place::Open => {
                open.clone()
            }
        };
        properties.insert(name, member);
    }
    Some(json!({ "type": "object", "properties": properties, "required": required }))
}
