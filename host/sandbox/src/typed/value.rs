//! Values of WIT types as JSON, and back: one mapping, directed by the type (docs/typed-tools.md has the table).
//!
//! Both directions are total: what the other side cannot express is refused with its place and the reason, never bent.

use serde_json::{Map, Number, Value};
use twice_core::limits::{JSON_INTEGER_MAX, PAYLOAD_BYTES_MAX};
use twice_core::wit::{WitType, json_name};
use wasmtime::component::Val;

/// Why a value cannot cross.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}, at `{pointer}`")]
pub struct ValueError {
    /// What is wrong, and the fix where there is one.
    pub problem: String,
    /// Where: JSON Pointer.
    pub pointer: String,
}

impl ValueError {
    fn new(problem: impl Into<String>) -> Self {
        Self { problem: problem.into(), pointer: String::new() }
    }

    /// The same, seen from outside of the member or element `token`.
    fn within(mut self, token: &str) -> Self {
        self.pointer.insert_str(0, token);
        self.pointer.insert(0, '/');
        self
    }
}

/// The JSON of a value.
///
/// # Errors
/// [`ValueError`] for a number that is not finite, an integer beyond ±(2^53−1), JSON text that is none, and a value that is
/// not of that type.
pub fn to_json(value: &Val, ty: &WitType) -> Result<Value, ValueError> {
    Ok(match (ty, value) {
        (WitType::Bool, Val::Bool(flag)) => Value::Bool(*flag),
        (WitType::S8, Val::S8(number)) => Value::from(*number),
        (WitType::U8, Val::U8(number)) => Value::from(*number),
        (WitType::S16, Val::S16(number)) => Value::from(*number),
        (WitType::U16, Val::U16(number)) => Value::from(*number),
        (WitType::S32, Val::S32(number)) => Value::from(*number),
        (WitType::U32, Val::U32(number)) => Value::from(*number),
        (WitType::S64, Val::S64(number)) => safe(i128::from(*number))?,
        (WitType::U64, Val::U64(number)) => safe(i128::from(*number))?,
        // The shortest text that is this number: 0.1 stays 0.1.
        (WitType::F32, Val::Float32(number)) => {
            float(number.to_string().parse().unwrap_or_else(|_| f64::from(*number)))?
        }
        (WitType::F64, Val::Float64(number)) => float(*number)?,
        (WitType::Char, Val::Char(char)) => Value::from(char.to_string()),
        (WitType::String, Val::String(text)) => Value::from(text.as_str()),
        (WitType::Json, Val::String(text)) => twice_core::json::parse(text, PAYLOAD_BYTES_MAX)
            .map_err(|error| ValueError::new(format!("the text is to be JSON: {error}")))?,
        (WitType::List(element), Val::List(values)) => {
            array(values.iter().map(|v| (v, &**element)))?
        }
        (WitType::Tuple(types), Val::Tuple(values)) if types.len() == values.len() => {
            array(values.iter().zip(types))?
        }
        (WitType::Record(fields), Val::Record(values)) if fields.len() == values.len() => {
            let fields = fields.iter().map(|(name, ty)| (name.as_str(), ty));
            members(fields.zip(values).map(|((name, ty), (_, value))| (name, ty, value)))?
        }
        (WitType::Variant(cases), Val::Variant(case, payload)) => {
            let (_, ty) = cases.iter().find(|(name, _)| name == case).ok_or_else(|| unlike(ty))?;
            case_to_json(case, ty.as_ref(), payload.as_deref())?
        }
        (WitType::Result(ok, _), Val::Result(Ok(payload))) => {
            case_to_json("ok", ok.as_deref(), payload.as_deref())?
        }
        (WitType::Result(_, err), Val::Result(Err(payload))) => {
            case_to_json("err", err.as_deref(), payload.as_deref())?
        }
        (WitType::Enum(cases), Val::Enum(case)) if cases.contains(case) => {
            Value::from(json_name(case))
        }
        (WitType::Flags(known), Val::Flags(names)) if names.iter().all(|n| known.contains(n)) => {
            // In the order of the type, so that one set has one text.
            let set = known.iter().filter(|name| names.contains(name));
            Value::Array(set.map(|name| Value::from(json_name(name))).collect())
        }
        (WitType::Option(_), Val::Option(None)) => Value::Null,
        (WitType::Option(ty), Val::Option(Some(value))) => to_json(value, ty)?,
        _ => return Err(unlike(ty)),
    })
}

