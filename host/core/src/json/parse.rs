//! The strict reader. Recursive, but never deeper than its limit; linear in the length of the text.

use serde_json::{Map, Number, Value};

use super::{JsonError, JsonProblem, Place};
use crate::limits::JSON_INTEGER_MAX;

pub(super) fn value(text: &str, max_bytes: usize, max_depth: usize) -> Result<Value, JsonError> {
    let mut reader = Reader { text, at: 0, max_depth };
    if text.len() > max_bytes {
        return Err(reader.refuse(0, JsonProblem::TooLong { bytes: text.len(), max: max_bytes }));
    }
    reader.skip_space();
    let value = reader.value(1)?;
    reader.skip_space();
    if reader.at < text.len() {
        return Err(reader.unexpected("the end"));
    }
    Ok(value)
}

struct Reader<'a> {
    text: &'a str,
    /// In bytes; always between two characters.
    at: usize,
    max_depth: usize,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Result<Value, JsonError> {
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Value::Bool(true)),
            Some(b'f') => self.word("false", Value::Bool(false)),
            Some(b'n') => self.word("null", Value::Null),
            Some(_) | None => Err(self.unexpected("a value")),
        }
    }

    fn word(&mut self, word: &'static str, value: Value) -> Result<Value, JsonError> {
        if self.text[self.at..].starts_with(word) {
            self.at += word.len();
            return Ok(value);
        }
        Err(self.unexpected("a value"))
    }

    fn enter(&mut self, depth: usize) -> Result<(), JsonError> {
        if depth > self.max_depth {
            return Err(self.refuse(self.at, JsonProblem::TooDeep { max: self.max_depth }));
        }
        self.at += 1;
        self.skip_space();
        Ok(())
    }

    fn array(&mut self, depth: usize) -> Result<Value, JsonError> {
        self.enter(depth)?;
        let mut items = Vec::new();
        if self.take(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.skip_space();
            if self.take(b']') {
                return Ok(Value::Array(items));
            }
            if !self.take(b',') {
                return Err(self.unexpected("`,` or `]`"));
            }
            self.skip_space();
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, JsonError> {
        self.enter(depth)?;
        let mut members = Map::new();
        if self.take(b'}') {
            return Ok(Value::Object(members));
        }
        loop {
            let key_at = self.at;
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a member's name in quotes"));
            }
            let key = self.string()?;
            if members.contains_key(&key) {
                return Err(self.refuse(key_at, JsonProblem::DuplicateKey { key }));
            }
            self.skip_space();
            if !self.take(b':') {
                return Err(self.unexpected("`:`"));
            }
            self.skip_space();
            let member = self.value(depth + 1)?;
            members.insert(key, member);
            self.skip_space();
            if self.take(b'}') {
                return Ok(Value::Object(members));
            }
            if !self.take(b',') {
                return Err(self.unexpected("`,` or `}`"));
            }
            self.skip_space();
        }
    }

    fn string(&mut self) -> Result<String, JsonError> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest
                .find(|c: char| matches!(c, '"' | '\\' | '\0'..='\u{1f}'))
                .unwrap_or(rest.len());
            out.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.escape()?),
                Some(_) => return Err(self.unexpected("control characters to be escaped")),
                None => return Err(self.unexpected("the closing quote of a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonError> {
        let start = self.at;
        self.at += 1;
        let c = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode(start);
            }
            Some(_) | None => {
                return Err(self.unexpected("one of `\"\\/bfnrtu` after a backslash"));
            }
        };
        self.at += 1;
        Ok(c)
    }

    /// The character of one or two escapes of four digits (`\u`), the first of which starts at `start`.
    fn unicode(&mut self, start: usize) -> Result<char, JsonError> {
        let first = self.hex4()?;
        if let Some(c) = char::from_u32(u32::from(first)) {
            return Ok(c);
        }
        let lone = JsonProblem::LoneSurrogate { unit: first };
        if first >= 0xDC00 || !self.text[self.at..].starts_with("\\u") {
            return Err(self.refuse(start, lone));
        }
        self.at += 2;
        let second = self.hex4()?;
        match char::decode_utf16([first, second]).next() {
            Some(Ok(c)) => Ok(c),
            Some(Err(_)) | None => Err(self.refuse(start, lone)),
        }
    }

    fn hex4(&mut self) -> Result<u16, JsonError> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).unwrap_or_default();
        if digits.len() < 4 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(self.unexpected("four hexadecimal digits"));
        }
        let unit = digits.iter().fold(0, |unit, digit| {
            let digit = char::from(*digit).to_digit(16).expect("checked to be hexadecimal");
            unit << 4 | digit as u16
        });
        self.at += 4;
        Ok(unit)
    }

    fn number(&mut self) -> Result<Value, JsonError> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        let mut whole = true;
        if self.take(b'.') {
            whole = false;
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            whole = false;
            if !self.take(b'+') {
                self.take(b'-');
            }
            self.digits()?;
        }
        let text = &self.text[start..self.at];
        let problem = match number(text, whole) {
            Ok(number) => return Ok(Value::Number(number)),
            Err(problem) => problem,
        };
        Err(self.refuse(start, problem))
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let rest = &self.text.as_bytes()[self.at..];
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        if count == 0 { Err(self.unexpected("a digit")) } else { Ok(()) }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn unexpected(&self, expected: &'static str) -> JsonError {
        let found = self.text[self.at..].chars().next();
        let found = found.map_or("the end".to_owned(), |c| format!("`{}`", c.escape_debug()));
        self.refuse(self.at, JsonProblem::Syntax { expected, found })
    }

    fn refuse(&self, at: usize, problem: JsonProblem) -> JsonError {
        let before = &self.text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        JsonError { problem, place: Place::Text { line, column } }
    }
}

/// A number from its well-formed text. Read by the standard library and not by `serde_json`, whose rounding depends on
/// its features.
fn number(text: &str, whole: bool) -> Result<Number, JsonProblem> {
    let beyond = || JsonProblem::IntegerRange { number: excerpt(text) };
    if whole {
        let integer: i64 = text.parse().map_err(|_| beyond())?;
        let small = integer.unsigned_abs() <= JSON_INTEGER_MAX.unsigned_abs();
        return if small { Ok(Number::from(integer)) } else { Err(beyond()) };
    }
    let float: f64 = text.parse().expect("the grammar of JSON numbers is part of Rust's");
    let not_finite = || JsonProblem::NotFinite { number: excerpt(text) };
    if !float.is_finite() {
        return Err(not_finite());
    }
    // Every double beyond is whole.
    if float.abs() > JSON_INTEGER_MAX as f64 {
        return Err(beyond());
    }
    if float.fract() == 0.0 {
        return Ok(Number::from(float as i64));
    }
    Number::from_f64(float).ok_or_else(not_finite)
}

/// Enough of a number to recognise it by.
fn excerpt(number: &str) -> String {
    const SHOWN: usize = 40;
    if number.len() <= SHOWN { number.to_owned() } else { format!("{}…", &number[..SHOWN]) }
}
