//! Refunds each line of an order, once, by a typed function of the tool that takes the number of the line.

use serde::{Deserialize, Serialize};
use tools::payments::payments;
use twice::node::context;

wit_bindgen::generate!({ path: "wit", world: "lines", generate_all });

#[derive(Deserialize)]
struct State {
    input: Input,
}

#[derive(Deserialize)]
struct Input {
    lines: Vec<Line>,
    /// How often the node fails after its refunds, to be started again.
    #[serde(default)]
    fails: u32,
    /// By how much more each start asks for than the one before: what no node should do.
    #[serde(default)]
    grows_cents: u32,
}

#[derive(Deserialize)]
struct Line {
    order_id: String,
    amount_cents: u32,
}

#[derive(Serialize)]
struct Refunded {
    refund_id: String,
    amount_cents: i64,
}

struct Node;

impl Guest for Node {
    fn run(input: String) -> Result<String, NodeError> {
        let State { input } = serde_json::from_str(&input)
            .map_err(|problem| NodeError::Fatal(problem.to_string()))?;
        let restarts = context::attempt() - 1;
        let mut refunded = Vec::new();
        for (item, line) in (0..).zip(&input.lines) {
            let amount_cents = line.amount_cents + restarts * input.grows_cents;
            // What is said says which slot, so that it can be passed on as it is.
            let receipt = payments::refund(item, &line.order_id, amount_cents, None)
                .map_err(NodeError::Fatal)?;
            refunded.push(Refunded { refund_id: receipt.id, amount_cents: receipt.amount_cents });
        }
        if restarts < input.fails {
            return Err(NodeError::Retryable("asked to fail after the refunds".to_owned()));
        }
        serde_json::to_string(&refunded).map_err(|problem| NodeError::Fatal(problem.to_string()))
    }
}

export!(Node);
