//! Wrong behaviour on purpose. A test suite that cannot fail proves nothing, so a check breaks one rule at a time and
//! looks whether the tests notice. Only builds with the feature `mutations` can be broken, which nothing enables by
//! default; in every other build [`is`] is the constant `false`, and no environment can change what the product does.

use crate::event::{Deferral, EffectEvent, UnknownReason};
use crate::outcome::Verdict;

/// Whether the rule of that name is broken: never.
#[cfg(not(feature = "mutations"))]
#[must_use]
pub const fn is(_name: &str) -> bool {
    false
}

/// Whether the rule of that name is broken: the one that the variable `TWICE_MUTATION` names.
#[cfg(feature = "mutations")]
#[must_use]
pub fn is(name: &str) -> bool {
    std::env::var_os("TWICE_MUTATION").is_some_and(|broken| broken == name)
}

/// What `requested-is-unsent` records where the outcome of a request is not known: that nothing left.
#[must_use]
pub fn unsent(reason: UnknownReason) -> EffectEvent {
    EffectEvent::Deferred(Deferral {
        verdict: Verdict::NotSent,
        not_before: None,
        rule: reason.rule,
        message: reason.message,
    })
}
