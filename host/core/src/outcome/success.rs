//! Whether the body of a success bears it out: schema, id, echo; and what the guest may see of it.

use serde_json::{Map, Value};

use super::{Answer, Body, Declarations, Echo};
use crate::json;

/// The id at a pointer: a string that is not empty, or an integer as decimal text.
pub(crate) fn id_at(body: &Value, pointer: Option<&str>) -> Option<String> {
    match body.pointer(pointer?)? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
        Value::String(_)
        | Value::Number(_)
        | Value::Null
        | Value::Bool(_)
        | Value::Array(_)
        | Value::Object(_) => None,
    }
}

/// What is wrong with the body of a success, by which it proves nothing: the rule and the words.
pub(super) fn flaw(
    answer: &Answer,
    declarations: &Declarations,
    body_tells: bool,
) -> Option<(&'static str, String)> {
    if let Some(error) = &answer.schema_error {
        return Some(("http.2xx.schema", format!("its body breaks the response schema: {error}")));
    }
    match &answer.body {
        Body::Json(body) => {
            let pointer = declarations.external_id.as_deref()?;
            let found = id_at(body, Some(pointer)).is_some();
            (!found).then(|| {
                ("http.2xx.no_external_id", format!("its body has no provider's id at `{pointer}`"))
            })
        }
        Body::Empty | Body::NotJson { .. } if declarations.no_body => None,
        Body::Empty => Some(("http.2xx.empty", "its body is empty".to_owned())),
        Body::NotJson { problem, .. } => {
            Some(("http.2xx.malformed", format!("its body is not JSON: {problem}")))
        }
        // Nothing that was declared would have been read from the rest.
        Body::TooLarge { .. } if !body_tells => None,
        Body::TooLarge { cap, .. } => Some((
            "http.2xx.too_large",
            format!("its body is over the limit of {cap} bytes, and what it should tell is in it"),
        )),
    }
}

/// How a result differs from what was asked for, in words; `None` when it does not. Integers are compared as integers.
/// What the args leave out cannot differ; what the result leaves out does.
#[must_use]
pub fn discrepancy(result: &Value, echo: &[Echo], args: &Value) -> Option<String> {
    let differences: Vec<String> = echo
        .iter()
        .filter_map(|pair| {
            let asked = args.pointer(&pair.args)?;
            let got = result.pointer(&pair.result);
            if got.is_some_and(|got| same(got, asked)) {
                return None;
            }
            let got = got.map_or("nothing".to_owned(), json::canonical);
            Some(format!(
                "`{}` is {got} where {} was asked for",
                pair.result,
                json::canonical(asked)
            ))
        })
        .collect();
    (!differences.is_empty()).then(|| differences.join("; "))
}

/// Whether all that must be equal can be compared in this result.
pub(super) fn comparable(result: &Value, echo: &[Echo], args: &Value) -> bool {
    echo.iter()
        .all(|pair| args.pointer(&pair.args).is_none() || result.pointer(&pair.result).is_some())
}

/// Equality of JSON, with integers compared as integers: `8200` and `8200.0` are equal, two that a double cannot tell
/// apart are not.
pub(crate) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => match (integer(x), integer(y)) {
            (Some(x), Some(y)) => x == y,
            (Some(_), None) | (None, Some(_)) => false,
            (None, None) => x.as_f64() == y.as_f64(),
        },
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y))
        }
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(key, x)| y.get(key).is_some_and(|y| same(x, y)))
        }
        (a, b) => a == b,
    }
}

fn integer(number: &serde_json::Number) -> Option<i128> {
    let whole = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    whole.or_else(|| {
        let float = number.as_f64()?;
        // Up to 2^53 a whole double is the integer it stands for.
        (float.fract() == 0.0 && float.abs() <= 9_007_199_254_740_992.0).then_some(float as i128)
    })
}

/// What the guest may see of a result, as [`Declarations::expose`] says.
pub(crate) fn exposed(result: &Value, expose: &[String]) -> Value {
    let mut members = Map::new();
    for pointer in expose {
        if pointer.is_empty() {
            return result.clone();
        }
        let Some(value) = result.pointer(pointer) else { continue };
        let last = pointer.rsplit('/').next().unwrap_or_default();
        members.insert(last.replace("~1", "/").replace("~0", "~"), value.clone());
    }
    Value::Object(members)
}
