//! The time that this process kept processors busy: what a machine shared with others does not change.

use std::fs;

/// Linux counts in hundredths of a second.
const TICK_US: f64 = 10_000.0;

/// User and system time of all threads so far, in microseconds; `None` where it cannot be told.
pub(super) fn used_us() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may hold spaces.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) * TICK_US)
}
