//! A new node in Rust.

use std::fmt::Write as _;

use twice_core::ids::Name;

use super::{File, Grant, Grants};

/// How a node without effects gets one.
const GRANT: &str = "    // Once one grants it an effect, with [[node.effect]], request it by the name of its slot:
    //     let receipt = twice_node::effects::request::<Value>(\"SLOT\", &json!({ \"order_id\": state.input[\"order_id\"] }))?;
";

/// `within`: a workspace above the node takes it in.
pub(super) fn files(name: &Name, grants: &Grants, within: bool) -> Vec<File> {
    let own = if within { "" } else { include_str!("../template/node.toml") };
    vec![("Cargo.toml", manifest(name) + own), ("src/lib.rs", source(name, grants))]
}

fn manifest(name: &Name) -> String {
    format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\npublish = false\n\n[lib]\ncrate-type = [\"cdylib\"]\n\n[dependencies]\nserde = {{ version = \"1\", features = [\"derive\"] }}\nserde_json = \"1\"\ntwice-node = {{ path = \"../../sdk/rust\" }}\n"
    )
}

fn source(name: &Name, grants: &Grants) -> String {
    let mut body = String::new();
    let mut answers = Vec::new();
    for grant in &grants.slots {
        body.push_str(&request(grant));
        answers.push(format!("        \"{}\": {}.body,\n", grant.slot, grant.variable()));
    }
    match &grants.workflow {
        Some(workflow) if grants.slots.is_empty() => {
            _ = writeln!(body, "    // Workflow `{workflow}` grants this node no effects.");
        }
        Some(_) => {}
        None => body.push_str("    // No workflow names this component yet.\n"),
    }
    if answers.is_empty() {
        body.push_str(GRANT);
        answers.push("        \"seen\": state.input,\n".to_owned());
    }
    let uses_effects = body.contains("= effects::");
    let uses_state =
        body.contains("state.") || answers.iter().any(|answer| answer.contains("state."));
    format!(
        "//! The node `{name}`.\n\nuse serde_json::{{Value, json}};\nuse twice_node::{{NodeError, State{}}};\n\n\
         twice_node::node!(run);\n\n\
         /// Runs from the beginning each time the step is started; what was requested before is answered from the ledger.\n\
         fn run({}: State<Value>) -> Result<Value, NodeError> {{\n{body}    Ok(json!({{\n{}    }}))\n}}\n",
        if uses_effects { ", effects" } else { "" },
        if uses_state { "state" } else { "_state" },
        answers.concat(),
    )
}

/// The request of one slot. Args that the workflow's input has under the same name are taken from there.
fn request(grant: &Grant) -> String {
    let args: Vec<String> = grant
        .args
        .iter()
        .map(|(name, known)| {
            if *known {
                format!("        {name:?}: state.input[{name:?}],\n")
            } else {
                format!("        {name:?}: null, // `{}` wants it; fill it in\n", grant.target)
            }
        })
        .collect();
    let (call, first) = if grant.per_item {
        ("request_item", format!("\"{}\", 0", grant.slot))
    } else {
        ("request", format!("\"{}\"", grant.slot))
    };
    format!(
        "    let args = json!({{\n{}    }});\n    let {} = effects::{call}::<Value>({first}, &args)?;\n",
        args.concat(),
        grant.variable()
    )
}
