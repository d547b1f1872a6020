//! A provider to test against: payments, mail, tickets, inventory, shipping, travel and a scripted model, on this machine only,
//! with a database of its own and a switch for each way in which a real one fails.
//!
//! A test starts it in process with [`Sim::start`] or as the program `twice-provider-sim`, and drives it through the
//! methods of [`Sim`] or through the routes under `/_sim`, which do the same:
//!
//! | route | does |
//! |---|---|
//! | `GET`, `PUT /_sim/switches` | shows, replaces the switches: `{ "switches": [{ "name", "value"?, "path"?, "method"?, "times"?, "probability"?, "seed"? }] }` |
//! | `GET /_sim/counters` | [`Counters`] |
//! | `GET /_sim/objects?after=&limit=` | the books, with how each object stands: [`Object`] |
//! | `GET /_sim/requests?after=&limit=` | the log: [`Request`] |
//! | `GET /_sim/wait?for=committed&count=1` | answers once so many effects are committed (or `received`, `settled`, `paused`); optionally of one `operation`; 504 after `timeout_ms` |
//! | `POST /_sim/continue` | lets paused replies go on |
//! | `GET`, `POST /_sim/clock` | shows the clock; `{ "advance_ms": n }` moves it, which ages objects and keys without waiting |
//! | `PUT /_sim/script` | `{ "lines": [ … ] }`: what the model answers, one line per call, from the start again at the end |
//! | `POST /_sim/reset` | forgets everything |
//!
//! The switches are the variants of [`Fault`]; [`Fault::about`] says what each does. A fault of the simulator itself,
//! as opposed to a simulated one, always has the code `simulator_failed`.
//!
//! Some operations change what others made, each once: a refund is reversed, a reservation released, a booking or shipment
//! cancelled, an authorization voided or captured. A second change under another key is refused with 409 and `already_` and
//! the status, e.g. `already_voided`; `error.resource_id` and `error.changed_by` name the object and what changed it.
//!
//! A killed client changes nothing about what the simulator does, and a killed simulator loses nothing it has answered.

mod body;
pub mod cli;
mod clock;
mod connection;
mod control;
mod fault;
mod keys;
pub mod limits;
mod lookup;
mod operation;
mod perform;
mod replier;
mod reply;
mod server;
mod sim;
mod store;
mod switches;

pub use control::WaitFor;
pub use fault::Fault;
pub use keys::KEY_HEADER;
pub use sim::{Sim, SimConfig, SimError};
pub use store::{Counters, Object, OperationCounters, Outcome, Request, StoreError};
pub use switches::{ReplaceError, Switch, SwitchError, SwitchState};

/// The name of the program.
pub const PROGRAM: &str = "twice-provider-sim";
/// The address that lets the system choose a free port.
pub const ANY_PORT: &str = "127.0.0.1:0";
