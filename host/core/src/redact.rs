//! Takes secret values out of everything that is kept or shown (I10): by value, wherever they turn up, in the forms in
//! which the ways of HTTP and JSON write them.

use std::fmt;
use std::ops::ControlFlow;

use data_encoding::{BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER};
use serde_json::{Map, Value};

use crate::limits::SECRET_CHARS_MIN;

/// What stands in the place of a secret.
const MARK: &str = "[secret]";

/// A secret that is too short to be told from text that only looks like it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a secret of {chars} characters is too short to be kept out of logs; use one of at least {SECRET_CHARS_MIN}"
)]
pub struct SecretTooShort {
    /// Its length in characters, without space around it.
    pub chars: usize,
}

/// The values that must appear nowhere, in every form in which they are looked for: as they are, in base64 (standard and
/// URL alphabet, at any alignment within a longer text), in hexadecimal, and each of these with any of its characters
/// percent-encoded or JSON-escaped.
#[derive(Clone, Default)]
pub struct Redactor {
    needles: Vec<Needle>,
    /// For each byte the needles that can start with it as it is.
    by_first_byte: Vec<Vec<usize>>,
    /// For each two bytes, as a bit, whether any needle starts with them where nothing is escaped. Almost every place of
    /// almost every text is passed over by this alone.
    by_pair: Vec<u64>,
}

#[derive(Clone)]
struct Needle {
    chars: Vec<char>,
    form: Form,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Raw,
    /// Digits in either case.
    Hex,
    /// The characters that depend on the secret alone; those at the seams hold bits of the secret too.
    Base64 {
        seam_before: bool,
        seam_after: bool,
    },
}

impl fmt::Debug for Redactor {
    /// Never the values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secrets = self.needles.iter().filter(|needle| needle.form == Form::Raw).count();
        f.debug_struct("Redactor").field("secrets", &secrets).finish_non_exhaustive()
    }
}

impl Redactor {
    /// Adds a secret value; space around it does not count. Adding it again changes nothing.
    ///
    /// # Errors
    /// [`SecretTooShort`]: such a value cannot be kept out of texts, so that the caller must not use it.
    pub fn add(&mut self, secret: &str) -> Result<(), SecretTooShort> {
        let secret = secret.trim();
        let chars: Vec<char> = secret.chars().collect();
        if chars.len() < SECRET_CHARS_MIN {
            return Err(SecretTooShort { chars: chars.len() });
        }
        let known = |needle: &Needle| needle.form == Form::Raw && needle.chars == chars;
        if self.needles.iter().any(known) {
            return Ok(());
        }
        self.push(chars, Form::Raw);
        self.push(HEXLOWER.encode(secret.as_bytes()).chars().collect(), Form::Hex);
        for offset in 0..3 {
            let mut bytes = vec![0; offset];
            bytes.extend_from_slice(secret.as_bytes());
            let bits = bytes.len() * 8;
            let own = (offset * 8).div_ceil(6)..bits / 6;
            let form =
                Form::Base64 { seam_before: offset > 0, seam_after: !bits.is_multiple_of(6) };
            let standard = &BASE64_NOPAD.encode(&bytes)[own.clone()];
            let url = &BASE64URL_NOPAD.encode(&bytes)[own];
            self.push(standard.chars().collect(), form);
            if url != standard {
                self.push(url.chars().collect(), form);
            }
        }
        Ok(())
    }

    fn push(&mut self, chars: Vec<char>, form: Form) {
        self.by_first_byte.resize(256, Vec::new());
        self.by_pair.resize((1 << 16) / 64, 0);
        let plain: String = chars.iter().take(2).collect();
        if let [a, b, ..] = *plain.as_bytes() {
            let cases = |byte: u8| match form {
                Form::Hex => [byte, byte.to_ascii_uppercase()],
                Form::Raw | Form::Base64 { .. } => [byte; 2],
            };
            for (a, b) in cases(a).into_iter().flat_map(|a| cases(b).map(|b| (a, b))) {
                let (word, bit) = pair(a, b);
                self.by_pair[word] |= bit;
            }
        }
        let index = self.needles.len();
        if let Some(first) = chars.first() {
            let mut first_bytes = vec![first_byte(*first)];
            if form == Form::Hex {
                first_bytes.push(first_byte(first.to_ascii_uppercase()));
            }
            first_bytes.dedup();
            for byte in first_bytes {
                self.by_first_byte[usize::from(byte)].push(index);
            }
        }
        self.needles.push(Needle { chars, form });
    }

