//! The rules of Twice, without any means to break them: this crate cannot open a socket, a file or a clock.
//!
//! [`transition`] knows which moves an effect may make, [`reconcile`] what to do next about one, [`outcome`] what an
//! answer means, [`saga`] how what was done is undone, [`approval`] what a person has to say first, [`evidence`] what one that came too late says to a person, [`webhook`] what a provider posts by itself, [`identity`] what makes an effect itself,
//! [`chain`] how entries are bound together.
//!
//! The feature `mutations` exists for one check of the tests alone and belongs in no product: see [`mutation`].

pub mod approval;
pub mod chain;
pub mod contract;
pub mod effect;
pub mod event;
pub mod evidence;
pub mod identity;
pub mod ids;
pub mod json;
pub mod limits;
pub mod mutation;
pub mod outcome;
pub mod progress;
pub mod reconcile;
pub mod redact;
pub mod run;
pub mod saga;
pub mod time;
pub mod transition;
pub mod webhook;
pub mod wit;
