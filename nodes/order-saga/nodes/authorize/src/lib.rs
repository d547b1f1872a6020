//! Has the customer's bank hold the price of the order. No money moves yet.

use serde::{Deserialize, Serialize};
use twice_node::{NodeError, State, effects};

#[derive(Deserialize)]
struct Order {
    order_id: String,
    amount_cents: u64,
}

#[derive(Serialize)]
struct AuthorizeArgs {
    order_id: String,
    amount_cents: u64,
}

/// What the tool lets a node see of the payment service's authorization.
#[derive(Deserialize)]
struct Authorization {
    id: String,
}

#[derive(Serialize)]
struct Output {
    authorization_id: String,
}

fn authorize(state: State<Order>) -> Result<Output, NodeError> {
    let Order { order_id, amount_cents } = state.input;
    let args = AuthorizeArgs { order_id, amount_cents };
    let receipt = effects::request::<Authorization>("authorize", &args)?;
    Ok(Output { authorization_id: receipt.body.id })
}

twice_node::node!(authorize);