/// The object whose members are `fields`: name, type and value. An option that is none is left out.
///
/// # Errors
/// As [`to_json`].
pub(crate) fn members<'a>(
    fields: impl Iterator<Item = (&'a str, &'a WitType, &'a Val)>,
) -> Result<Value, ValueError> {
    let mut object = Map::new();
    for (name, ty, value) in fields {
        if matches!(value, Val::Option(None)) {
            continue;
        }
        let name = json_name(name);
        let value = to_json(value, ty).map_err(|error| error.within(&name))?;
        object.insert(name, value);
    }
    Ok(Value::Object(object))
}

fn array<'a>(values: impl Iterator<Item = (&'a Val, &'a WitType)>) -> Result<Value, ValueError> {
    let element = |(at, (value, ty)): (usize, (&Val, &WitType))| {
        to_json(value, ty).map_err(|error| error.within(&at.to_string()))
    };
    values.enumerate().map(element).collect::<Result<_, _>>().map(Value::Array)
}

fn case_to_json(
    case: &str,
    ty: Option<&WitType>,
    payload: Option<&Val>,
) -> Result<Value, ValueError> {
    let name = json_name(case);
    match (ty, payload) {
        (None, None) => Ok(Value::from(name)),
        (Some(ty), Some(payload)) => {
            let payload = to_json(payload, ty).map_err(|error| error.within(&name))?;
            Ok(Value::Object(Map::from_iter([(name, payload)])))
        }
        _ => Err(ValueError::new(format!("the case `{case}` has not the payload of its type"))),
    }
}

fn safe(number: i128) -> Result<Value, ValueError> {
    match i64::try_from(number) {
        Ok(safe) if number.unsigned_abs() <= JSON_INTEGER_MAX.unsigned_abs().into() => {
            Ok(Value::from(safe))
        }
        Ok(_) | Err(_) => Err(ValueError::new(format!(
            "the integer {number} is beyond ±(2^53−1), which not every reader of JSON keeps; pass it as a string"
        ))),
    }
}

fn float(number: f64) -> Result<Value, ValueError> {
    if number.is_finite() && number.fract() == 0.0 {
        // A whole number is an integer in JSON as Twice takes it, with the bounds of one; −0 is 0.
        return safe(number as i128);
    }
    Number::from_f64(number).map(Value::Number).ok_or_else(|| {
        ValueError::new(format!("{number} is not finite, and JSON has no such number"))
    })
}

fn unlike(ty: &WitType) -> ValueError {
    ValueError::new(format!("the value is not of the type `{ty}`"))
}

/// The value of type `ty` that a JSON value stands for. Members that no field of a record names are skipped.
///
/// # Errors
/// [`ValueError`] when there is none.
pub fn from_json(value: &Value, ty: &WitType) -> Result<Val, ValueError> {
    let wrong = || ValueError::new(format!("{} is no `{ty}`", found(value)));
    Ok(match ty {
        WitType::Bool => Val::Bool(value.as_bool().ok_or_else(wrong)?),
        WitType::S8 => Val::S8(integer(value).ok_or_else(wrong)?),
        WitType::U8 => Val::U8(integer(value).ok_or_else(wrong)?),
        WitType::S16 => Val::S16(integer(value).ok_or_else(wrong)?),
        WitType::U16 => Val::U16(integer(value).ok_or_else(wrong)?),
        WitType::S32 => Val::S32(integer(value).ok_or_else(wrong)?),
        WitType::U32 => Val::U32(integer(value).ok_or_else(wrong)?),
        WitType::S64 => Val::S64(integer(value).ok_or_else(wrong)?),
        WitType::U64 => Val::U64(integer(value).ok_or_else(wrong)?),
        WitType::F32 => {
            #[expect(clippy::cast_possible_truncation, reason = "an f32 is what is asked for")]
            let number = value.as_f64().ok_or_else(wrong)? as f32;
            Val::Float32(Some(number).filter(|number| number.is_finite()).ok_or_else(wrong)?)
        }
        WitType::F64 => Val::Float64(value.as_f64().ok_or_else(wrong)?),
        WitType::Char => {
            let mut chars = value.as_str().ok_or_else(wrong)?.chars();
            match (chars.next(), chars.next()) {
                (Some(char), None) => Val::Char(char),
                _ => return Err(wrong()),
            }
        }
        WitType::String => Val::String(value.as_str().ok_or_else(wrong)?.to_owned()),
        WitType::Json => Val::String(twice_core::json::canonical(value)),
        WitType::List(element) => {
            let values = value.as_array().ok_or_else(wrong)?;
            Val::List(elements(values.iter().map(|value| (value, &**element)))?)
        }
        WitType::Tuple(types) => {
            let values = value.as_array().filter(|values| values.len() == types.len());
            Val::Tuple(elements(values.ok_or_else(wrong)?.iter().zip(types))?)
        }
        WitType::Record(fields) => {
            let object = value.as_object().ok_or_else(wrong)?;
            Val::Record(
                fields.iter().map(|field| of_member(object, field)).collect::<Result<_, _>>()?,
            )
        }
        WitType::Variant(cases) => {
            let cases = cases.iter().map(|(name, ty)| (name.as_str(), ty.as_ref()));
            let (case, payload) = case_of(value, cases)?.ok_or_else(wrong)?;
            Val::Variant(case, payload)
        }
        WitType::Result(ok, err) => {
            let cases = [("ok", ok.as_deref()), ("err", err.as_deref())].into_iter();
            let (case, payload) = case_of(value, cases)?.ok_or_else(wrong)?;
            Val::Result(if case == "ok" { Ok(payload) } else { Err(payload) })
        }
        WitType::Enum(cases) => Val::Enum(named(value, cases).ok_or_else(wrong)?),
        WitType::Flags(names) => {
            let values = value.as_array().ok_or_else(wrong)?;
            let mut set = Vec::with_capacity(names.len().min(values.len()));
            for (at, value) in values.iter().enumerate() {
                let name = named(value, names).ok_or_else(|| {
                    ValueError::new(format!("{} is none of the names of `{ty}`", found(value)))
                        .within(&at.to_string())
                })?;
                if !set.contains(&name) {
                    set.push(name);
                }
            }
            Val::Flags(set)
        }
        WitType::Option(_) if value.is_null() => Val::Option(None),
        WitType::Option(ty) => Val::Option(Some(Box::new(from_json(value, ty)?))),
    })
}