    /// The text with `[secret]` in the place of every secret.
    #[must_use]
    pub fn text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut kept = 0;
        for (start, end) in self.ranges(text) {
            out.push_str(&text[kept..start]);
            out.push_str(MARK);
            kept = end;
        }
        out.push_str(&text[kept..]);
        out
    }

    /// Takes secrets out of every string, object key and number of a value. A number that holds one becomes a string; a
    /// key that becomes equal to another gets a number after it, so that no member is lost.
    pub fn value(&self, value: &mut Value) {
        if self.needles.is_empty() {
            return;
        }
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => {
                let text = number.to_string();
                if self.finds_in_text(&text) {
                    *value = Value::String(self.text(&text));
                }
            }
            Value::String(text) => {
                if self.finds_in_text(text) {
                    *text = self.text(text);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(members) => {
                members.values_mut().for_each(|member| self.value(member));
                if members.keys().any(|key| self.finds_in_text(key)) {
                    *members = self.keys(std::mem::take(members));
                }
            }
        }
    }

    fn keys(&self, members: Map<String, Value>) -> Map<String, Value> {
        let (mut held, clean): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|(key, _)| self.finds_in_text(key));
        // The numbers must not depend on the order in which a map keeps its members.
        held.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let mut out: Map<String, Value> = clean.into_iter().collect();
        for (key, member) in held {
            let clean = self.text(&key);
            let mut free = clean.clone();
            let mut number = 2;
            while out.contains_key(&free) {
                free = format!("{clean}{number}");
                number += 1;
            }
            out.insert(free, member);
        }
        out
    }

    /// Whether any secret occurs in the value.
    #[must_use]
    pub fn finds_in(&self, value: &Value) -> bool {
        match value {
            Value::Null | Value::Bool(_) => false,
            Value::Number(number) => self.finds_in_text(&number.to_string()),
            Value::String(text) => self.finds_in_text(text),
            Value::Array(items) => items.iter().any(|item| self.finds_in(item)),
            Value::Object(members) => {
                members.iter().any(|(key, member)| self.finds_in_text(key) || self.finds_in(member))
            }
        }
    }

    /// Whether any secret occurs in the text.
    #[must_use]
    pub fn finds_in_text(&self, text: &str) -> bool {
        let mut found = false;
        self.scan(text.as_bytes(), |_, _| {
            found = true;
            ControlFlow::Break(())
        });
        found
    }

    /// Where secrets are, in bytes: in order, and none touching the next.
    fn ranges(&self, text: &str) -> Vec<(usize, usize)> {
        let mut found: Vec<(usize, usize)> = Vec::new();
        self.scan(text.as_bytes(), |start, end| {
            found.push((start, end));
            ControlFlow::Continue(())
        });
        found.sort_unstable();
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for (start, end) in found {
            match ranges.last_mut() {
                Some((_, last)) if start <= *last => *last = end.max(*last),
                Some(_) | None => ranges.push((start, end)),
            }
        }
        ranges
    }

    /// Whether a needle may start here. What could be a spelling of another character may be anything.
    fn may_start(&self, rest: &[u8]) -> bool {
        let respelt = |byte: u8| matches!(byte, b'%' | b'\\' | b'+');
        match *rest {
            [a, b, ..] if !respelt(a) && !respelt(b) => {
                let (word, bit) = pair(a, b);
                self.by_pair.get(word).is_some_and(|bits| bits & bit != 0)
            }
            _ => true,
        }
    }

    /// Calls `found` with the ends of every occurrence of every needle, but for those of one needle that overlap. One pass:
    /// the texts come from guests and providers, so that no text may make this slow.
    fn scan(&self, text: &[u8], mut found: impl FnMut(usize, usize) -> ControlFlow<()>) {
        if self.needles.is_empty() {
            return;
        }
        let mut resume = vec![0; self.needles.len()];
        for at in 0..text.len() {
            if !self.may_start(&text[at..]) {
                continue;
            }
            let first_bytes = [Some(text[at]), unescaped(&text[at..])];
            for index in
                first_bytes.into_iter().flatten().flat_map(|b| &self.by_first_byte[usize::from(b)])
            {
                if at < resume[*index] {
                    continue;
                }
                let needle = &self.needles[*index];
                let Some(end) = needle.end(text, at).filter(|_| !inside_mark(text, at)) else {
                    continue;
                };
                resume[*index] = end;
                let (start, end) = needle.with_seams(text, at, end);
                if found(start, end).is_break() {
                    return;
                }
            }
        }
    }
}

/// Where the bit of two bytes is.
fn pair(a: u8, b: u8) -> (usize, u64) {
    let number = usize::from(a) << 8 | usize::from(b);
    (number / 64, 1 << (number % 64))
}

