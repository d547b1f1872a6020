//! Wrong behaviour on purpose. Tests that cannot fail prove nothing, so a check breaks one rule at a time and looks whether
//! the tests notice (`docs/testing.md` lists the rules). Only builds with the feature `mutations` can be broken, which
//! nothing enables by default; in every other build [`is`] is the constant `false`: the places that ask cost nothing, and
//! no environment can change what the product does.

/// Whether the rule of that name is broken: never.
#[cfg(not(feature = "mutations"))]
#[must_use]
pub const fn is(_name: &str) -> bool {
    false
}

/// Whether the rule of that name is broken: the one that the variable `TWICE_MUTATION` names when this is first asked.
#[cfg(feature = "mutations")]
#[must_use]
pub fn is(name: &str) -> bool {
    static BROKEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    BROKEN.get_or_init(|| std::env::var("TWICE_MUTATION").ok()).as_deref() == Some(name)
}
