//! Takes the money that was held for the order. There is no way back after this.

use serde::{Deserialize, Serialize};
use twice_node::{Ignored, NodeError, State, effects};

/// The outputs of earlier nodes that this one reads: one field per node, named as in the workflow.
#[derive(Deserialize)]
struct Nodes {
    authorize: Authorized,
}

#[derive(Deserialize)]
struct Authorized {
    authorization_id: String,
}

#[derive(Serialize)]
struct CaptureArgs {
    authorization_id: String,
}

/// What the tool lets a node see of the payment service's capture.
#[derive(Deserialize)]
struct Capture {
    id: String,
}

#[derive(Serialize)]
struct Output {
    capture_id: String,
}

fn capture(state: State<Ignored, Nodes>) -> Result<Output, NodeError> {
    let Authorized { authorization_id } = state.nodes.authorize;
    let receipt = effects::request::<Capture>("capture", &CaptureArgs { authorization_id })?;
    Ok(Output { capture_id: receipt.body.id })
}

twice_node::node!(capture);
