//! The executor: does what the rules in `twice-core` say, and nothing else.
