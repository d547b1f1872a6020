//! Greets. Requests nothing.

use serde::{Deserialize, Serialize};
use twice_node::{NodeError, State};

#[derive(Deserialize)]
struct Input {
    #[serde(default = "world")]
    name: String,
}

fn world() -> String {
    "world".to_owned()
}

#[derive(Serialize)]
struct Output {
    greeting: String,
}

fn hello(state: State<Input>) -> Result<Output, NodeError> {
    Ok(Output { greeting: format!("Hello, {}!", state.input.name) })
}

twice_node::node!(hello);
