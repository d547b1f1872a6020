//! Sets aside what was ordered, so that nobody else can buy it.

use serde::{Deserialize, Serialize};
use twice_node::{NodeError, State, effects};

#[derive(Deserialize)]
struct Order {
    order_id: String,
    sku: String,
    quantity: u32,
}

#[derive(Serialize)]
struct ReserveArgs {
    order_id: String,
    sku: String,
    quantity: u32,
}

/// What the tool lets a node see of the warehouse's reservation.
#[derive(Deserialize)]
struct Reservation {
    id: String,
}

#[derive(Serialize)]
struct Output {
    reservation_id: String,
}

fn reserve(state: State<Order>) -> Result<Output, NodeError> {
    let Order { order_id, sku, quantity } = state.input;
    let args = ReserveArgs { order_id, sku, quantity };
    let receipt = effects::request::<Reservation>("reserve", &args)?;
    Ok(Output { reservation_id: receipt.body.id })
}

twice_node::node!(reserve);
