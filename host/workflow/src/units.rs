//! Sizes and durations as text: `64MiB`, `500ms`, `24h`.

const DURATIONS: [(&str, u64); 5] =
    [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZES: [(&str, u64); 4] = [("B", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// Longest duration a file may state: ten years, so that sums of durations never overflow. Milliseconds.
pub(crate) const DURATION_MAX_MS: u64 = 3_650 * 86_400_000;
/// How durations are written.
pub(crate) const DURATION_FORM: &str =
    "a whole number and a unit: `500ms`, `10s`, `5m`, `24h`, `30d`";
/// How sizes are written.
pub(crate) const SIZE_FORM: &str = "a whole number and a unit: `512B`, `64KiB`, `64MiB`, `1GiB`";

/// Reads a duration as files write it. Milliseconds; `None` when it is no duration, or longer than ten years.
#[must_use]
pub fn duration_ms(text: &str) -> Option<u64> {
    measure(text, &DURATIONS).filter(|ms| *ms <= DURATION_MAX_MS)
}

/// Bytes.
pub(crate) fn size_bytes(text: &str) -> Option<u64> {
    measure(text, &SIZES)
}

fn measure(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

/// A duration (in milliseconds) for people, exact: `24h`, `21h36m`, `30d`, `7s500ms`.
#[must_use]
pub fn duration_text(ms: u64) -> String {
    let mut text = String::new();
    let mut rest = ms;
    for (name, factor) in DURATIONS.iter().rev() {
        // One day is known to most as 24h, as providers write it.
        let wanted = if *name == "d" { rest >= 2 * factor } else { rest >= *factor };
        if wanted {
            text.push_str(&format!("{}{name}", rest / factor));
            rest %= factor;
        }
    }
    if text.is_empty() { "0ms".to_owned() } else { text }
}

/// A size as its author would write it: in the largest unit that divides it.
pub(crate) fn size_text(bytes: u64) -> String {
    let (name, factor) = SIZES
        .iter()
        .rev()
        .find(|(_, factor)| bytes > 0 && bytes.is_multiple_of(*factor))
        .unwrap_or(&SIZES[0]);
    format!("{}{name}", bytes / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, duration: Option<u64>, size: Option<u64>) {
        assert_eq!((duration_ms(text), size_bytes(text)), (duration, size), "{text}");
    }

    #[test]
    fn reads_units() {
        check("500ms", Some(500), None);
        check("10s", Some(10_000), None);
        check("5m", Some(300_000), None);
        check("24h", Some(86_400_000), None);
        check("30d", Some(2_592_000_000), None);
        check("64MiB", None, Some(64 << 20));
        check("0B", None, Some(0));
        check("4000d", None, None);
        check("99999999999999999999s", None, None);
        check("18446744073709551615GiB", None, None);
        check("-1s", None, None);
        check("1.5s", None, None);
        check("10", None, None);
        check("10 s", None, None);
        check("", None, None);
    }

    #[test]
    fn shows_what_it_reads() {
        assert_eq!(duration_text(7_500), "7s500ms");
        assert_eq!(duration_text(77_760_000), "21h36m");
        assert_eq!(duration_text(0), "0ms");
        for text in ["500ms", "10s", "5m", "24h", "30d"] {
            assert_eq!(duration_ms(text).map(duration_text).as_deref(), Some(text));
        }
        for text in ["512B", "64KiB", "64MiB", "1GiB"] {
            assert_eq!(size_bytes(text).map(size_text).as_deref(), Some(text));
        }
    }
}
