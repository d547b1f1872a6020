//! Writes a new node for the slots that the project's workflows grant it, ready to build, together with the SDK it needs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use twice_core::ids::Name;
use twice_workflow::Project;
use twice_workflow::model::{Node, Slot, Uses, Workflow};

use super::init::write_new;

/// The SDK as it is put into a project: it needs nothing but crates that cargo finds.
const SDK: [(&str, &str); 7] = [
    ("wit/node.wit", include_str!("../../../guest-sdk/wit/node.wit")),
    ("rust/Cargo.toml", include_str!("../../../guest-sdk/rust/Cargo.toml")),
    ("rust/src/lib.rs", include_str!("../../../guest-sdk/rust/src/lib.rs")),
    ("rust/src/context.rs", include_str!("../../../guest-sdk/rust/src/context.rs")),
    ("rust/src/effects.rs", include_str!("../../../guest-sdk/rust/src/effects.rs")),
    ("rust/src/error.rs", include_str!("../../../guest-sdk/rust/src/error.rs")),
    ("rust/src/log.rs", include_str!("../../../guest-sdk/rust/src/log.rs")),
];

/// Writes `nodes/<name>`.
///
/// # Errors
/// When it is there already or cannot be written.
pub(super) fn rust_node(root: &Path, project: &Project, name: &Name) -> anyhow::Result<PathBuf> {
    let dir = root.join("nodes").join(name.as_str());
    if dir.exists() {
        anyhow::bail!(
            "{} exists already\nfix: choose another name, or remove it first",
            dir.display()
        );
    }
    for (path, text) in SDK {
        let path = root.join("sdk").join(path);
        if !path.exists() {
            write_new(&path, text)?;
        }
    }
    let workspace = root.join("nodes/Cargo.toml");
    if !workspace.exists() {
        write_new(&workspace, include_str!("template/nodes.toml"))?;
    }
    write_new(&dir.join("Cargo.toml"), &manifest(name))?;
    write_new(&dir.join("src/lib.rs"), &source(project, name))?;
    Ok(dir)
}

fn manifest(name: &Name) -> String {
    format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\npublish = false\n\n[lib]\ncrate-type = [\"cdylib\"]\n\n[dependencies]\nserde = {{ version = \"1\", features = [\"derive\"] }}\nserde_json = \"1\"\ntwice-node = {{ path = \"../../sdk/rust\" }}\n"
    )
}

fn source(project: &Project, name: &Name) -> String {
    let places: Vec<(&Workflow, &Node)> = project
        .workflows
        .values()
        .flat_map(|workflow| workflow.nodes.iter().map(move |node| (workflow, node)))
        .filter(|(_, node)| node.component == *name)
        .collect();
    let mut body = String::new();
    let mut answers = Vec::new();
    match places.first() {
        Some((workflow, node)) => {
            for slot in &node.slots {
                let variable = format!("{}_receipt", slot.name.as_str().replace('-', "_"));
                body.push_str(&request(project, workflow, slot, &variable));
                answers.push(format!("        \"{}\": {variable}.body,\n", slot.name));
            }
            if node.slots.is_empty() {
                let _ = writeln!(
                    body,
                    "    // Workflow `{}` grants this node no effects.",
                    workflow.name
                );
            }
        }
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

/// How a node without effects gets one.
const GRANT: &str = "    // Once one grants it an effect, with [[node.effect]], request it by the name of its slot:
    //     let receipt = twice_node::effects::request::<Value>(\"SLOT\", &json!({ \"order_id\": state.input[\"order_id\"] }))?;
";

/// The request of one slot. Args that the workflow's input has under the same name are taken from there.
fn request(project: &Project, workflow: &Workflow, slot: &Slot, variable: &str) -> String {
    let schema = if slot.child {
        let child = project.workflows.get(&slot.operation);
        child.and_then(|workflow| workflow.input_schema.clone())
    } else {
        let tool = project.tools.get(&slot.tool);
        let operation = tool.and_then(|tool| tool.operations.get(&slot.operation));
        operation.map(|operation| operation.args_schema.clone())
    };
    let schema = schema.unwrap_or(Value::Null);
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let args: Vec<String> = required
        .iter()
        .filter_map(Value::as_str)
        .map(|name| {
            let known = workflow
                .input_schema
                .as_ref()
                .is_some_and(|input| input["properties"].get(name).is_some());
            if known {
                format!("        {name:?}: state.input[{name:?}],\n")
            } else {
                format!(
                    "        {name:?}: null, // `{}.{}` wants it; fill it in\n",
                    slot.tool, slot.operation
                )
            }
        })
        .collect();
    let (call, first) = match slot.uses {
        Uses::Once | Uses::Repeat(_) => ("request", format!("\"{}\"", slot.name)),
        Uses::ForEach(_) => ("request_item", format!("\"{}\", 0", slot.name)),
    };
    format!(
        "    let args = json!({{\n{}    }});\n    let {variable} = effects::{call}::<Value>({first}, &args)?;\n",
        args.concat()
    )
}
