//! The example sagas, each in a project of its own, against services that are processes with books of their own.

mod books;
mod services;

pub use self::books::{Books, Fate, books, compare};
pub use self::services::{Asked, Kept, Services};

use crate::project::Project;

/// A saga of the repository.
#[derive(Debug, Clone, Copy)]
pub struct Saga {
    /// Its folder in `nodes/`.
    pub folder: &'static str,
    /// Its workflow.
    pub workflow: &'static str,
    /// Its nodes.
    pub nodes: &'static [&'static str],
    /// Its services: the tools that each of them offers.
    pub services: &'static [&'static [&'static str]],
}

/// An order: reserve, authorize, ship, capture.
pub const ORDER: Saga = Saga {
    folder: "order-saga",
    workflow: "order",
    nodes: &["reserve", "authorize", "ship", "capture"],
    services: &[&["inventory"], &["payments"], &["shipments"]],
};

/// A trip: flight, hotel and car side by side, then a mail.
pub const TRIP: Saga = Saga {
    folder: "trip-saga",
    workflow: "trip",
    nodes: &["flight", "hotel", "car", "confirm"],
    services: &[&["flights", "mail"], &["hotels"], &["cars"]],
};

impl Saga {
    /// A copy of its project, with its nodes registered and with waits that suit a test. It is a template: take a
    /// [`Project::copy`] of it for each run that is disturbed, and let [`Services::serve`] it.
    ///
    /// # Panics
    /// When it cannot be made; as everything here, because a test that cannot do what it wants to has failed.
    #[must_use]
    pub fn project(&self, program: &str) -> Project {
        self.furnished(Project::of_repository(program, self.folder))
    }

    /// The same, of which nothing is undone, locked or final.
    ///
    /// # Panics
    /// As [`Saga::project`].
    #[must_use]
    pub fn project_without_undoing(&self, program: &str) -> Project {
        let project = Project::of_repository(program, self.folder);
        let file = self.workflow_file();
        let text = std::fs::read_to_string(project.root().join(&file));
        project.write(&file, without_undoing(&text.expect("the workflow can be read")));
        self.furnished(project)
    }

    fn furnished(&self, project: Project) -> Project {
        for tool in self.tools() {
            let file = format!("tools/{tool}.toml");
            project.edit(&file, "settle = \"2s\"", "settle = \"200ms\"");
            project.edit(&file, "timeout = \"10s\"", "timeout = \"3s\"");
            project.edit(&file, "initial = \"500ms\"", "initial = \"50ms\"");
        }
        for node in self.nodes {
            project.add_node_of(&format!("{}/nodes/{node}", self.folder), node);
        }
        project
    }

    /// The file of its workflow.
    #[must_use]
    pub fn workflow_file(&self) -> String {
        format!("workflows/{}.toml", self.workflow)
    }

    /// The args of `twice run` about the example's own input.
    #[must_use]
    pub fn start(&self, run: &str) -> Vec<String> {
        ["run", self.workflow, "--input", "input.json", "--run-id", run].map(str::to_owned).to_vec()
    }

    fn tools(&self) -> impl Iterator<Item = &'static str> {
        self.services.iter().flat_map(|tools| tools.iter().copied())
    }
}

/// The text of a workflow without `[saga]` and the keys that say how its effects are undone, locked or final. Each of them
/// stands in a line of its own in these workflows.
fn without_undoing(text: &str) -> String {
    let undoing = ["[saga]", "undo =", "compensate =", "pivot =", "lock ="];
    let lines = text.lines().filter(|line| !undoing.iter().any(|key| line.starts_with(key)));
    lines.map(|line| format!("{line}\n")).collect()
}
