//! JSON as Twice takes it in and hashes it: strict to read (DESIGN §4), RFC 8785 to write.

use serde_json::Value;

/// Canonical JSON (RFC 8785).
#[must_use]
pub fn canonical(value: &Value) -> String {
    serde_json_canonicalizer::to_string(value).expect("a parsed value has finite numbers only")
}

/// Removes what a JSON Pointer (RFC 6901) points at, if it is there.
pub fn remove(value: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else { return };
    let last = last.replace("~1", "/").replace("~0", "~");
    match value.pointer_mut(parent) {
        Some(Value::Object(map)) => {
            map.remove(&last);
        }
        Some(Value::Array(items)) => {
            if let Ok(index) = last.parse::<usize>()
                && index < items.len()
            {
                items.remove(index);
            }
        }
        _ => {}
    }
}
