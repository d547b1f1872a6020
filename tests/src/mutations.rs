//! Rules that can be broken on purpose, and what has to notice it. How to run it: `docs/testing.md`.

use std::fmt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A rule that is broken on purpose.
#[derive(Debug, Clone, Copy)]
pub struct Mutation {
    /// Its name, as `TWICE_MUTATION` has it.
    pub name: &'static str,
    /// The tests that must notice, each with the invariants by which it may.
    pub found_by: &'static [(&'static str, &'static [&'static str])],
}

const SIMULATION: &str = "simulation";
const STORE: &str = "store_sweep";
const ROW_COUNT: &str = "row_count";
const SAGAS: &str = "sagas";
const CRASHES: &str = "crash_sweep";

/// Every rule that can be broken.
pub const ALL: [Mutation; 21] = [
    Mutation { name: "send-before-commit", found_by: &[(SIMULATION, &["I3"]), (STORE, &["I3"])] },
    Mutation { name: "trust-lost-commit", found_by: &[(SIMULATION, &["I3"]), (STORE, &["I3"])] },
    Mutation { name: "skip-fence", found_by: &[(SIMULATION, &["I7"]), (STORE, &["I7"])] },
    Mutation { name: "take-live-lease", found_by: &[(SIMULATION, &["I7"])] },
    Mutation { name: "ignore-row-count", found_by: &[(ROW_COUNT, &["I7"])] },
    Mutation { name: "requested-is-unsent", found_by: &[(SIMULATION, &["I1", "I4"])] },
    Mutation { name: "believe-first-miss", found_by: &[(SIMULATION, &["I1", "I5"])] },
    Mutation { name: "key-by-attempt", found_by: &[(SIMULATION, &["I1", "I2", "I3"])] },
    Mutation { name: "key-lives-for-ever", found_by: &[(SIMULATION, &["I1"])] },
    Mutation { name: "forget-doubt", found_by: &[(SIMULATION, &["I4", "I5"])] },
    Mutation { name: "ignore-args", found_by: &[(SIMULATION, &["I6"])] },
    Mutation { name: "undo-unknown", found_by: &[(SAGAS, &["I5", "I11"])] },
    Mutation { name: "undo-before-reconciled", found_by: &[(SAGAS, &["I5", "I11"])] },
    Mutation { name: "undo-at-once", found_by: &[(CRASHES, &["I5"])] },
    Mutation { name: "undo-oldest-first", found_by: &[(SAGAS, &["I9"]), (CRASHES, &["I9"])] },
    Mutation { name: "undo-past-blocked", found_by: &[(SAGAS, &["I9"]), (CRASHES, &["I9"])] },
    Mutation { name: "undo-past-pivot", found_by: &[(SAGAS, &["I9"]), (CRASHES, &["I9"])] },
    Mutation { name: "undo-again", found_by: &[(SAGAS, &["I1"]), (CRASHES, &["I1"])] },
    Mutation { name: "undo-under-its-key", found_by: &[(SAGAS, &["I2"]), (CRASHES, &["I2"])] },
    Mutation { name: "forget-compensating", found_by: &[(SAGAS, &["I11"]), (CRASHES, &["I11"])] },
    Mutation { name: "stuck-is-failed", found_by: &[(SAGAS, &["I11"]), (CRASHES, &["I11"])] },
];

/// How a broken rule was noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub mutation: &'static str,
    /// The test.
    pub by: &'static str,
    /// The invariant that it saw broken.
    pub invariant: String,
    /// The seed or the boundary.
    pub place: String,
    /// What it saw.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mutation, by, invariant, place, what } = self;
        write!(f, "{mutation:<20} {by:<12} {invariant:<4} {place}: {what}")
    }
}

/// How long a test may take that has a broken rule to find.
const PATIENCE: Duration = Duration::from_secs(240);

/// Runs a test of this very program with one rule broken.
///
/// # Errors
/// In words, when the test does not fail, or fails without saying where and which invariant.
pub fn look(mutation: &'static str, by: &'static str, allowed: &[&str]) -> Result<Finding, String> {
    let told = run(mutation, by).map_err(|problem| format!("{mutation}, {by}: {problem}"))?;
    let finding = told.lines().find_map(|line| read(mutation, by, line));
    let finding = finding.ok_or_else(|| {
        format!(
            "{mutation}, {by}: it failed, and names no seed or boundary and no invariant:\n{told}"
        )
    })?;
    if allowed.contains(&finding.invariant.as_str()) {
        Ok(finding)
    } else {
        Err(format!("not by one of {allowed:?}: {finding}"))
    }
}

/// What a test tells that fails.
fn run(mutation: &str, by: &str) -> Result<String, String> {
    let said = |error: std::io::Error| error.to_string();
    let program = std::env::current_exe().map_err(said)?;
    let output = tempfile::NamedTempFile::new().map_err(said)?;
    let file = || output.reopen().map(Stdio::from);
    let mut child = Command::new(program)
        .args([by, "--exact", "--nocapture", "--test-threads=1"])
        .env("TWICE_MUTATION", mutation)
        .env_remove("SEED")
        .env_remove("SCHEDULES")
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(file().map_err(said)?)
        .spawn()
        .map_err(said)?;
    let started = Instant::now();
    let status = loop {
        match child.try_wait().map_err(said)? {
            Some(status) => break status,
            None if started.elapsed() > PATIENCE => {
                child.kill().and_then(|()| child.wait()).map_err(said)?;
                return Err(format!("nothing after {} s", PATIENCE.as_secs()));
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let told = std::fs::read_to_string(output.path()).map_err(said)?;
    if status.success() { Err("nobody noticed".to_owned()) } else { Ok(told) }
}

/// Reads a line that a [`Broken`](crate::invariants::Broken) made.
fn read(mutation: &'static str, by: &'static str, line: &str) -> Option<Finding> {
    let (rest, invariant) = line.trim_end().strip_suffix(')')?.rsplit_once(" (")?;
    let number = invariant.strip_prefix('I')?;
    if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if !(rest.starts_with("seed=") || rest.starts_with("boundary=")) {
        return None;
    }
    let (place, what) = rest.split_once(": ")?;
    Some(Finding {
        mutation,
        by,
        invariant: invariant.to_owned(),
        place: place.to_owned(),
        what: what.to_owned(),
    })
}
