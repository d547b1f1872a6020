//! Hands the order to the carrier.

use serde::{Deserialize, Serialize};
use twice_node::effects::{self, EffectError};
use twice_node::{NodeError, State};

#[derive(Deserialize)]
struct Order {
    order_id: String,
    address: String,
}

#[derive(Serialize)]
struct ShipArgs<'a> {
    order_id: &'a str,
    address: &'a str,
}

/// What the tool lets a node see of the carrier's shipment.
#[derive(Deserialize)]
struct Shipment {
    id: String,
}

#[derive(Serialize)]
struct Output {
    shipment_id: String,
}

fn ship(state: State<Order>) -> Result<Output, NodeError> {
    let Order { order_id, address } = state.input;
    let args = ShipArgs { order_id: &order_id, address: &address };
    match effects::request::<Shipment>("ship", &args) {
        Ok(receipt) => Ok(Output { shipment_id: receipt.body.id }),
        // The carrier will not change its mind, so neither does the run: what was reserved and held for it is undone.
        Err(EffectError::Failed { code, message, .. }) => Err(NodeError::fatal(format!(
            "the carrier does not take {order_id} ({code}): {message}"
        ))),
        Err(error) => Err(error.into()),
    }
}

twice_node::node!(ship);
