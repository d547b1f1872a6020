//! Refunds an order, once.
//!
//! The node decides *what* to ask for. Whether it is allowed, whether a person must approve it, under which idempotency key
//! it is sent and what to do after a crash is the business of the workflow, the tool and the host.

use serde::{Deserialize, Serialize};
use twice_node::{NodeError, State, effects, log};

#[derive(Deserialize)]
struct Input {
    order_id: String,
    amount_cents: u64,
    paid_cents: u64,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Serialize)]
struct RefundArgs<'a> {
    order_id: &'a str,
    amount_cents: u64,
    reason: &'a str,
}

/// What the tool lets a node see of the provider's refund.
#[derive(Deserialize)]
struct Refund {
    id: String,
    status: String,
}

#[derive(Serialize)]
struct Output {
    refund_id: String,
    status: String,
    amount_cents: u64,
}

fn refund(state: State<Input>) -> Result<Output, NodeError> {
    let Input { order_id, amount_cents, paid_cents, reason } = state.input;
    if amount_cents == 0 || amount_cents > paid_cents {
        return Err(NodeError::fatal(format!(
            "{amount_cents} cents cannot be refunded: {paid_cents} were paid for {order_id}"
        )));
    }
    let reason = reason.as_deref().unwrap_or("requested by the customer");
    let args = RefundArgs { order_id: &order_id, amount_cents, reason };
    // Started again after a crash, this returns the recorded receipt: the money moves at most once.
    let receipt = effects::request::<Refund>("refund", &args)?;
    log::info!("{order_id}: {amount_cents} cents refunded ({})", receipt.effect_id);
    let Refund { id, status } = receipt.body;
    Ok(Output { refund_id: id, status, amount_cents })
}

twice_node::node!(refund);
