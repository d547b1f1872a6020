//! Which operations and slots stand behind what a component imports.

use std::collections::BTreeMap;

use twice_core::ids::Name;
use twice_core::wit::{TypedGrant, TypedImport, wit_name_of};

use super::{interface, signature};
use crate::diagnostic::listed;
use crate::model::{Node, Operation, Slot, Tool};
use crate::project::Project;

/// The grants of a node for all functions that its component imports from tools. `tools` are those that its slots name.
///
/// # Errors
/// One line for each function that no slot, or more than one, is for, or whose types do not fit, with the fix.
pub fn grants(
    node: &Node,
    tools: &BTreeMap<Name, Tool>,
    imports: &[TypedImport],
) -> Result<Vec<TypedGrant>, Vec<String>> {
    let (mut grants, mut problems) = (Vec::new(), Vec::new());
    for import in imports {
        match grant(node, tools, import) {
            Ok(grant) => grants.push(grant),
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() { Ok(grants) } else { Err(problems) }
}

fn grant(
    node: &Node,
    tools: &BTreeMap<Name, Tool>,
    import: &TypedImport,
) -> Result<TypedGrant, Vec<String>> {
    let label = label(import);
    let candidates: Vec<(&Slot, &Operation)> =
        node.slots.iter().filter_map(|slot| behind(slot, tools, import)).collect();
    let (slot, operation) = match candidates.as_slice() {
        [one] => *one,
        [] => {
            return Err(vec![format!(
                "{label}: no slot of node `{}` is for it; grant it with a [[node.effect]] for that operation of the tool whose \
                 interface this is, or do not import it",
                node.name
            )]);
        }
        several => {
            let names = listed(several.iter().map(|(slot, _)| slot.name.as_str()));
            return Err(vec![format!(
                "{label}: the slots {names} of node `{}` are all for it; give all but one of them an interface of their own, \
                 `import = \"…\"`, by which the node asks for it, or ask by `twice:node/effects` alone",
                node.name
            )]);
        }
    };
    let signature = of(import, operation)?;
    let bound = slot.array().is_some();
    if bound != signature.item {
        return Err(vec![if bound {
            format!(
                "{label}: the slot `{}` is bound with `for_each`, so the function needs a first parameter `item: u32`; `twice tool \
                 wit {} --each {}` writes it so",
                slot.name, slot.tool, slot.operation
            )
        } else {
            format!(
                "{label}: the function's first parameter `item` picks an element, and the slot `{}` is not bound to an array; bind it \
                 with `for_each`, or take the parameter out",
                slot.name
            )
        }]);
    }
    Ok(TypedGrant {
        interface: import.interface.clone(),
        function: import.function.clone(),
        slot: slot.name.to_string(),
        signature,
    })
}

/// The slot with its operation, if it is for an import.
fn behind<'a>(
    slot: &'a Slot,
    tools: &'a BTreeMap<Name, Tool>,
    import: &TypedImport,
) -> Option<(&'a Slot, &'a Operation)> {
    let tool = tools.get(&slot.tool)?;
    let named = match &slot.import {
        Some(name) => *name == import.interface,
        None => interface(tool).is_some_and(|name| name.to_string() == import.interface),
    };
    let is_function = wit_name_of(slot.operation.as_str()).as_ref() == Some(&import.function);
    (named && is_function).then_some(())?;
    Some((slot, tool.operations.get(&slot.operation)?))
}

/// What is wrong with imports as far as a project's tools tell, without a node that runs the component: a tool with that
/// interface, an operation for each function, and types that fit its schemas. Empty: nothing.
#[must_use]
pub fn check_tools(project: &Project, imports: &[TypedImport]) -> Vec<String> {
    let mut problems = Vec::new();
    for import in imports {
        let tools = tools_of(project, &import.interface);
        if tools.is_empty() {
            let known = project.tools.values().filter_map(interface).map(|name| name.to_string());
            let known: Vec<String> = known.collect();
            problems.push(format!(
                "{}: no tool of this project has that interface; state `wit = \"{}\"` in the tool's file, or import one of {}",
                label(import),
                import.interface,
                listed(known.iter().map(String::as_str))
            ));
            continue;
        }
        let operations = |tool: &&Tool| {
            let found = tool.operations.iter();
            let mut found = found
                .filter(|(name, _)| wit_name_of(name.as_str()).as_ref() == Some(&import.function));
            found.next().map(|(_, operation)| operation.clone())
        };
        let found: Vec<Operation> = tools.iter().filter_map(operations).collect();
        if found.is_empty() {
            let names = tools.iter().flat_map(|tool| tool.operations.keys()).map(Name::as_str);
            problems.push(format!(
                "{}: the tool `{}` has no such operation; it has {}",
                label(import),
                tools[0].name,
                listed(names)
            ));
        }
        // With several tools behind one interface, the node's slots decide; one that fits is enough here.
        let misfits: Vec<Vec<String>> =
            found.iter().filter_map(|operation| of(import, operation).err()).collect();
        if misfits.len() == found.len() {
            problems.extend(misfits.into_iter().next().unwrap_or_default());
        }
    }
    problems
}

/// The tools that an interface may stand for: by their files, or by the slots that are imported by it.
fn tools_of<'a>(project: &'a Project, name: &str) -> Vec<&'a Tool> {
    let slots = project.workflows.values().flat_map(|workflow| &workflow.nodes);
    let slots =
        slots.flat_map(|node| &node.slots).filter(|slot| slot.import.as_deref() == Some(name));
    let by_slot = slots.filter_map(|slot| project.tools.get(&slot.tool));
    let by_file = project.tools.values();
    let by_file = by_file.filter(|tool| interface(tool).is_some_and(|own| own.to_string() == name));
    let mut tools: Vec<&Tool> = by_file.chain(by_slot).collect();
    tools.sort_by(|a, b| a.name.cmp(&b.name));
    tools.dedup_by(|a, b| a.name == b.name);
    tools
}

fn of(
    import: &TypedImport,
    operation: &Operation,
) -> Result<twice_core::wit::Signature, Vec<String>> {
    signature(&import.ty, operation).map_err(|problems| {
        problems.into_iter().map(|problem| format!("{}: {problem}", label(import))).collect()
    })
}

fn label(import: &TypedImport) -> String {
    format!("`{}#{}`", import.interface, import.function)
}
