//! Tells a customer that the refund is on its way.

use serde::{Deserialize, Serialize};
use twice_node::{NodeError, State, effects};

#[derive(Deserialize)]
struct Input {
    order_id: String,
    customer_email: String,
}

/// The outputs of earlier nodes that this one reads: one field per node, named as in the workflow.
#[derive(Deserialize)]
struct Nodes {
    refund: Refunded,
}

#[derive(Deserialize)]
struct Refunded {
    refund_id: String,
    amount_cents: u64,
}

#[derive(Serialize)]
struct Message<'a> {
    to: &'a str,
    subject: String,
    text: String,
}

/// What the tool lets a node see of the mail service's message.
#[derive(Deserialize)]
struct Sent {
    id: String,
}

#[derive(Serialize)]
struct Output {
    message_id: String,
}

fn notify(state: State<Input, Nodes>) -> Result<Output, NodeError> {
    let Input { order_id, customer_email } = state.input;
    let Refunded { refund_id, amount_cents } = state.nodes.refund;
    let (whole, cents) = (amount_cents / 100, amount_cents % 100);
    let message = Message {
        to: &customer_email,
        subject: format!("Your refund for {order_id}"),
        text: format!("We refunded {whole}.{cents:02} for {order_id}. Reference: {refund_id}."),
    };
    let receipt = effects::request::<Sent>("notify", &message)?;
    Ok(Output { message_id: receipt.body.id })
}

twice_node::node!(notify);
