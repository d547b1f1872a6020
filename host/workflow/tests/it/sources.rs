//! Trusted sources: what is taken from where, and what is refused. Schemas: what they find.

use expect_test::{Expect, expect};
use serde_json::{Value, json};
use twice_core::ids::Name;
use twice_workflow::model::{OnConflict, Slot, Uses};
use twice_workflow::schema::Schema;
use twice_workflow::source::{Trusted, object_of};

fn name(text: &str) -> Name {
    Name::parse(text).expect("the test gives a valid name")
}

fn each(array: &str) -> Uses {
    Uses::ForEach(array.to_owned())
}

/// One line per slot: the business object that a request through it gets.
#[track_caller]
fn check(rows: &[(Option<&str>, Uses, Option<u32>)], expect: Expect) {
    let input = json!({
        "order_id": "order-42", "number": 42, "a/b": "slash", "empty": "", "price": 1.5, "none": null,
        "orders": [{ "id": "a" }, { "id": 2 }, {}], "names": ["x"], "args": { "order_id": "trap" },
    });
    let receipts = |node: &Name, slot: &Name| {
        let known = (node.as_str(), slot.as_str()) == ("lookup", "order");
        known.then(|| json!({ "external_id": "ord_1", "result": { "total": 7 } }))
    };
    let mut lines = String::new();
    for (object, uses, item) in rows {
        let trusted = Trusted { input: &input, element: None, receipts: &receipts };
        let slot = Slot {
            name: name("refund"),
            tool: name("payments"),
            operation: name("refund"),
            import: None,
            object: object.map(str::to_owned),
            intent: "test".to_owned(),
            shared: false,
            uses: uses.clone(),
            allow: None,
            approve: None,
            on_conflict: OnConflict::Halt,
            child: false,
            compensate: None,
            pivot: false,
            lock: None,
        };
        let answer = match object_of(&slot, *item, trusted) {
            Ok(object) => format!("{object:?}"),
            Err(error) => format!("refused: {error}"),
        };
        lines.push_str(&format!("{object:?} {uses:?} {item:?}\n  {answer}\n"));
    }
    expect.assert_eq(&lines);
}

