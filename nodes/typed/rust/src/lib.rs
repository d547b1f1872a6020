//! Refunds an order, once, by a typed function of the tool: the compiler knows the args and the receipt, and the component's
//! imports say all that it can ever ask for.

use serde::{Deserialize, Serialize};
use tools::payments::payments;
use twice::node::effects::EffectError;

wit_bindgen::generate!({ path: "wit", world: "typed", generate_all });

#[derive(Deserialize)]
struct State {
    input: Input,
}

#[derive(Deserialize)]
struct Input {
    order_id: String,
    amount_cents: u32,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Serialize)]
struct Output {
    refund_id: String,
    status: String,
    amount_cents: i64,
}

fn refund(text: &str) -> Result<String, NodeError> {
    let fatal = |problem: serde_json::Error| NodeError::Fatal(problem.to_string());
    let State { input: Input { order_id, amount_cents, reason } } =
        serde_json::from_str(text).map_err(fatal)?;
    // Started again after a crash, this returns the recorded receipt: the money moves at most once.
    let refund = payments::refund(&payments::RefundArgs { order_id, amount_cents, reason })
        .map_err(|error| {
            NodeError::Fatal(match error {
                EffectError::Failed(failure) => format!("{}: {}", failure.code, failure.message),
                EffectError::Denied(denial) => format!("{}: {}", denial.policy, denial.message),
            })
        })?;
    let payments::RefundReceipt { id, status, amount_cents } = refund;
    serde_json::to_string(&Output { refund_id: id, status, amount_cents }).map_err(fatal)
}

struct Node;

impl Guest for Node {
    fn run(input: String) -> Result<String, NodeError> {
        refund(&input)
    }
}

export!(Node);
