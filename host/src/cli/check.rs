//! `twice check`

use clap::Args;

use super::exit::Exit;
use super::open::Place;
use super::out::Out;

/// Check every workflow and tool file, and say what each operation promises.
#[derive(Debug, Args)]
pub(super) struct Check {
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

impl Check {
    pub(super) fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let project = place.project(out)?;
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
            out.json(&serde_json::json!({ "workflows": workflows, "operations": tools }));
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
