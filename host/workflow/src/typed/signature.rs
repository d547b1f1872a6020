//! How a function is a request for an operation.

use serde_json::Value;
use twice_core::wit::{ArgsShape, ErrorShape, FunctionType, Signature, WitType};

use super::fit::{Fit, Made};
use super::receipt;
use super::schema::{OPEN, properties, without_references};
use crate::model::Operation;

/// The name of the parameter that is the whole of the args, whatever its type.
const ARGS: &str = "args";
/// The name of the parameter that picks an element.
const ITEM: &str = "item";

/// How a function is a request for an operation.
///
/// # Errors
/// Everything that does not fit, one line each: which parameter or field, its type, and what the schema says.
pub fn signature(function: &FunctionType, operation: &Operation) -> Result<Signature, Vec<String>> {
    let schema = without_references(&operation.args_schema, &operation.args_schema);
    let mut problems = Vec::new();
    let (item, params) = split_item(&function.params, &schema);
    let mut fit = Fit::new(Made::ByNode);
    let args = args(&mut fit, params, &schema);
    problems.extend(fit.problems().into_iter().map(|problem| format!("args, {problem}")));
    let Some(WitType::Result(ok, err)) = &function.result else {
        let found =
            function.result.as_ref().map_or_else(|| "nothing".to_owned(), ToString::to_string);
        problems.push(format!(
            "it returns {found}; it has to return `result<…, effect-error>`, as a request can be refused, and a refusal never traps"
        ));
        return Err(problems);
    };
    let error = match err.as_deref() {
        Some(WitType::String) => Some(ErrorShape::Text),
        Some(err) if *err == WitType::effect_error() => Some(ErrorShape::EffectError),
        Some(err) => {
            problems.push(format!(
                "its error is `{err}`; it has to be `effect-error` of `twice:node/effects`, or `string`"
            ));
            None
        }
        None => {
            problems.push(
                "it has no error; it has to have `effect-error` of `twice:node/effects`, or `string`, as a request can be refused"
                    .to_owned(),
            );
            None
        }
    };
    let mut fit = Fit::new(Made::ByTool);
    let body = receipt::schema(operation);
    let ok = match (ok.as_deref(), body) {
        (None, _) => None,
        (Some(ok), Some(schema)) => Some(fit.value(ok, &schema, "")),
        (Some(ok), None) => {
            problems.push(format!(
                "its result is `{ok}`, and the operation exposes nothing of a receipt; add `expose` to its `response`, or make the \
                 result `result<_, effect-error>`"
            ));
            None
        }
    };
    problems.extend(fit.problems().into_iter().map(|problem| format!("receipt, {problem}")));
    match error {
        Some(error) if problems.is_empty() => Ok(Signature { item, args, ok, error }),
        Some(_) | None => Err(problems),
    }
}

/// Takes the parameter off that picks an element, unless the args themselves have a member of that name.
fn split_item<'a>(
    params: &'a [(String, WitType)],
    schema: &Value,
) -> (bool, &'a [(String, WitType)]) {
    match params {
        [(name, WitType::U32), rest @ ..] if name == ITEM => {
            let is_member = properties(schema).is_some_and(|known| known.contains_key(ITEM));
            if is_member && whole(rest).is_none() { (false, params) } else { (true, rest) }
        }
        _ => (false, params),
    }
}

/// The parameter that is the whole of the args, if there is one.
fn whole(params: &[(String, WitType)]) -> Option<&WitType> {
    match params {
        [(name, ty)] if name == ARGS || matches!(ty, WitType::Record(_)) => Some(ty),
        _ => None,
    }
}

fn args(fit: &mut Fit, params: &[(String, WitType)], schema: &Value) -> ArgsShape {
    match whole(params) {
        // None of an option is null, and no args are null: it would be refused each time.
        Some(ty) => ArgsShape::Whole(fit.value(ty, schema, "")),
        None => {
            let members = fit.record(params, if schema.is_object() { schema } else { OPEN }, "");
            ArgsShape::Members(members)
        }
    }
}
