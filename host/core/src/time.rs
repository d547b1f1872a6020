//! Time as a value. Nothing here reads a clock: instants arrive as arguments.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::JSON_INTEGER_MAX;

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The latest instant, in the year 287396: the largest integer that JSON holds exactly.
    pub const MAX: Self = Self(JSON_INTEGER_MAX);

    /// This instant moved forward by `ms` milliseconds, at most to [`Timestamp::MAX`].
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        let ms = if ms > JSON_INTEGER_MAX as u64 { JSON_INTEGER_MAX } else { ms as i64 };
        let sum = self.0.saturating_add(ms);
        if sum > JSON_INTEGER_MAX { Self::MAX } else { Self(sum) }
    }

    /// Milliseconds from `earlier` to this instant; zero when `earlier` is later.
    #[must_use]
    pub const fn ms_since(self, earlier: Self) -> u64 {
        let ms = self.0.saturating_sub(earlier.0);
        if ms < 0 { 0 } else { ms as u64 }
    }
}

/// A clock, passed in wherever the time is needed.
pub trait Clock: Send + Sync + 'static {
    /// The present instant.
    fn now(&self) -> Timestamp;
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with milliseconds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, ms) = (self.0.div_euclid(86_400_000), self.0.rem_euclid(86_400_000));
        let (year, month, day) = civil_from_days(days);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
            ms / 3_600_000,
            ms / 60_000 % 60,
            ms / 1_000 % 60,
            ms % 1_000
        )
    }
}

/// The proleptic Gregorian date of a day number; the era arithmetic of Howard Hinnant's `civil_from_days`.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displays_rfc_3339() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp(951_782_400_123).to_string(), "2000-02-29T00:00:00.123Z");
        assert_eq!(Timestamp(-1).to_string(), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp::MAX.plus_ms(5), Timestamp::MAX);
        assert_eq!(Timestamp(7).plus_ms(u64::MAX), Timestamp::MAX);
        assert_eq!(Timestamp(5).ms_since(Timestamp(9)), 0);
    }
}
