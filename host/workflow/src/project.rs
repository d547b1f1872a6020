//! A project: everything that its files say, checked.

use std::cell::RefCell;
use std::collections::BTreeMap;

use twice_core::ids::Name;

use crate::definition::DefinitionError;
use crate::diagnostic::{Code, Diagnostic, Severity, nearest};
use crate::files::Files;
use crate::flow::{self, Tools};
use crate::model::{Child, Definition, Tool, Workflow};
use crate::read::{self, At, Item, Place, Sink};
use crate::schemas::Schemas;
use crate::tool;

/// The file that makes a folder a project.
pub const PROJECT_FILE: &str = "twice.toml";
/// How long a worker holds a run without a sign of life, unless the file states otherwise. Milliseconds.
pub const LEASE_MS: u64 = 10_000;

/// Most child workflows that are pinned with a workflow, those of its children included: each is written out in full.
const CHILDREN_MAX: u32 = 100;

/// A checked project.
#[derive(Debug, Clone, PartialEq)]
pub struct Project {
    /// Its name.
    pub name: Name,
    /// What `twice.toml` settles besides.
    pub settings: Settings,
    /// Its workflows by name.
    pub workflows: BTreeMap<Name, Workflow>,
    /// Its tools by name.
    pub tools: BTreeMap<Name, Tool>,
    /// What its authors should know, by file and line.
    pub warnings: Vec<Diagnostic>,
}

/// What `twice.toml` settles besides the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `[database] url`: a database URL, or a reference `env:NAME`.
    pub database_url: Option<String>,
    /// `[worker] lease`. Milliseconds; [`LEASE_MS`] unless stated.
    pub lease_ms: u64,
}

impl Settings {
    /// Reads `twice.toml` alone: for what has to be known of a project whose other files need not be right.
    ///
    /// # Errors
    /// What was found wrong with that file.
    pub fn load(files: &dyn Files) -> Result<Self, Vec<Diagnostic>> {
        let found = RefCell::new(Vec::new());
        let head = head(files, &found);
        let mut found = found.into_inner();
        found.sort();
        let failed = found.iter().any(|finding| finding.severity() == Severity::Error);
        match head {
            Some((_, settings)) if !failed => Ok(settings),
            Some(_) | None => Err(found),
        }
    }
}

impl Project {
    /// Reads and checks all files of a project: `twice.toml`, `workflows/*.toml`, `tools/*.toml` and the schemas they name.
    ///
    /// # Errors
    /// Everything that was found, warnings included, by file and line; at least one of them is an error.
    pub fn load(files: &dyn Files) -> Result<Self, Vec<Diagnostic>> {
        let found = RefCell::new(Vec::new());
        let schemas = Schemas::new(files, &found);
        let head = head(files, &found);
        let (tools, hidden) = tools(&schemas);
        let workflows = workflows(&schemas, &tools, hidden);
        let mut found = found.into_inner();
        found.sort();
        found.dedup();
        let failed = found.iter().any(|finding| finding.severity() == Severity::Error);
        match (head, failed) {
            (Some((name, settings)), false) => Ok(Self {
                name,
                settings,
                workflows: whole(workflows),
                tools: whole(tools),
                warnings: found,
            }),
            (Some(_) | None, _) => Err(found),
        }
    }

    /// A workflow and all those that it starts, and that they start, each once.
    #[must_use]
    pub fn family(&self, workflow: &Name) -> Vec<&Workflow> {
        let mut family: Vec<&Workflow> = self.workflows.get(workflow).into_iter().collect();
        let mut at = 0;
        while at < family.len() {
            for child in family[at].children().filter_map(|name| self.workflows.get(name)) {
                if family.iter().all(|known| known.name != child.name) {
                    family.push(child);
                }
            }
            at += 1;
        }
        family
    }

    /// The definition under which runs of a workflow start: the workflow, the tools it uses, and the digests of the
    /// components it runs, and the same of the workflows it starts. `components` has the digest of each registered module.
    ///
    /// # Errors
    /// [`DefinitionError`] when there is no such workflow, or a component of it is not registered.
    pub fn definition(
        &self,
        workflow: &Name,
        components: &BTreeMap<Name, String>,
    ) -> Result<Definition, DefinitionError> {
        self.pinned(workflow, components, &mut { CHILDREN_MAX })
    }

    fn pinned(
        &self,
        workflow: &Name,
        components: &BTreeMap<Name, String>,
        children_left: &mut u32,
    ) -> Result<Definition, DefinitionError> {
        let found = self.workflows.get(workflow).ok_or_else(|| {
            let names = self.workflows.keys().map(Name::as_str);
            DefinitionError::UnknownWorkflow {
                workflow: workflow.clone(),
                near: nearest(workflow.as_str(), names).map(str::to_owned),
            }
        })?;
        let mut pinned = BTreeMap::new();
        let mut tools = BTreeMap::new();
        let mut children = BTreeMap::new();
        for node in &found.nodes {
            let digest = components.get(&node.component).ok_or_else(|| {
                DefinitionError::UnknownComponent {
                    workflow: workflow.clone(),
                    node: node.name.clone(),
                    component: node.component.clone(),
                }
            })?;
            pinned.insert(node.component.clone(), digest.clone());
            for slot in &node.slots {
                if slot.child {
                    if !children.contains_key(&slot.operation) {
                        *children_left = children_left.checked_sub(1).ok_or_else(|| {
                            DefinitionError::TooManyChildren { workflow: workflow.clone() }
                        })?;
                        let definition = self.pinned(&slot.operation, components, children_left)?;
                        let digest = definition.digest();
                        children.insert(slot.operation.clone(), Child { digest, definition });
                    }
                } else {
                    self.pin(&slot.tool, &mut tools);
                }
                if let Some(compensation) = &slot.compensate {
                    self.pin(&compensation.tool, &mut tools);
                }
            }
        }
        Ok(Definition {
            format: Definition::FORMAT,
            workflow: found.clone(),
            tools,
            components: pinned,
            children,
        })
    }

