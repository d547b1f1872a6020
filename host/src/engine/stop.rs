//! Why a step, or a run, does not go on now.

use twice_core::time::Timestamp;

/// What the reason of a run begins with that waits for an instant, but goes on sooner only when a person decides something: about
/// a child run, or an approval.
pub const NEEDS_PERSON: &str = "a person is needed";

/// Why a step cannot go on now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// Until an instant.
    Wait {
        /// When to go on.
        until: Timestamp,
        /// For people.
        why: String,
    },
    /// Until a person decides.
    Person {
        /// Why, and what to do.
        why: String,
    },
}

impl Stop {
    /// What a person is needed for, if one is.
    pub(super) fn person(self) -> Option<String> {
        match self {
            Self::Wait { .. } => None,
            Self::Person { why } => Some(why),
        }
    }

    /// Whichever of several lets the run go on first; a person is waited for only when nothing goes on by itself, and is told of
    /// in any case.
    pub(super) fn first<'a>(stops: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        let (mut waits, mut person): (Vec<&Self>, Option<&str>) = (Vec::new(), None);
        for stop in stops {
            match stop {
                Self::Wait { .. } => waits.push(stop),
                Self::Person { why } => drop(person.get_or_insert(why)),
            }
        }
        waits.sort_by_key(|stop| match stop {
            Self::Wait { until, .. } => Some(*until),
            Self::Person { .. } => None,
        });
        let first = waits.into_iter().fold(None, |first, stop| Some(sooner(first, stop.clone())));
        match (first, person) {
            (Some(Self::Wait { until, why }), Some(person)) => {
                Some(Self::Wait { until, why: format!("{why}; and a person is needed: {person}") })
            }
            (Some(first), _) => Some(first),
            (None, Some(why)) => Some(Self::Person { why: why.to_owned() }),
            (None, None) => None,
        }
    }
}

/// Whichever stop lets the run go on first; a person is waited for only when nothing else is.
pub(super) fn sooner(known: Option<Stop>, found: Stop) -> Stop {
    match (known, found) {
        (None, found) => found,
        (Some(Stop::Wait { until: a, why: one }), Stop::Wait { until: b, why: other }) => {
            let (first, second) = if a <= b { (one, other) } else { (other, one) };
            Stop::Wait { until: a.min(b), why: first_why(first, second) }
        }
        (Some(known @ Stop::Wait { .. }), Stop::Person { .. }) => known,
        (Some(known @ Stop::Person { .. }), Stop::Person { .. }) => known,
        (Some(_), found) => found,
    }
}

/// The reason to show of two waits. That a person is needed is told beside what goes on by itself, and by itself
/// only when nothing does.
fn first_why(first: String, second: String) -> String {
    let blocked = |why: &str| why.starts_with(NEEDS_PERSON);
    let (goes_on, other) = match (blocked(&first), blocked(&second)) {
        (true, false) => (second, first),
        (false, true) => (first, second),
        (true, true) | (false, false) => return first,
    };
    if goes_on.contains(NEEDS_PERSON) { goes_on } else { format!("{goes_on}; {other}") }
}
