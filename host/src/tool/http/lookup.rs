//! What a lookup's answer tells. Whatever is not exactly as declared is an error of the lookup: it settles nothing and
//! is asked again, whereas a wrong "not found" could make an effect happen twice.

use std::collections::BTreeMap;

use serde_json::Value;
use twice_core::event::ProbeResult;
use twice_core::json::canonical;
use twice_core::outcome::{Answer, Body, Echo, Exchange};
use twice_workflow::model::Lookup;

use super::super::Call;
use super::template::Filler;

/// Most ids kept of objects found too many.
const IDS_MAX: usize = 20;

/// Judges what came back.
pub(super) fn judge(call: &Call<'_>, lookup: &Lookup, exchange: Exchange) -> ProbeResult {
    let found = match exchange.result {
        Ok(answer) => found_objects(call, lookup, answer),
        Err(fault) => Err(fault.message),
    };
    found
        .and_then(|objects| judge_objects(call, lookup, objects))
        .unwrap_or_else(|message| ProbeResult::Error { message })
}

fn found_objects(call: &Call<'_>, lookup: &Lookup, answer: Answer) -> Result<Vec<Value>, String> {
    if lookup.absent_statuses.contains(&answer.status) {
        return Ok(Vec::new());
    }
    if !(200..300).contains(&answer.status) {
        return Err(format!("the lookup was answered with status {}", answer.status));
    }
    let more = has_more(&answer);
    let body = match answer.body {
        Body::Json(body) => body,
        Body::Empty => return Err("the lookup's answer has no body".to_owned()),
        Body::NotJson { excerpt: _, problem } => {
            return Err(format!("the lookup's answer is not JSON: {problem}"));
        }
        Body::TooLarge { excerpt: _, cap } => {
            return Err(format!("the lookup's answer is over {cap} bytes"));
        }
    };
    match &lookup.items {
        None => own_object(call, lookup, body).map(|object| vec![object]),
        Some(pointer) => {
            let objects = own_items(call, lookup, body, pointer)?;
            if objects.is_empty() && more {
                return Err(
                    "nothing found on the first page of the lookup's answer, and there are more; \
                     declare a lookup that asks by our reference alone"
                        .to_owned(),
                );
            }
            Ok(objects)
        }
    }
}

/// Whether the answer says that it is one page of several.
fn has_more(answer: &Answer) -> bool {
    let in_body = match &answer.body {
        Body::Json(body) => body.get("has_more") == Some(&Value::Bool(true)),
        Body::Empty | Body::NotJson { .. } | Body::TooLarge { .. } => false,
    };
    let in_head = answer.headers.iter().any(|(name, value)| {
        name == "link" && (value.contains("rel=\"next\"") || value.contains("rel=next"))
    });
    in_body || in_head
}

fn own_object(call: &Call<'_>, lookup: &Lookup, object: Value) -> Result<Value, String> {
    if !object.is_object() {
        return Err("the lookup's answer is not an object".to_owned());
    }
    if let Some((pointer, reference)) = &lookup.matches
        && object.pointer(pointer) != Some(&expected(call, reference)?)
    {
        return Err(format!(
            "the object that the lookup returned does not carry our reference at {pointer}"
        ));
    }
    Ok(object)
}

fn own_items(
    call: &Call<'_>,
    lookup: &Lookup,
    mut body: Value,
    pointer: &str,
) -> Result<Vec<Value>, String> {
    let Some(Value::Array(items)) = body.pointer_mut(pointer).map(Value::take) else {
        return Err(format!("the lookup's answer has no array at {pointer}"));
    };
    let Some((at, reference)) = &lookup.matches else { return Ok(items) };
    let expected = expected(call, reference)?;
    if !items.is_empty() && items.iter().all(|item| item.pointer(at).is_none()) {
        return Err(format!("not one of the objects that the lookup found has a member {at}"));
    }
    Ok(items.into_iter().filter(|item| item.pointer(at) == Some(&expected)).collect())
}

fn expected(call: &Call<'_>, reference: &str) -> Result<Value, String> {
    Filler::new(call, &BTreeMap::new())
        .resolve(reference)
        .cloned()
        .ok_or_else(|| format!("the lookup compares with {reference}, which is not there"))
}

fn judge_objects(
    call: &Call<'_>,
    lookup: &Lookup,
    mut objects: Vec<Value>,
) -> Result<ProbeResult, String> {
    if objects.len() > 1 {
        return many(lookup, objects);
    }
    let Some(result) = objects.pop() else { return Ok(ProbeResult::Miss) };
    if state_is(lookup.pending.as_ref(), &result)?.is_some() {
        return Ok(ProbeResult::Pending);
    }
    let external_id = id(lookup, &result);
    if let Some(state) = state_is(lookup.failed.as_ref(), &result)? {
        let message = format!("the lookup found it in the state {state}");
        return Ok(ProbeResult::Refused { external_id, result, message });
    }
    if let Some(pointer) = &lookup.external_id
        && external_id.is_none()
    {
        return Err(format!("the object that the lookup found has no id at {pointer}"));
    }
    Ok(match difference(&call.operation.declarations.echo, &result, call.args) {
        Some(difference) => ProbeResult::Mismatch { external_id, result, difference },
        None => ProbeResult::Match { external_id, result },
    })
}

/// The first is the oldest: the order is the provider's, which a tool's lookup has to ask for.
fn many(lookup: &Lookup, mut objects: Vec<Value>) -> Result<ProbeResult, String> {
    let first = objects.iter().take(IDS_MAX);
    let external_ids: Vec<String> = match &lookup.external_id {
        None => Vec::new(),
        Some(pointer) => {
            first.map(|object| id(lookup, object)).collect::<Option<_>>().ok_or_else(|| {
                format!("one of the objects that the lookup found has no id at {pointer}")
            })?
        }
    };
    let count = u32::try_from(objects.len()).unwrap_or(u32::MAX);
    Ok(ProbeResult::Many { count, external_ids, oldest: objects.swap_remove(0) })
}

/// The object's state in words, if it is one of the declared ones.
fn state_is(
    declared: Option<&(String, Vec<Value>)>,
    object: &Value,
) -> Result<Option<String>, String> {
    let Some((pointer, states)) = declared else { return Ok(None) };
    match object.pointer(pointer) {
        Some(state) if states.contains(state) => Ok(Some(format!("{pointer} = {state}"))),
        Some(_) => Ok(None),
        None => Err(format!("the object that the lookup found has no state at {pointer}")),
    }
}

fn id(lookup: &Lookup, object: &Value) -> Option<String> {
    match object.pointer(lookup.external_id.as_deref()?)? {
        Value::String(id) => Some(id.clone()),
        Value::Number(id) => Some(id.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// How the object differs from what was asked for. An arg that was not given asks for nothing.
fn difference(echo: &[Echo], result: &Value, args: &Value) -> Option<String> {
    let differences: Vec<String> = echo
        .iter()
        .filter_map(|pair| {
            let asked = args.pointer(&pair.args)?;
            match result.pointer(&pair.result) {
                None => Some(format!("{} is missing, {asked} was asked for", pair.result)),
                Some(got) if canonical(got) != canonical(asked) => {
                    Some(format!("{} is {got}, {asked} was asked for", pair.result))
                }
                Some(_) => None,
            }
        })
        .collect();
    (!differences.is_empty()).then(|| differences.join("; "))
}
