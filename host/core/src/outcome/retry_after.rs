//! `Retry-After`: seconds, or a date held against the `Date` of the same answer, as no clock is at hand.

use crate::time::Timestamp;

/// The wait that the headers (names in lower case) ask for, in milliseconds. `None` when they ask for none, or for one
/// that cannot be read.
pub(super) fn retry_after_ms(headers: &[(String, String)]) -> Option<u64> {
    let header = |name| headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.trim());
    let asked = header("retry-after")?;
    if !asked.is_empty() && asked.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit mean: very long. The caller clamps.
        return Some(asked.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(1_000));
    }
    let now = http_date(header("date")?)?;
    Some(http_date(asked)?.ms_since(now))
}

/// Reads the three forms that RFC 9110 §5.6.7 wants read.
fn http_date(text: &str) -> Option<Timestamp> {
    let words: Vec<&str> = text.split([' ', ',', '-']).filter(|word| !word.is_empty()).collect();
    let (day, month, year, time) = match words.as_slice() {
        // Sun, 06 Nov 1994 08:49:37 GMT
        [_, day, month, year, time, "GMT"] if year.len() == 4 => {
            (*day, *month, year.parse().ok()?, *time)
        }
        // Sunday, 06-Nov-94 08:49:37 GMT: HTTP is not older than 1970, and nobody writes this form in 2070.
        [_, day, month, year, time, "GMT"] if year.len() == 2 => {
            let year: i64 = year.parse().ok()?;
            (*day, *month, if year < 70 { 2000 + year } else { 1900 + year }, *time)
        }
        // Sun Nov  6 08:49:37 1994
        [_, month, day, time, year] => (*day, *month, year.parse().ok()?, *time),
        _ => return None,
    };
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = MONTHS.iter().position(|name| *name == month)? as i64 + 1;
    let day: i64 = day.parse().ok().filter(|day| (1..=31).contains(day))?;
    if !(1970..=9999).contains(&year) {
        return None;
    }
    let mut parts = time.split(':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    let in_range =
        (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    if !in_range || parts.next().is_some() {
        return None;
    }
    let days = days_from_civil(year, month, day);
    Some(Timestamp((((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000))
}

/// The day number of a date, 1970-01-01 being 0; years start in March so that the leap day comes last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}
