//! Small workflows to plan with, read from their files as users write them.

use twice_core::ids::Name;
use twice_workflow::Project;
use twice_workflow::diagnostic::Diagnostic;
use twice_workflow::model::Workflow;

use crate::support::Map;

/// A workflow of those nodes, each given as a name and further keys.
pub(crate) fn load(head: &str, nodes: &[(String, String)]) -> Result<Workflow, Vec<Diagnostic>> {
    let mut text = format!("workflow = 'flow'\nversion = 1\n{head}\n");
    for (name, keys) in nodes {
        text.push_str(&format!("[[node]]\nname = '{name}'\ncomponent = 'c'\n{keys}\n"));
    }
    let files: Map = [
        ("twice.toml".to_owned(), "project = 'flows'".to_owned()),
        ("workflows/flow.toml".to_owned(), text),
    ]
    .into();
    let mut project = Project::load(&files)?;
    Ok(project.workflows.remove(&name("flow")).expect("it was read"))
}

/// As [`load`], of a workflow that is sound.
#[track_caller]
pub(crate) fn sound(head: &str, nodes: &[(&str, &str)]) -> Workflow {
    let owned: Vec<(String, String)> =
        nodes.iter().map(|(name, keys)| ((*name).to_owned(), (*keys).to_owned())).collect();
    load(head, &owned).unwrap_or_else(|found| {
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        panic!("{}", found.join("\n"))
    })
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).expect("the test gives a valid name")
}