impl Needle {
    /// Where the needle ends if it starts at `start`. Each character may stand there in any of its spellings, and one
    /// spelling may be the beginning of another, so that several places are followed at once.
    fn end(&self, text: &[u8], start: usize) -> Option<usize> {
        // Most starts are none; that is seen without memory of the heap.
        let [first, second, rest @ ..] = self.chars.as_slice() else { return None };
        let mut places: Vec<usize> = Vec::new();
        for place in self.after(text, start, *first) {
            for place in self.after(text, place, *second) {
                places.push(place);
            }
        }
        for c in rest {
            let [one] = places.as_slice() else {
                places = places.iter().flat_map(|place| self.after(text, *place, *c)).collect();
                places.sort_unstable();
                places.dedup();
                if places.is_empty() {
                    return None;
                }
                continue;
            };
            let mut after = self.after(text, *one, *c);
            let next = after.next()?;
            places[0] = next;
            places.extend(after.filter(|place| *place != next));
        }
        places.into_iter().max()
    }

    /// The places after each spelling of `c` at `place`.
    fn after(&self, text: &[u8], place: usize, c: char) -> impl Iterator<Item = usize> + use<> {
        let rest = &text[place..];
        let escaped = match rest.first() {
            Some(b'%') => percent(rest, c),
            Some(b'\\') => json_escape(rest, c),
            Some(_) | None => None,
        };
        [self.plain(rest, c), escaped].into_iter().flatten().map(move |length| place + length)
    }

    fn plain(&self, rest: &[u8], c: char) -> Option<usize> {
        if c == ' ' && rest.first() == Some(&b'+') {
            return Some(1);
        }
        let mut buffer = [0; 4];
        let utf8 = c.encode_utf8(&mut buffer).as_bytes();
        let head = rest.get(..utf8.len())?;
        let same =
            if self.form == Form::Hex { head.eq_ignore_ascii_case(utf8) } else { head == utf8 };
        same.then_some(utf8.len())
    }

    fn with_seams(&self, text: &[u8], start: usize, end: usize) -> (usize, usize) {
        let Form::Base64 { seam_before, seam_after } = self.form else { return (start, end) };
        let base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte);
        let before = seam_before && start > 0 && base64(text[start - 1]);
        let after = seam_after && text.get(end).is_some_and(|byte| base64(*byte));
        (start - usize::from(before), end + usize::from(after))
    }
}

fn first_byte(c: char) -> u8 {
    c.encode_utf8(&mut [0; 4]).as_bytes()[0]
}

/// Whether a place is within our own mark, which tells nothing even if a secret is spelt like it.
fn inside_mark(text: &[u8], at: usize) -> bool {
    (at.saturating_sub(MARK.len() - 1)..=at)
        .any(|start| text.get(start..start + MARK.len()) == Some(MARK.as_bytes()))
}

/// The first byte of the character that an escape at the start of `rest` stands for.
fn unescaped(rest: &[u8]) -> Option<u8> {
    match rest.first()? {
        b'+' => Some(b' '),
        b'%' => hex(rest.get(1..3)?).and_then(|byte| u8::try_from(byte).ok()),
        b'\\' => match rest.get(1)? {
            b'u' => {
                let unit = u16::try_from(hex(rest.get(2..6)?)?).ok()?;
                let low = rest.get(8..12).and_then(hex).and_then(|unit| u16::try_from(unit).ok());
                let units = [unit, low.unwrap_or(0)];
                char::decode_utf16(units).next()?.ok().map(first_byte)
            }
            escape => short_escape(*escape).map(first_byte),
        },
        _ => None,
    }
}

/// What a backslash and this byte stand for in JSON.
fn short_escape(byte: u8) -> Option<char> {
    match byte {
        b'"' => Some('"'),
        b'\\' => Some('\\'),
        b'/' => Some('/'),
        b'b' => Some('\u{8}'),
        b'f' => Some('\u{c}'),
        b'n' => Some('\n'),
        b'r' => Some('\r'),
        b't' => Some('\t'),
        _ => None,
    }
}

/// The length of `c` at the start of `rest`, percent-encoded.
fn percent(rest: &[u8], c: char) -> Option<usize> {
    let mut buffer = [0; 4];
    let utf8 = c.encode_utf8(&mut buffer).as_bytes();
    let encoded = rest.get(..utf8.len() * 3)?;
    let same = encoded
        .chunks(3)
        .zip(utf8)
        .all(|(triple, byte)| triple[0] == b'%' && hex(&triple[1..]) == Some(u32::from(*byte)));
    same.then_some(encoded.len())
}

/// The length of `c` at the start of `rest`, escaped as in JSON.
fn json_escape(rest: &[u8], c: char) -> Option<usize> {
    let escape = *rest.get(1)?;
    if escape != b'u' {
        return short_escape(escape).filter(|short| *short == c).map(|_| 2);
    }
    let mut units = [0; 2];
    let units = c.encode_utf16(&mut units);
    let escaped = rest.get(..units.len() * 6)?;
    let same = escaped.chunks(6).zip(units.iter()).all(|(escape, unit)| {
        escape.starts_with(b"\\u") && hex(&escape[2..]) == Some(u32::from(*unit))
    });
    same.then_some(escaped.len())
}

fn hex(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |number, digit| Some(number << 4 | char::from(*digit).to_digit(16)?))
}