fn of_member(
    object: &Map<String, Value>,
    (name, ty): &(String, WitType),
) -> Result<(String, Val), ValueError> {
    let member = json_name(name);
    let value = match (object.get(&member), ty) {
        (None, WitType::Option(_)) => Val::Option(None),
        (None, _) => return Err(ValueError::new("nothing is there").within(&member)),
        (Some(value), _) => from_json(value, ty).map_err(|error| error.within(&member))?,
    };
    Ok((name.clone(), value))
}

fn elements<'a>(
    values: impl Iterator<Item = (&'a Value, &'a WitType)>,
) -> Result<Vec<Val>, ValueError> {
    let element = |(at, (value, ty)): (usize, (&Value, &WitType))| {
        from_json(value, ty).map_err(|error| error.within(&at.to_string()))
    };
    values.enumerate().map(element).collect()
}

type Case = (String, Option<Box<Val>>);

/// The case that a value names: bare, or as the only member of an object.
fn case_of<'a>(
    value: &Value,
    mut cases: impl Iterator<Item = (&'a str, Option<&'a WitType>)>,
) -> Result<Option<Case>, ValueError> {
    let (name, payload) = match value {
        Value::String(name) => (name, None),
        Value::Object(object) if object.len() == 1 => match object.iter().next() {
            Some((name, payload)) => (name, Some(payload)),
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    let Some((case, ty)) = cases.find(|(case, _)| json_name(case) == *name) else {
        return Ok(None);
    };
    match (ty, payload) {
        (None, None) => Ok(Some((case.to_owned(), None))),
        (Some(ty), Some(payload)) => {
            let payload = from_json(payload, ty).map_err(|error| error.within(name))?;
            Ok(Some((case.to_owned(), Some(Box::new(payload)))))
        }
        (None, Some(_)) | (Some(_), None) => Ok(None),
    }
}

fn named(value: &Value, names: &[String]) -> Option<String> {
    let text = value.as_str()?;
    names.iter().find(|name| json_name(name) == text).cloned()
}

/// A whole number in whatever spelling, within what the type holds.
fn integer<T: TryFrom<i64>>(value: &Value) -> Option<T> {
    let whole = value.as_i64().or_else(|| {
        let float = value.as_f64()?;
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and in range")]
        (float.fract() == 0.0 && float.abs() <= JSON_INTEGER_MAX as f64).then_some(float as i64)
    })?;
    T::try_from(whole).ok()
}

fn found(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => format!("`{value}`"),
        Value::String(text) if text.chars().count() <= 40 => format!("`{value}`"),
        Value::String(_) => "this text".to_owned(),
        Value::Array(values) => format!("an array of {}", values.len()),
        Value::Object(_) => "this object".to_owned(),
    }
}
