//! Workflows of every shape: branches and joins, loops, fan-outs, agents. Their nodes are the conformance node, and do what the
//! run's input says for each.

use serde_json::{Map, Value, json};

use crate::host::Setup;
use crate::tools::{Class, Windows, payments};

/// A workflow `graph` of conformance nodes, each given as its name and further keys.
#[must_use]
pub fn graph(head: &str, nodes: &[(&str, &str)]) -> String {
    named("graph", head, nodes)
}

/// The same under another name.
#[must_use]
pub fn named(name: &str, head: &str, nodes: &[(&str, &str)]) -> String {
    let mut text = format!("workflow = \"{name}\"\nversion = 1\n{head}\n");
    for (name, keys) in nodes {
        text.push_str(&format!(
            "[[node]]\nname = \"{name}\"\ncomponent = \"conformance\"\n{keys}\n"
        ));
    }
    text
}

/// A host whose only workflow is that one, with the tool `payments` of the class.
#[must_use]
pub fn setup(class: Class, windows: Windows, head: &str, nodes: &[(&str, &str)]) -> Setup {
    Setup::new(&[&graph(head, nodes)]).tool(payments(class, windows))
}

/// The slot `refund`, of this object.
#[must_use]
pub fn refund_of(object: &str) -> String {
    format!(
        "[[node.effect]]\nslot = \"refund\"\ntool = \"payments.refund\"\nobject = \"{object}\"\nintent = \"full\"\nallow = \"true\"\n"
    )
}

/// The step that refunds this order, and ends the node if it cannot.
#[must_use]
pub fn refund(order: &str) -> Value {
    json!({
        "do": "request", "slot": "refund", "must": true,
        "args": { "order_id": order, "amount_cents": 100 },
    })
}

/// The step that returns this.
#[must_use]
pub fn give(output: &Value) -> Value {
    json!({ "do": "return", "output": output })
}

/// A step that is left out from this visit on.
#[must_use]
pub fn until_visit(visit: u32, mut step: Value) -> Value {
    step["until_visit"] = json!(visit);
    step
}

/// A step that is left out before this visit.
#[must_use]
pub fn from_visit(visit: u32, mut step: Value) -> Value {
    step["from_visit"] = json!(visit);
    step
}

/// The input that has each node do these steps.
#[must_use]
pub fn each(nodes: &[(&str, Vec<Value>)]) -> Value {
    let nodes: Map<String, Value> =
        nodes.iter().map(|(name, steps)| ((*name).to_owned(), json!(steps))).collect();
    json!({ "nodes": nodes })
}

/// The same, with so many orders to fan out over, each of them refunded by the node `each`.
#[must_use]
pub fn orders(count: usize) -> Value {
    let mut input = each(&[("each", vec![json!({ "do": "request_element", "slot": "refund" })])]);
    let orders = (0..count).map(|number| json!({ "id": format!("order-{number}") }));
    input["orders"] = orders.collect();
    input
}

/// A node `each` that refunds the orders of the input, so many at once.
#[must_use]
pub fn fan_out(parallel: u32) -> (&'static str, String) {
    let keys = format!(
        "for_each = \"/input/orders\"\nelement = \"/id\"\nparallel = {parallel}\n{}",
        refund_of("/element/id")
    );
    ("each", keys)
}
