//! The state machine of an effect: total, pure, and the only place that knows which move is legal (I4).
//!
//! Architecture invariant: no wildcard arm over (state, event). A new state or event does not compile until every pair
//! is decided here, and the table test names every pair.

use crate::effect::State;
use crate::event::EffectEventKind as Kind;

/// A move that the table does not know. A value, never a panic: it is what tampering and bugs look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an effect that is {} cannot take `{}`", from.map_or("not proposed", State::as_str), event.as_str())]
pub struct Illegal {
    /// The state it is in; `None` before the first entry.
    pub from: Option<State>,
    /// What was to happen.
    pub event: Kind,
}

/// The state after `event`.
///
/// # Errors
/// [`Illegal`] for every pair that is not a row of the table.
pub const fn next(from: Option<State>, event: Kind) -> Result<State, Illegal> {
    use State::{Authorized, Confirmed, Failed, Proposed, Requested, Unknown};
    let illegal = Err(Illegal { from, event });
    let Some(state) = from else {
        return match event {
            Kind::Proposed => Ok(Proposed),
            Kind::Authorized
            | Kind::Requested
            | Kind::Confirmed
            | Kind::Failed
            | Kind::Deferred
            | Kind::Unknown
            | Kind::Probed
            | Kind::Observed
            | Kind::Conflicted
            | Kind::ConflictDecided => illegal,
        };
    };
    match (state, event) {
        // Other args before anything was sent: a new proposal, its authorization void.
        (Proposed | Authorized, Kind::Proposed) => Ok(Proposed),
        (Requested | Confirmed | Failed | Unknown, Kind::Proposed) => illegal,

        (Proposed, Kind::Authorized) => Ok(Authorized),
        (Authorized | Requested | Confirmed | Failed | Unknown, Kind::Authorized) => illegal,

        // From UNKNOWN: only under the same key or on proof of absence; `reconcile` decides that.
        (Authorized | Unknown, Kind::Requested) => Ok(Requested),
        (Proposed | Requested | Confirmed | Failed, Kind::Requested) => illegal,

        (Requested | Unknown, Kind::Confirmed) => Ok(Confirmed),
        (Proposed | Authorized | Confirmed | Failed, Kind::Confirmed) => illegal,

        (Proposed | Authorized | Requested | Unknown, Kind::Failed) => Ok(Failed),
        (Confirmed | Failed, Kind::Failed) => illegal,

        (Requested, Kind::Deferred) => Ok(Authorized),
        (Proposed | Authorized | Confirmed | Failed | Unknown, Kind::Deferred) => illegal,

        // From AUTHORIZED: what was taken for an attempt that did nothing is in doubt again, as something says that it happened.
        (Authorized | Requested, Kind::Unknown) => Ok(Unknown),
        (Proposed | Confirmed | Failed | Unknown, Kind::Unknown) => illegal,

        (Unknown, Kind::Probed) => Ok(Unknown),
        (Proposed | Authorized | Requested | Confirmed | Failed, Kind::Probed) => illegal,

        // A late answer changes nothing, whatever the state has become meanwhile.
        (Authorized | Requested | Confirmed | Failed | Unknown, Kind::Observed) => Ok(state),
        (Proposed, Kind::Observed) => illegal,

        (Requested | Confirmed | Failed | Unknown, Kind::Conflicted | Kind::ConflictDecided) => {
            Ok(state)
        }
        (Proposed | Authorized, Kind::Conflicted | Kind::ConflictDecided) => illegal,
    }
}

/// The state diagram of an effect in Mermaid, made from the table above so that no document can drift from it. Events that
/// change no state are left out.
#[must_use]
pub fn mermaid() -> String {
    let mut out = String::from("stateDiagram-v2\n");
    let starts = std::iter::once(None).chain(State::ALL.into_iter().map(Some));
    for from in starts {
        for to in State::ALL {
            if from == Some(to) {
                continue;
            }
            let events: Vec<&str> = Kind::ALL
                .into_iter()
                .filter(|event| next(from, *event) == Ok(to))
                .map(Kind::as_str)
                .collect();
            if !events.is_empty() {
                let from = from.map_or("[*]", State::as_str);
                out.push_str(&format!("    {from} --> {to}: {}\n", events.join(", ")));
            }
        }
    }
    for state in State::ALL.into_iter().filter(|state| state.is_final()) {
        out.push_str(&format!("    {state} --> [*]\n"));
    }
    out
}
