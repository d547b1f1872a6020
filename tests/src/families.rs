//! Workflows that start others: `bundle` starts runs of `parcel`, and `parcel`, where that is wanted, of `stamp`. Their nodes are
//! the conformance node, and do what the input of their run says for each.

use serde_json::{Value, json};

use crate::graphs::{each, named, refund, refund_of};
use crate::host::Setup;
use crate::tools::{Class, Windows, payments};

/// The slot `child`, which starts a run of that workflow about this object.
#[must_use]
pub fn child_of(workflow: &str, object: &str) -> String {
    format!(
        "[[node.effect]]\nslot = \"child\"\nworkflow = \"{workflow}\"\nobject = \"{object}\"\nintent = \"all\"\nallow = \"true\"\n"
    )
}

/// The step that starts a run with that input, and ends the node when it fails.
#[must_use]
pub fn start(input: &Value) -> Value {
    json!({ "do": "request", "slot": "child", "must": true, "args": input })
}

/// Workflow files: a `bundle` of nodes as given, and a `parcel` of one node `pay` that refunds `/input/order`.
#[must_use]
pub fn files(nodes: &[(&str, &str)]) -> [String; 2] {
    [named("bundle", "", nodes), named("parcel", "", &[("pay", &refund_of("/input/order"))])]
}

/// A host of those, with the tool `payments` of the class.
#[must_use]
pub fn setup(class: Class, windows: Windows, nodes: &[(&str, &str)]) -> Setup {
    let [bundle, parcel] = files(nodes);
    Setup::new(&[&bundle, &parcel]).tool(payments(class, windows))
}

/// A host of a bundle with one node `send`, which starts a parcel.
#[must_use]
pub fn one_parcel(class: Class, windows: Windows) -> Setup {
    setup(class, windows, &[("send", &child_of("parcel", "/input/order"))])
}

/// The input of a parcel that refunds this order.
#[must_use]
pub fn parcel(order: &str) -> Value {
    let mut input = each(&[("pay", vec![refund(order)])]);
    input["order"] = json!(order);
    input
}

/// The input of a bundle whose node `send` starts that parcel.
#[must_use]
pub fn bundle(order: &str, parcel: &Value) -> Value {
    let mut input = each(&[("send", vec![start(parcel)])]);
    input["order"] = json!(order);
    input
}

/// A node `each` that starts a parcel for each of the orders of the input, so many at once.
#[must_use]
pub fn fan_out(parallel: u32) -> (&'static str, String) {
    let keys = format!(
        "for_each = \"/input/orders\"\nelement = \"/id\"\nparallel = {parallel}\n{}",
        child_of("parcel", "/element/id")
    );
    ("each", keys)
}

/// The input of a bundle that starts a parcel for each of so many orders.
#[must_use]
pub fn parcels(count: usize) -> Value {
    let step = json!({ "do": "request_element", "slot": "child", "args": parcel("{id}") });
    let mut input = each(&[("each", vec![step])]);
    let orders = (0..count).map(|number| json!({ "id": format!("order-{number}") }));
    input["orders"] = orders.collect();
    input
}
