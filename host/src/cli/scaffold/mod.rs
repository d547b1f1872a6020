//! Writes a new node for the slots that the project's workflows grant it, ready to build, together with the SDK it needs.

mod languages;
mod rust;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;
use twice_core::ids::Name;
use twice_toolchain::Language;
use twice_workflow::Project;
use twice_workflow::model::{Node, Slot, Uses, Workflow};

use super::init::write_new;

/// The cargo workspace that projects had above all their nodes, when each Rust node was not yet one of its own.
const WORKSPACE: &str = "nodes/Cargo.toml";

/// Where cargo is told how to build all that lies in a folder.
const CONFIG: &str = ".cargo/config.toml";

/// What the project's workflows grant a component.
struct Grants {
    /// The workflow that names it first, or `None` when none does.
    workflow: Option<Name>,
    slots: Vec<Grant>,
}

/// A slot, as far as the source of a node needs it.
struct Grant {
    /// The slot's name.
    slot: String,
    /// `tool.operation`.
    target: String,
    /// Whether it is bound to an array.
    per_item: bool,
    /// The names of the args that are required, and whether the run's input has one of the same name.
    args: Vec<(String, bool)>,
}

impl Grant {
    /// A name for what it gives, in a language whose names have no dashes.
    fn variable(&self) -> String {
        format!("{}_receipt", self.slot.replace('-', "_"))
    }
}

/// A file of a new node, by its path below the node's folder.
type File = (&'static str, String);

/// Writes `nodes/<name>`, and the SDK to `sdk`.
///
/// # Errors
/// When it is there already or cannot be written.
pub(super) fn node(
    root: &Path,
    project: &Project,
    name: &Name,
    language: Language,
) -> anyhow::Result<PathBuf> {
    let dir = root.join("nodes").join(name.as_str());
    if dir.exists() {
        anyhow::bail!(
            "{} exists already\nfix: choose another name, or remove it first",
            dir.display()
        );
    }
    let grants = Grants::of(project, name);
    let files: Vec<File> = match language {
        Language::Rust => {
            // One that stands above all nodes takes this one in; two workspaces within each other would break the build of both.
            let within = root.join(WORKSPACE).exists();
            let config = root.join("nodes").join(CONFIG);
            // Whoever has said where builds go is not overruled.
            if !within && !config.exists() && !root.join(CONFIG).exists() {
                write_new(&config, include_str!("../template/cargo.toml"))?;
            }
            rust::files(name, &grants, within)
        }
        Language::Python => languages::python(name, &grants),
        Language::JavaScript => languages::javascript(name, &grants, false),
        Language::TypeScript => languages::javascript(name, &grants, true),
        Language::Go => languages::go(name, &grants),
        Language::C => languages::c(name, &grants),
        Language::Cpp => languages::cpp(name, &grants),
        Language::Zig => languages::zig(name, &grants),
        Language::AssemblyScript => languages::assemblyscript(name, &grants),
    };
    if language != Language::Rust {
        leave_out(&root.join(WORKSPACE), name)?;
    }
    twice_toolchain::write_sdk(&root.join("sdk"), language)?;
    for (path, text) in files {
        write_new(&dir.join(path), &text)?;
    }
    Ok(dir)
}

/// Keeps the folder of a node in another language out of a cargo workspace that takes in every folder: cargo builds nothing
/// when one of its members has no Cargo.toml.
fn leave_out(workspace: &Path, name: &Name) -> anyhow::Result<()> {
    let Ok(text) = std::fs::read_to_string(workspace) else { return Ok(()) };
    let list = "exclude = [";
    if !text.lines().any(|line| line == "members = [\"*\"]") || !text.contains(list) {
        return Ok(());
    }
    std::fs::write(workspace, text.replacen(list, &format!("{list}\"{name}\", "), 1))
        .with_context(|| format!("cannot write {}", workspace.display()))
}

impl Grants {
    fn of(project: &Project, name: &Name) -> Self {
        let mut places = project
            .workflows
            .values()
            .flat_map(|workflow| workflow.nodes.iter().map(move |node| (workflow, node)))
            .filter(|(_, node): &(&Workflow, &Node)| node.component == *name);
        let Some((workflow, node)) = places.next() else {
            return Self { workflow: None, slots: Vec::new() };
        };
        let slots = node.slots.iter().map(|slot| grant(project, workflow, slot)).collect();
        Self { workflow: Some(workflow.name.clone()), slots }
    }
}

fn grant(project: &Project, workflow: &Workflow, slot: &Slot) -> Grant {
    let schema = if slot.child {
        let child = project.workflows.get(&slot.operation);
        child.and_then(|workflow| workflow.input_schema.clone())
    } else {
        let tool = project.tools.get(&slot.tool);
        let operation = tool.and_then(|tool| tool.operations.get(&slot.operation));
        operation.map(|operation| operation.args_schema.clone())
    };
    let input = workflow.input_schema.as_ref();
    let known = |name: &str| input.is_some_and(|input| input["properties"].get(name).is_some());
    let required = schema.as_ref().and_then(|schema| schema["required"].as_array());
    let args = required.into_iter().flatten().filter_map(Value::as_str);
    Grant {
        slot: slot.name.to_string(),
        target: format!("{}.{}", slot.tool, slot.operation),
        per_item: matches!(slot.uses, Uses::ForEach(_)),
        args: args.map(|name| (name.to_owned(), known(name))).collect(),
    }
}
