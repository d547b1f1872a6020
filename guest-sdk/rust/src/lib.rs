//! Write nodes for Twice in Rust.
//!
//! A node is one plain function. It gets the state of its run, computes, *requests* effects from the host, and returns an
//! output. It never touches the world itself: there is no network, no file, no clock and no randomness but what the host
//! hands out. In return it may be started any number of times, after any crash: what it requested before is answered from
//! the ledger, and nothing happens a second time.
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use twice_node::{NodeError, State, effects, log};
//!
//! #[derive(Deserialize)]
//! struct Order {
//!     order_id: String,
//!     amount_cents: u64,
//! }
//!
//! #[derive(Serialize)]
//! struct RefundArgs {
//!     order_id: String,
//!     amount_cents: u64,
//! }
//!
//! #[derive(Deserialize)]
//! struct Refund {
//!     id: String,
//! }
//!
//! #[derive(Serialize)]
//! struct Output {
//!     refund_id: String,
//! }
//!
//! fn refund(state: State<Order>) -> Result<Output, NodeError> {
//!     let Order { order_id, amount_cents } = state.input;
//!     if amount_cents == 0 {
//!         return Err(NodeError::fatal("there is nothing to refund"));
//!     }
//!     log::info!("refunding {amount_cents} cents of {order_id}");
//!     let receipt: effects::Receipt<Refund> =
//!         effects::request("refund", &RefundArgs { order_id, amount_cents })?;
//!     Ok(Output { refund_id: receipt.body.id })
//! }
//!
//! twice_node::node!(refund);
//! # fn main() {}
//! ```
//!
//! Build it with `twice node build`, or with `cargo build --release --target wasm32-unknown-unknown` from a package whose
//! `[lib]` has `crate-type = ["cdylib"]`.
//!
//! # What to keep in mind
//!
//! - **A node starts again from the beginning.** Its requests should follow from its state and from earlier answers alone.
//!   Then a restarted node asks for the same things, and gets the recorded answers.
//! - **A request that cannot be answered yet does not return.** The host drops the instance (no destructor runs) and starts
//!   the node again when the answer is known, after the end of an outage, say.
//! - **Identity is the host's business.** There is no idempotency key to choose, and none to see. The workflow says what a
//!   slot is about.
//! - `std::time`, `std::fs`, `std::net`, `std::env` and threads are not there: they fail or panic. Use [`context`].

pub mod context;
pub mod effects;
mod error;
pub mod log;

pub use error::NodeError;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

/// What `wit-bindgen` makes of the world. The modules around it are nicer.
#[doc(hidden)]
#[allow(missing_docs, unreachable_pub, clippy::all, reason = "generated")]
pub mod bindings {
    wit_bindgen::generate!({
        path: "../wit",
        world: "node",
        pub_export_macro: true,
        export_macro_name: "export",
    });
}

/// The state of the run, as far as the node's types care: unknown fields are skipped.
///
/// `Nodes` is a struct with one field for each node whose output this one reads, named as in the workflow; a node that may
/// not have run is an `Option` with `#[serde(default)]`. `Element` is what the elements are of the array that the node fans
/// out over (`for_each`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct State<Input, Nodes = Ignored, Element = Ignored> {
    /// The run's input.
    pub input: Input,
    /// The last output of each node that has run, of those whose order before or behind this one is fixed.
    pub nodes: Nodes,
    /// The element that this step is about, in a fan-out.
    pub element: Option<Element>,
}

/// Stands for state that the node does not look at.
pub type Ignored = IgnoredAny;

/// Makes a node of a function `fn(State<Input, Nodes, Element>) -> Result<Output, NodeError>`, where `Input`, `Nodes` and
/// `Element` can be deserialized and `Output` can be serialized. Once per package.
#[macro_export]
macro_rules! node {
    ($run:path) => {
        $crate::node_text!(|input: &str| $crate::typed(input, $run));
    };
}

/// Like [`node!`] for a function `fn(&str) -> Result<String, NodeError>` that reads and writes the JSON text itself.
#[macro_export]
macro_rules! node_text {
    ($run:expr) => {
        const _: () = {
            struct Node;
            impl $crate::bindings::Guest for Node {
                fn run(
                    input: ::std::string::String,
                ) -> ::std::result::Result<::std::string::String, $crate::bindings::NodeError>
                {
                    $crate::start(&input, $run)
                }
            }
    $crate::bindings::export!(Node with_types_in $crate::bindings);
        };
    };
}

/// Runs a typed node on JSON text. The state of a node's tests can be given as a literal:
///
/// ```
/// # use twice_node::{NodeError, State};
/// fn double(state: State<u32>) -> Result<u32, NodeError> {
///     state.input.checked_mul(2).ok_or_else(|| NodeError::fatal("too big to double"))
/// }
/// assert_eq!(twice_node::typed(r#"{"input": 21, "nodes": {}}"#, double), Ok("42".to_owned()));
/// ```
///
/// # Errors
/// Those of the node, and [`NodeError::Fatal`] when the state or the output does not fit its type.
pub fn typed<Input, Nodes, Element, Output>(
    input: &str,
    run: impl FnOnce(State<Input, Nodes, Element>) -> Result<Output, NodeError>,
) -> Result<String, NodeError>
where
    Input: DeserializeOwned,
    Nodes: DeserializeOwned,
    Element: DeserializeOwned,
    Output: Serialize,
{
    let state = serde_json::from_str(input).map_err(|error| {
        NodeError::fatal(format!("the state does not fit the types of this node: {error}"))
    })?;
    let output = run(state)?;
    serde_json::to_string(&output)
        .map_err(|error| NodeError::fatal(format!("the output is no JSON: {error}")))
}

#[doc(hidden)]
pub fn start(
    input: &str,
    run: impl FnOnce(&str) -> Result<String, NodeError>,
) -> Result<String, bindings::NodeError> {
    // A panic ends in a trap, which carries no text: the log is the only place where its reason can be found.
    std::panic::set_hook(Box::new(|panic| log::write(log::Level::Error, &panic.to_string())));
    run(input).map_err(|error| match error {
        NodeError::Retryable(message) => bindings::NodeError::Retryable(message),
        NodeError::Fatal(message) => bindings::NodeError::Fatal(message),
    })
}