    fn pin(&self, name: &Name, tools: &mut BTreeMap<Name, Tool>) {
        let tool = self.tools.get(name).expect("load checked the tool of every slot");
        tools.insert(name.clone(), tool.clone());
    }
}

/// Those that are whole; where no error was found, all are.
fn whole<T>(parts: BTreeMap<Name, Option<T>>) -> BTreeMap<Name, T> {
    parts.into_iter().filter_map(|(name, part)| Some((name, part?))).collect()
}

fn head(files: &dyn Files, found: &RefCell<Vec<Diagnostic>>) -> Option<(Name, Settings)> {
    let sink = Sink { file: PROJECT_FILE, found };
    let item =
        open(files, sink, "create it with `project = \"name\"`, or give the project's folder")?;
    let table = item.as_table(sink, "the project file")?;
    let name = table.required("project", "\"refunds\"").and_then(|i| i.as_name(sink, "a project"));
    let database = table.table("database");
    let worker = table.table("worker");
    table.close();
    let database_url = database.and_then(|inner| {
        let url = inner.text("url").filter(|url| check_database_url(sink, url));
        inner.close();
        url.map(|at| at.value)
    });
    let lease = worker.and_then(|inner| {
        let lease = inner.duration("lease", 1_000..=3_600_000);
        inner.close();
        lease
    });
    let settings = Settings { database_url, lease_ms: lease.map_or(LEASE_MS, |at| at.value) };
    Some((name?.value, settings))
}

/// Reports a database URL with a password in it. The text is not repeated (I10).
fn check_database_url(sink: Sink<'_>, url: &At<String>) -> bool {
    let authority = url.value.split_once("://").map_or("", |(_, rest)| rest);
    let authority = authority.split(['/', '?']).next().unwrap_or_default();
    let query = url.value.split_once('?').map_or("", |(_, query)| query);
    let password = authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
        || query.split('&').any(|parameter| parameter.starts_with("password="));
    if password {
        sink.report(
            url.place,
            Code::SecretLiteral,
            "the database URL has a password in it",
            "a secret in a file ends up in version control and in backups",
            "write `url = \"env:NAME\"`; if this was a real password, change it",
        );
    }
    !password
}

/// The tools by name, and whether there are some whose names could not be read.
fn tools(schemas: &Schemas<'_>) -> (Tools, bool) {
    each(schemas, "tools", "tool", |sink, item| tool::read(sink, item, schemas))
}

fn workflows(
    schemas: &Schemas<'_>,
    tools: &Tools,
    hidden: bool,
) -> BTreeMap<Name, Option<Workflow>> {
    let known = flow::Known {
        schemas,
        tools,
        tools_hidden: hidden,
        workflows: flow::survey(schemas.files),
        starts: RefCell::default(),
    };
    let (all, _) =
        each(schemas, "workflows", "workflow", |sink, item| flow::read(sink, item, &known));
    flow::check_starts(schemas.found, &known.starts.into_inner());
    all
}

/// Reads each TOML file of a folder; what they define by name, and whether some could not be read for their names.
fn each<T>(
    schemas: &Schemas<'_>,
    dir: &str,
    kind: &str,
    read: impl Fn(Sink<'_>, &Item) -> Option<(At<Name>, Option<T>)>,
) -> (BTreeMap<Name, Option<T>>, bool) {
    let mut all = BTreeMap::new();
    let mut hidden = false;
    let names = schemas.files.list(dir).unwrap_or_else(|error| {
        let sink = Sink { file: dir, found: schemas.found };
        unreadable(sink, &error.to_string(), "make the folder readable");
        Vec::new()
    });
    for name in names.iter().filter(|name| name.ends_with(".toml")) {
        let path = format!("{dir}/{name}");
        let sink = Sink { file: &path, found: schemas.found };
        let item = open(schemas.files, sink, "make the file readable");
        let Some((name, part)) = item.and_then(|item| read(sink, &item)) else {
            hidden = true;
            continue;
        };
        if all.insert(name.value.clone(), part).is_some() {
            sink.report(
                name.place,
                Code::Duplicate,
                format!("there is another {kind} `{}` in `{dir}/`", name.value),
                "which of them is meant would depend on the names of the files",
                "rename one of them",
            );
        }
    }
    (all, hidden)
}

fn open(files: &dyn Files, sink: Sink<'_>, fix: &str) -> Option<Item> {
    match files.read(sink.file) {
        Ok(text) => read::parse(sink, &text),
        Err(error) => {
            unreadable(sink, &error.to_string(), fix);
            None
        }
    }
}

fn unreadable(sink: Sink<'_>, what: &str, fix: &str) {
    let why = "a project is checked as a whole, or not at all";
    sink.report(Place::START, Code::Unreadable, what, why, fix);
}
