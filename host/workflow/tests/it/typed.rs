//! Typed tools: the WIT of a tool, and what fits it.

#![expect(clippy::unwrap_used, reason = "a helper of a test may fail like the test itself")]

use std::collections::BTreeSet;
use std::path::Path;

use expect_test::{expect, expect_file};
use serde_json::{Value, json};
use twice_core::ids::Name;
use twice_core::wit::{FunctionType, InterfaceName, TypedImport, WitType};
use twice_workflow::Project;
use twice_workflow::model::Tool;
use twice_workflow::typed::{check_tools, grants, interface, signature, write};
use wit_parser::Resolve;

use crate::support::{Map, edit, example};

const REFUNDS: &str = "tools:payments/payments";
const WORKFLOW: &str = "workflows/damaged-item-refund.toml";
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn project(files: &Map) -> Project {
    Project::load(files).unwrap_or_else(|found| panic!("{found:#?}"))
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn payments() -> Tool {
    project(&example()).tools[&name("payments")].clone()
}

/// The payments tool with other schemas.
fn tool(args: Value, response: Value, expose: &[&str]) -> Tool {
    let mut tool = payments();
    let operation = tool.operations.get_mut(&name("refund")).unwrap();
    operation.args_schema = args;
    operation.response_schema = Some(response);
    operation.declarations.expose = expose.iter().map(|pointer| (*pointer).to_owned()).collect();
    tool
}

/// Reads a text as WIT, with our own package beside it.
#[track_caller]
fn parse(text: &str) {
    let mut resolve = Resolve::default();
    let node =
        std::fs::read_to_string(Path::new(REPOSITORY).join("guest-sdk/wit/node.wit")).unwrap();
    resolve.push_str("node.wit", &node).unwrap();
    resolve.push_str("tool.wit", text).unwrap_or_else(|error| panic!("{error:#}\n{text}"));
}

fn imported(tool: &Tool) -> FunctionType {
    write(tool, &interface(tool).unwrap(), &BTreeSet::new()).functions["refund"].clone()
}

fn import(ty: FunctionType) -> TypedImport {
    TypedImport { interface: REFUNDS.to_owned(), function: "refund".to_owned(), ty }
}

#[test]
fn the_examples_were_written_by_the_command_as_it_is() {
    let written = write(&payments(), &interface(&payments()).unwrap(), &BTreeSet::new());
    parse(&written.text);
    let node =
        std::fs::read_to_string(Path::new(REPOSITORY).join("guest-sdk/wit/node.wit")).unwrap();
    for language in ["rust", "python", "javascript"] {
        let deps = Path::new(REPOSITORY).join("nodes/typed").join(language).join("wit/deps");
        for (file, text) in
            [("tools-payments/payments.wit", &written.text), ("twice-node/node.wit", &node)]
        {
            expect_file![deps.join(file)].assert_eq(text);
        }
    }
}

/// Something of everything.
fn everything() -> Value {
    json!({
        "description": "What is asked for.",
        "type": "object",
        "additionalProperties": false,
        "required": ["order_id", "lines", "how", "list", "from"],
        "$defs": { "line": {
            "type": "object", "additionalProperties": false, "required": ["sku"],
            "properties": { "sku": { "type": "string" }, "count": { "type": "integer", "minimum": 0 } }
        } },
        "properties": {
            "order_id": { "type": "string", "description": "Which order." },
            "lines": { "type": "array", "items": { "$ref": "#/$defs/line" } },
            "how": { "enum": ["by_card", "cash"] },
            "list": { "enum": ["in-transit", "lost"] },
            "from": { "oneOf": [
                { "const": "nobody" },
                { "type": "object", "additionalProperties": false, "required": ["account"],
                  "properties": { "account": { "type": "integer", "minimum": -5, "maximum": 5 } } }
            ] },
            "labels": { "type": "array", "uniqueItems": true, "items": { "enum": ["fragile", "gift_wrap"] } },
            "place": { "type": "array", "prefixItems": [{ "type": "number" }, { "type": "number" }] },
            "note": { "type": ["string", "null"] },
            "urgent": { "type": "boolean" },
            "meta": { "type": "object" },
            "more": {}
        }
    })
}

#[test]
fn each_construct_of_a_schema_has_its_type() {
    let tool = tool(everything(), everything(), &[""]);
    let name = InterfaceName::parse("shop:api/refunds@1.2.0").unwrap();
    let written = write(&tool, &name, &BTreeSet::from([self::name("refund")]));
    parse(&written.text);
    let types = written.text.split("    record refund-receipt").next().unwrap();
    let start = types.find("interface refunds").unwrap();
    expect![[r#"
        interface refunds {
            use twice:node/effects@0.1.0.{effect-error};

            /// JSON text (RFC 8259): what stands here has no type in WIT.
            type json = string;

            variant refund-args-from {
                nobody,
                account(s32),
            }

            enum refund-args-how {
                by-card,
                cash,
            }

            flags refund-args-labels {
                fragile,
                gift-wrap,
            }

            record refund-args-lines-element {
                count: option<u64>,
                sku: string,
            }

            /// What is asked for.
            record refund-args {
                %from: refund-args-from,
                how: refund-args-how,
                labels: option<refund-args-labels>,
                lines: list<refund-args-lines-element>,
                /// One of: in-transit, lost
                %list: string,
                meta: option<json>,
                more: option<json>,
                note: option<string>,
                /// Which order.
                order-id: string,
                place: option<tuple<f64, f64>>,
                urgent: option<bool>,
            }

            variant refund-receipt-from {
                nobody,
                account(s32),
            }

            enum refund-receipt-how {
                by-card,
                cash,
            }

            flags refund-receipt-labels {
                fragile,
                gift-wrap,
            }

    "#]]
    .assert_eq(&types[start..]);
    // What is written fits what it was written from, in both directions.
    let operation = &tool.operations[&self::name("refund")];
    let signature = signature(&written.functions["refund"], operation);
    assert!(signature.as_ref().is_ok_and(|signature| signature.item), "{signature:?}");
}

#[test]
fn names_that_wit_reserves_or_has_not() {
    let args = json!({ "type": "object", "additionalProperties": false, "required": ["type"],
        "properties": { "type": { "type": "string" }, "from": { "type": "object", "properties": { "orderId": {} } } } });
    let mut tool = tool(args, json!({}), &[]);
    let operation = tool.operations[&name("refund")].clone();
    tool.operations.insert(name("list"), operation.clone());
    tool.operations.insert(name("x__y"), operation);
    let written = write(&tool, &interface(&tool).unwrap(), &BTreeSet::new());
    parse(&written.text);
    for part in [
        "%list: func(",
        "%type: string",
        "%from: option<json>",
        "// The operation `x__y`",
        "result<_, effect-error>",
    ] {
        assert!(written.text.contains(part), "`{part}` is not in:\n{}", written.text);
    }
    assert_eq!(written.left_out.len(), 1);
}

#[track_caller]
fn misfit(ty: FunctionType, words: &str) {
    let found = check_tools(&project(&example()), &[import(ty)]).join("\n");
    assert!(found.contains(words), "`{words}` is not in:\n{found}");
}

/// The refund function with one field of its args, or its receipt, of another type.
fn with(part: &str, field: &str, ty: Option<WitType>) -> FunctionType {
    let mut function = imported(&payments());
    let fields = match (part, &mut function.params[0].1, function.result.as_mut().unwrap()) {
        ("args", WitType::Record(fields), _) => fields,
        (_, _, WitType::Result(Some(ok), _)) => match &mut **ok {
            WitType::Record(fields) => fields,
            other => panic!("{other}"),
        },
        (_, other, _) => panic!("{other}"),
    };
    fields.retain(|(name, _)| name != field);
    fields.extend(ty.map(|ty| (field.to_owned(), ty)));
    function
}

#[test]
fn what_does_not_fit_is_told_by_function_field_and_both_types() {
    let fits = check_tools(&project(&example()), &[import(imported(&payments()))]);
    assert_eq!(fits, Vec::<String>::new());
    let string = || WitType::String;
    misfit(
        with("args", "amount-cents", Some(string())),
        "`tools:payments/payments#refund`: args, `/amount_cents`: the type is `string`, and the schema says integer",
    );
    misfit(
        with("args", "amount-cents", None),
        "args, `/amount_cents`: the schema requires it, and no field is for it",
    );
    misfit(
        with("args", "order-id", Some(WitType::Option(Box::new(string())))),
        "args, `/order_id`: the schema requires it, and the field `order-id` is an option",
    );
    misfit(with("args", "colour", Some(string())), "args, `/colour`: the schema has no `colour`");
    misfit(
        with("receipt", "status", Some(WitType::U8)),
        "receipt, `/status`: the type is `u8`, and the schema says string",
    );
    misfit(
        with("receipt", "fee", Some(WitType::U8)),
        "receipt, `/fee`: the schema does not say that it is always there",
    );
    let mut function = imported(&payments());
    function.result = None;
    misfit(function.clone(), "it returns nothing; it has to return `result<…, effect-error>`");
    function.result = Some(WitType::Result(None, Some(Box::new(WitType::U8))));
    misfit(
        function,
        "its error is `u8`; it has to be `effect-error` of `twice:node/effects`, or `string`",
    );
}

#[test]
fn an_import_needs_a_tool_and_an_operation() {
    let project = project(&example());
    let mut unknown = import(imported(&payments()));
    unknown.interface = "payments:api/refunds@1.0.0".to_owned();
    let found = check_tools(&project, &[unknown]).join("\n");
    assert!(found.contains("no tool of this project has that interface; state `wit = \"payments:api/refunds@1.0.0\"`"), "{found}");
    let mut unknown = import(imported(&payments()));
    unknown.function = "void".to_owned();
    let found = check_tools(&project, &[unknown]).join("\n");
    assert!(
        found.contains("the tool `payments` has no such operation; it has `refund`"),
        "{found}"
    );
}

#[test]
fn parameters_may_be_the_members_of_the_args() {
    let mut function = imported(&payments());
    let WitType::Record(fields) = function.params.remove(0).1 else { panic!("it is a record") };
    function.params = fields;
    let tool = payments();
    assert!(signature(&function, &tool.operations[&name("refund")]).is_ok());
}

#[track_caller]
fn granted(files: &Map, function: FunctionType, interface: &str) -> Result<Vec<String>, String> {
    let project = project(files);
    let workflow = &project.workflows[&name("damaged-item-refund")];
    let mut import = import(function);
    import.interface = interface.to_owned();
    grants(&workflow.nodes[0], &project.tools, &[import])
        .map(|grants| grants.into_iter().map(|grant| grant.slot).collect())
        .map_err(|problems| problems.join("\n"))
}

#[test]
fn a_slot_stands_behind_a_function_and_two_are_told_apart() {
    let mut files = example();
    let function = || imported(&payments());
    assert_eq!(granted(&files, function(), REFUNDS), Ok(vec!["refund".to_owned()]));
    let found = granted(&files, function(), "shop:api/refunds").unwrap_err();
    assert!(
        found.contains("no slot of node `refund` is for it; grant it with a [[node.effect]]"),
        "{found}"
    );

    let second = "\n[[node.effect]]\nslot = \"goodwill\"\ntool = \"payments.refund\"\nobject = \"/input/order_id\"\nintent = \"goodwill\"\nallow = \"true\"\n\n[[node]]\nname = \"notify\"";
    edit(&mut files, WORKFLOW, "\n[[node]]\nname = \"notify\"", second);
    let found = granted(&files, function(), REFUNDS).unwrap_err();
    assert!(
        found.contains("the slots `refund`, `goodwill` of node `refund` are all for it"),
        "{found}"
    );

    edit(
        &mut files,
        WORKFLOW,
        "slot = \"goodwill\"",
        "slot = \"goodwill\"\nimport = \"shop:api/goodwill@1.0.0\"",
    );
    assert_eq!(granted(&files, function(), REFUNDS), Ok(vec!["refund".to_owned()]));
    assert_eq!(
        granted(&files, function(), "shop:api/goodwill@1.0.0"),
        Ok(vec!["goodwill".to_owned()])
    );
}

#[test]
fn a_slot_of_an_array_needs_the_parameter_item_and_no_other_may_have_it() {
    let mut function = imported(&payments());
    function.params.insert(0, ("item".to_owned(), WitType::U32));
    let found = granted(&example(), function, REFUNDS).unwrap_err();
    assert!(found.contains("the slot `refund` is not bound to an array"), "{found}");
}

#[test]
fn a_tool_states_its_interface() {
    let mut files = example();
    edit(
        &mut files,
        "tools/payments.toml",
        "kind = \"http\"",
        "kind = \"http\"\nwit = \"payments:api/refunds@1.0.0\"",
    );
    assert_eq!(
        granted(&files, imported(&payments()), "payments:api/refunds@1.0.0"),
        Ok(vec!["refund".to_owned()])
    );
    for wrong in [
        "payments",
        "wasi:http/types@0.2.0",
        "twice:node/effects@0.1.0",
        "a:b/c@1",
        "A:b/c",
        "a:b_c/d",
        "a:b/c@01.0.0",
    ] {
        let mut files = example();
        edit(
            &mut files,
            "tools/payments.toml",
            "kind = \"http\"",
            &format!("kind = \"http\"\nwit = \"{wrong}\""),
        );
        let found = Project::load(&files).unwrap_err();
        assert!(
            found.iter().any(|found| found.what.contains("not the name of an interface of a tool")),
            "{wrong}: {found:#?}"
        );
    }
}
