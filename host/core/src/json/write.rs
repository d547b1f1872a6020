//! Canonical JSON: RFC 8785.

use std::fmt::Write;

use serde_json::{Number, Value};

use crate::limits::JSON_INTEGER_MAX;

/// Canonical JSON (RFC 8785): members ordered by their UTF-16 code units, numbers as ECMAScript writes them, strings
/// escaped no more than necessary, nothing normalised.
///
/// # Panics
/// When a number is not finite, which neither [`parse`](super::parse) nor [`check`](super::check) lets pass.
#[must_use]
pub fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<(&String, &Value)> = members.iter().collect();
            members.sort_unstable_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            out.push('{');
            for (index, (key, member)) in members.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_string(out, key);
                out.push(':');
                write_value(out, member);
            }
            out.push('}');
        }
    }
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\0'..='\u{1f}' => {
                write!(out, "\\u{:04x}", u32::from(c)).expect("a string takes any text");
            }
            _ => out.push(c),
        }
    }
    out.push('"');
}

fn write_number(out: &mut String, number: &Number) {
    match number.as_i64() {
        Some(integer) if integer.unsigned_abs() <= JSON_INTEGER_MAX.unsigned_abs() => {
            write!(out, "{integer}").expect("a string takes any text");
        }
        Some(_) | None => {
            let float = number.as_f64().filter(|float| float.is_finite());
            write_float(
                out,
                float.expect("`parse` and `check` refuse numbers that are not finite"),
            );
        }
    }
}

/// ECMAScript's `Number::toString`.
fn write_float(out: &mut String, float: f64) {
    if float == 0.0 {
        out.push('0');
        return;
    }
    let shortest = shortest(float.abs());
    let (mantissa, exponent) =
        shortest.split_once('e').expect("the exponent form of a float has an exponent");
    let exponent: i32 = exponent.parse().expect("the exponent of a float is a small integer");
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let count = digits.len() as i32;
    // The value is 0.DIGITS times ten to the power `point`.
    let point = exponent + 1;
    if float < 0.0 {
        out.push('-');
    }
    if count <= point && point <= 21 {
        out.push_str(&digits);
        out.push_str(&"0".repeat((point - count) as usize));
    } else if 0 < point && point <= 21 {
        let (whole, fraction) = digits.split_at(point as usize);
        out.push_str(whole);
        out.push('.');
        out.push_str(fraction);
    } else if -6 < point && point <= 0 {
        out.push_str("0.");
        out.push_str(&"0".repeat((-point) as usize));
        out.push_str(&digits);
    } else {
        let (first, rest) = digits.split_at(1);
        out.push_str(first);
        if !rest.is_empty() {
            out.push('.');
            out.push_str(rest);
        }
        write!(out, "e{exponent:+}").expect("a string takes any text");
    }
}

/// The fewest digits that read back as the same number, and of several such texts the nearest to it. The standard
/// library gives the fewest; where two texts of that length are equally near, it takes the upper and ECMAScript the even.
fn shortest(float: f64) -> String {
    let fewest = format!("{float:e}");
    let digits = fewest.bytes().take_while(|byte| *byte != b'e').filter(u8::is_ascii_digit).count();
    let nearest = format!("{float:.*e}", digits - 1);
    if nearest.parse() == Ok(float) { nearest } else { fewest }
}