#[test]
fn takes_objects_from_trusted_state() {
    check(
        &[
            (Some("/input/order_id"), Uses::Once, None),
            (Some("/input/number"), Uses::Repeat(3), None),
            (Some("/input/a~1b"), Uses::Once, None),
            (Some("/receipts/lookup/order/external_id"), Uses::Once, None),
            (Some("/receipts/lookup/order/result/total"), Uses::Once, None),
            (None, Uses::Once, None),
            (Some("/id"), each("/input/orders"), Some(0)),
            (Some("/id"), each("/input/orders"), Some(1)),
            (Some(""), each("/input/names"), Some(0)),
            (None, each("/input/orders"), Some(0)),
        ],
        expect![[r#"
            Some("/input/order_id") Once None
              Some("order-42")
            Some("/input/number") Repeat(3) None
              Some("42")
            Some("/input/a~1b") Once None
              Some("slash")
            Some("/receipts/lookup/order/external_id") Once None
              Some("ord_1")
            Some("/receipts/lookup/order/result/total") Once None
              Some("7")
            None Once None
              None
            Some("/id") ForEach("/input/orders") Some(0)
              Some("a")
            Some("/id") ForEach("/input/orders") Some(1)
              Some("2")
            Some("") ForEach("/input/names") Some(0)
              Some("x")
            None ForEach("/input/orders") Some(0)
              None
        "#]],
    );
}

#[test]
fn refuses_everything_else() {
    check(
        &[
            (Some("/nodes/refund/order_id"), Uses::Once, None),
            (Some("/args/order_id"), Uses::Once, None),
            (Some("/inputs/order_id"), Uses::Once, None),
            (Some("input/order_id"), Uses::Once, None),
            (Some("/receipts/lookup"), Uses::Once, None),
            (Some("/receipts/other/order/external_id"), Uses::Once, None),
            (Some("/receipts/lookup/order/nothing"), Uses::Once, None),
            (Some("/input/missing"), Uses::Once, None),
            (Some("/input/empty"), Uses::Once, None),
            (Some("/input/price"), Uses::Once, None),
            (Some("/input/none"), Uses::Once, None),
            (Some("/input/orders"), Uses::Once, None),
            (Some("/input"), Uses::Once, None),
            (Some("/input/order_id"), Uses::Once, Some(0)),
            (Some("/id"), each("/input/orders"), None),
            (Some("/id"), each("/input/orders"), Some(3)),
            (Some("/id"), each("/input/orders"), Some(2)),
            (Some("/id"), each("/input/order_id"), Some(0)),
            (Some("/id"), each("/nodes/x/orders"), Some(0)),
        ],
        expect![[r#"
            Some("/nodes/refund/order_id") Once None
              refused: `/nodes/refund/order_id` is not a trusted source: use `/input/…`, `/receipts/<node>/<slot>/…`, or `/element/…` in a fan-out
            Some("/args/order_id") Once None
              refused: `/args/order_id` is not a trusted source: use `/input/…`, `/receipts/<node>/<slot>/…`, or `/element/…` in a fan-out
            Some("/inputs/order_id") Once None
              refused: `/inputs/order_id` is not a trusted source: use `/input/…`, `/receipts/<node>/<slot>/…`, or `/element/…` in a fan-out
            Some("input/order_id") Once None
              refused: `input/order_id` is not a trusted source: use `/input/…`, `/receipts/<node>/<slot>/…`, or `/element/…` in a fan-out
            Some("/receipts/lookup") Once None
              refused: `/receipts/lookup` is not a trusted source: use `/input/…`, `/receipts/<node>/<slot>/…`, or `/element/…` in a fan-out
            Some("/receipts/other/order/external_id") Once None
              refused: there is no receipt of slot `order` of node `other` for `/receipts/other/order/external_id`
            Some("/receipts/lookup/order/nothing") Once None
              refused: there is nothing at `/receipts/lookup/order/nothing`
            Some("/input/missing") Once None
              refused: there is nothing at `/input/missing`
            Some("/input/empty") Once None
              refused: a business object must be a string that is not empty, or an integer; this is an empty string
            Some("/input/price") Once None
              refused: a business object must be a string that is not empty, or an integer; this is a fraction
            Some("/input/none") Once None
              refused: a business object must be a string that is not empty, or an integer; this is null
            Some("/input/orders") Once None
              refused: a business object must be a string that is not empty, or an integer; this is an array
            Some("/input") Once None
              refused: a business object must be a string that is not empty, or an integer; this is an object
            Some("/input/order_id") Once Some(0)
              refused: `item` is set, and slot `refund` is not bound to an array (`for_each`)
            Some("/id") ForEach("/input/orders") None
              refused: `item` must be 0 to 2: the slot is bound to the array at `/input/orders`
            Some("/id") ForEach("/input/orders") Some(3)
              refused: `item` must be 0 to 2: the slot is bound to the array at `/input/orders`
            Some("/id") ForEach("/input/orders") Some(2)
              refused: there is nothing at `/input/orders/…/id`
            Some("/id") ForEach("/input/order_id") Some(0)
              refused: there is no array at `/input/order_id`
            Some("/id") ForEach("/nodes/x/orders") Some(0)
              refused: `/nodes/x/orders` is not a trusted source: use `/input/…`, `/receipts/<node>/<slot>/…`, or `/element/…` in a fan-out
        "#]],
    );
}

/// The problems of each value under each schema.
#[track_caller]
fn check_schemas(rows: &[(Value, Value)], expect: Expect) {
    let mut lines = String::new();
    for (schema, value) in rows {
        let answer = match Schema::compile(schema) {
            Err(error) => format!("refused: {error}"),
            Ok(schema) => match schema.check(value) {
                Ok(()) => "valid".to_owned(),
                Err(problems) => {
                    let problems = problems.iter().map(ToString::to_string);
                    problems.collect::<Vec<_>>().join("\n")
                }
            },
        };
        lines.push_str(&format!("{answer}\n"));
    }
    expect.assert_eq(&lines);
}

#[test]
fn checks_values_by_schema() {
    let order = json!({
        "type": "object", "required": ["id"], "additionalProperties": false,
        "properties": { "id": { "type": "string" }, "lines": { "type": "array", "items": { "$ref": "#/$defs/line" } } },
        "$defs": { "line": { "type": "integer", "minimum": 1 } },
    });
    check_schemas(
        &[
            (order.clone(), json!({ "id": "a", "lines": [1, 2] })),
            (order.clone(), json!({ "id": 5, "lines": [1, 0] })),
            (order, json!({ "other": "a private value" })),
            (json!(true), json!(null)),
            (json!({ "maxItems": 0 }), json!([1, 2, 3])),
            (json!({ "format": "date" }), json!("yesterday")),
        ],
        expect![[r#"
            valid
            /id: the value is not of type "string"
            /lines/1: the value is less than the minimum of 1
            /: Additional properties are not allowed ('other' was unexpected)
            /: "id" is a required property
            valid
            /: the value has more than 0 items
            /: the value is not a "date"
        "#]],
    );
    let many = Schema::compile(&json!({ "items": false })).unwrap().check(&json!(vec![1; 100]));
    assert_eq!(many.unwrap_err().len(), 20, "the list of problems is bounded");
}

#[test]
fn refuses_schemas_that_reach_outside_or_never_end() {
    check_schemas(
        &[
            (json!({ "type": "strange" }), json!(1)),
            (json!({ "pattern": "(" }), json!("x")),
            (json!({ "$ref": "https://example.com/schema.json" }), json!(1)),
            (json!({ "$ref": "file:///etc/hostname" }), json!(1)),
            (json!({ "$ref": "other.json" }), json!(1)),
            (json!({ "type": "string", "pattern": "^(a|aa)+\\1b$" }), json!("a".repeat(200))),
        ],
        expect![[r#"
            refused: not a usable JSON Schema at `/type`: "strange" is not valid under any of the schemas listed in the 'anyOf' keyword
            refused: not a usable JSON Schema at `/pattern`: "(" is not a "regex"
            refused: not a usable JSON Schema: Resource 'https://example.com/schema.json' is not present in a registry and retrieving it failed: Retrieval is disabled, cannot fetch https://example.com/schema.json
            refused: not a usable JSON Schema: Resource 'file:///etc/hostname' is not present in a registry and retrieving it failed: Retrieval is disabled, cannot fetch file:///etc/hostname
            refused: not a usable JSON Schema: Resource 'other.json' is not present in a registry and retrieving it failed: No base URI is available
            /: Error executing regex: Max limit for backtracking count exceeded
        "#]],
    );
}
