//! `twice check`

use std::collections::BTreeMap;

use anyhow::bail;
use clap::Args;
use twice_core::ids::Name;
use twice_workflow::Project;
use twice_workflow::model::Node;
use twice_workflow::typed;

use super::exit::Exit;
use super::open::{self, Place};
use super::out::Out;

/// Check every workflow and tool file, and say what each operation promises.
#[derive(Debug, Args)]
pub(super) struct Check {
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

impl Check {
    pub(super) async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let project = place.project(out)?;
        let unregistered = unregistered(place, &project).await?;
        for (workflow, node) in &unregistered {
            out.warn(&format!("warning: workflow `{workflow}`: {}", open::unregistered(node)));
        }
        let ungranted = ungranted(place, &project).await?;
        if !ungranted.is_empty() {
            bail!(
                "registered components import functions of tools that their nodes are not granted:\n  - {}",
                ungranted.join("\n  - ")
            );
        }
        if self.json {
            let workflows: Vec<&str> = project.workflows.keys().map(|name| name.as_str()).collect();
            let tools: Vec<_> = project
                .tools
                .values()
                .flat_map(|tool| {
                    tool.operations.iter().map(move |(name, operation)| {
                        serde_json::json!({
                            "operation": format!("{}.{name}", tool.name),
                            "class": operation.contract.class().as_str(),
                            "promise": operation.contract.class().promise(),
                        })
                    })
                })
                .collect();
            let unregistered: Vec<_> = unregistered
                .iter()
                .map(|(workflow, node)| {
                    serde_json::json!({
                        "workflow": workflow,
                        "node": node.name,
                        "component": node.component,
                    })
                })
                .collect();
            out.json(&serde_json::json!({
                "workflows": workflows,
                "operations": tools,
                "unregistered": unregistered,
            }));
            return Ok(Exit::Done);
        }
        for workflow in project.workflows.values() {
            out.line(&format!("workflow {} version {}: fine", workflow.name, workflow.version));
        }
        for tool in project.tools.values() {
            for (name, operation) in &tool.operations {
                out.line(&format!(
                    "operation {}.{name}: {}",
                    tool.name,
                    twice_workflow::explain(operation)
                ));
            }
        }
        Ok(Exit::Done)
    }
}

/// The nodes whose components the project's ledger does not have, by workflow. Without a ledger there is nothing to compare
/// with: a project may be checked where it is not run.
async fn unregistered<'a>(
    place: &Place,
    project: &'a Project,
) -> anyhow::Result<Vec<(&'a Name, &'a Node)>> {
    let Some(ledger) = place.ledger_if_there().await? else { return Ok(Vec::new()) };
    let mut missing = Vec::new();
    for workflow in project.workflows.values() {
        for node in &workflow.nodes {
            if ledger.module(&node.component).await?.is_none() {
                missing.push((&workflow.name, node));
            }
        }
    }
    ledger.close().await;
    Ok(missing)
}

/// What registered components import that the slots of their nodes do not grant.
async fn ungranted(place: &Place, project: &Project) -> anyhow::Result<Vec<String>> {
    let Some(ledger) = place.ledger_if_there().await? else { return Ok(Vec::new()) };
    let mut imports = BTreeMap::new();
    let mut problems = Vec::new();
    for workflow in project.workflows.values() {
        for node in &workflow.nodes {
            let Some(module) = ledger.module(&node.component).await? else { continue };
            if !imports.contains_key(&module.digest) {
                let bytes = ledger.module_bytes(&module.digest).await?.unwrap_or_default();
                let read =
                    tokio::task::spawn_blocking(move || twice_sandbox::typed_imports(&bytes));
                imports.insert(module.digest.clone(), read.await??);
            }
            let found = typed::grants(node, &project.tools, &imports[&module.digest]);
            let named = |problem| format!("workflow `{}`, {problem}", workflow.name);
            problems.extend(found.err().into_iter().flatten().map(named));
        }
    }
    ledger.close().await;
    Ok(problems)
}
