//! What a provider posts by itself: whether it is genuine ([`verify`]), and what it says about an effect ([`judge`]).
//!
//! An event is one of the few things that may move an effect out of UNKNOWN: signed by the provider, and naming the effect by
//! the reference that our request left there. Whatever falls short of that settles nothing.

mod meaning;
mod scheme;
mod verify;

pub use meaning::{Judgement, Meaning, UnclearEvent, effects_in, judge, reference};
pub use scheme::{Encoding, KeyForm, Part, Scheme, Stamp};
pub use verify::{Authentic, Delivery, Forgery, verify};
