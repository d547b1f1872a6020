//! `twice node`

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use twice_core::ids::Name;
use twice_sandbox::{Component, FIXED_LIMITS, Inspection};
use twice_toolchain::Language;
use twice_workflow::flow::LIMITS;
use twice_workflow::typed;

use super::compile_component;
use super::exit::Exit;
use super::given;
use super::open::Place;
use super::out::Out;
use super::scaffold;
use super::term::Column;
use crate::view::ModuleView;

/// Write, build, register and inspect nodes.
#[derive(Debug, Subcommand)]
pub(super) enum Node {
    /// Write a new node for the slots that the project's workflows grant it
    New(New),
    /// Build a node and register it
    Build(Build),
    /// Register a component (or a core module with component metadata) under a name
    Add(Add),
    /// List registered components
    List(List),
    /// Say what a component is and all it can ever ask for
    Inspect(Inspect),
}

/// Write a new node for the slots that the project's workflows grant it.
#[derive(Debug, Args)]
pub(super) struct New {
    /// The node's name, as `component` in a workflow
    #[arg(value_parser = given::name)]
    name: Name,
    /// The language
    #[arg(long, default_value = "rust", value_parser = given::language())]
    lang: Language,
}

/// Build a node and register it.
#[derive(Debug, Args)]
pub(super) struct Build {
    /// The node's folder
    dir: PathBuf,
    /// The name to register it under (default: the folder's)
    #[arg(long, value_parser = given::name)]
    name: Option<Name>,
    /// Where to put the component as well
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Only build it
    #[arg(long)]
    no_add: bool,
}

/// Register a component under a name.
#[derive(Debug, Args)]
pub(super) struct Add {
    /// The name
    #[arg(value_parser = given::name)]
    name: Name,
    /// The file
    file: PathBuf,
}

/// List registered components.
#[derive(Debug, Args)]
pub(super) struct List {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Say what a component is and all it can ever ask for.
#[derive(Debug, Args)]
pub(super) struct Inspect {
    /// A file, or the name of a registered component
    what: String,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Node {
    pub(super) const fn prints_json(&self) -> bool {
        match self {
            Self::List(command) => command.json,
            Self::Inspect(command) => command.json,
            Self::New(_) | Self::Build(_) | Self::Add(_) => false,
        }
    }

    pub(super) async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        match self {
            Self::New(new) => new.run(out, place),
            Self::Build(build) => build.run(out, place).await,
            Self::Add(add) => add.run(out, place).await,
            Self::List(list) => list.run(out, place).await,
            Self::Inspect(inspect) => inspect.run(out, place).await,
        }
    }
}

impl New {
    fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let name = &self.name;
        let project = place.project(out)?;
        let dir = scaffold::node(&place.root()?, &project, name, self.lang)?;
        out.line(&format!("wrote {}", dir.display()));
        out.line(&format!("build and register it with `twice node build nodes/{name}`"));
        Ok(Exit::Done)
    }
}

impl Build {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        if !self.dir.is_dir() {
            bail!(
                "{} is not a folder\nfix: name a node's folder, e.g. nodes/refund; `twice node new NAME` writes one",
                self.dir.display()
            );
        }
        let name = match &self.name {
            Some(name) => name.clone(),
            None => {
                let full = self.dir.canonicalize()?;
                let folder = full.file_name().unwrap_or_default().to_string_lossy().into_owned();
                Name::parse(folder.clone()).with_context(|| {
                    format!("a node cannot be named `{folder}` as its folder is\nfix: give its name with `--name`")
                })?
            }
        };
        if let Some(file) = &self.out {
            make_way(file)?;
        }
        let bytes = build(out, &self.dir).await?;
        if let Some(file) = &self.out {
            std::fs::write(file, &bytes)
                .with_context(|| format!("cannot write {}", file.display()))?;
            out.line(&format!("wrote {}", file.display()));
        }
        if self.no_add {
            let component = load(out, place, bytes).await?;
            check_tools(out, place, &component)?;
            out.line(&format!("built {name}: {}", component.inspection().digest));
            return Ok(Exit::Done);
        }
        register(out, place, &name, bytes).await?;
        Ok(Exit::Done)
    }
}

/// Sees to it that `file` can be written, before the time is spent that a build takes.
fn make_way(file: &Path) -> anyhow::Result<()> {
    if file.is_dir() {
        bail!("{} is a folder\nfix: name a file in it", file.display());
    }
    let Some(folder) = file.parent() else { return Ok(()) };
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))
}

/// Builds a node, showing that it is at it.
pub(super) async fn build(out: &Out, dir: &Path) -> anyhow::Result<Vec<u8>> {
    let mut progress = out.progress(&format!("building {}", dir.display()), None);
    let dir = dir.to_path_buf();
    let built = tokio::task::spawn_blocking(move || {
        let built = twice_toolchain::build(&dir, &mut |line| {
            // All that the tools say is shown when the build fails.
            progress.step(line);
        });
        progress.finish();
        built
    })
    .await?;
    Ok(built?.component)
}

/// Loads a component, showing that it is at it: compiling an interpreter takes a while.
async fn load(out: &Out, place: &Place, bytes: Vec<u8>) -> anyhow::Result<Component> {
    let sandbox = place.sandbox()?;
    let kibibytes = bytes.len() >> 10;
    let progress = out.progress(&format!("compiling {kibibytes} KiB"), None);
    let loaded = tokio::task::spawn_blocking(move || sandbox.load(&bytes)).await;
    progress.finish();
    Ok(loaded??)
}

/// Registers a component once the sandbox took it: what it imports is known to be offered from here on.
pub(super) async fn register(
    out: &Out,
    place: &Place,
    name: &Name,
    bytes: Vec<u8>,
) -> anyhow::Result<()> {
    let bytes = twice_sandbox::componentize(&bytes)?.into_owned();
    let component = load(out, place, bytes.clone()).await?;
    check_tools(out, place, &component)?;
    let ledger = place.ledger_to_fill().await?;
    let digest = component.inspection().digest.clone();
    ledger.put_module(name, &digest, &bytes, ledger.now().await?).await?;
    ledger.close().await;
    out.line(&format!("registered {name}: {digest} ({} bytes)", bytes.len()));
    Ok(())
}

/// Refuses a component that imports functions of tools which the project's tools do not have, or not so.
fn check_tools(out: &Out, place: &Place, component: &Component) -> anyhow::Result<()> {
    let imports = component.inspection().typed;
    if imports.is_empty() {
        return Ok(());
    }
    let problems = typed::check_tools(&place.project(out)?, &imports);
    if problems.is_empty() {
        return Ok(());
    }
    bail!(
        "the component imports what the project's tools do not offer:\n  - {}\nfix: `twice tool wit TOOL --out DIR` writes what a node can be built against",
        problems.join("\n  - ")
    );
}

impl Add {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let bytes = std::fs::read(&self.file)
            .with_context(|| format!("cannot read {}\nfix: give a built .wasm file; `twice node build DIR` builds a node and registers it", self.file.display()))?;
        register(out, place, &self.name, bytes).await?;
        Ok(Exit::Done)
    }
}

impl List {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let ledger = place.ledger().await?;
        let modules: Vec<ModuleView> = ledger.modules().await?.iter().map(ModuleView::of).collect();
        if self.json {
            out.json(&modules);
            return Ok(Exit::Done);
        }
        if modules.is_empty() {
            out.line("no registered components; register one with `twice node build DIR` or `twice node add NAME FILE`");
            return Ok(Exit::Done);
        }
        let rows: Vec<Vec<String>> = modules
            .into_iter()
            .map(|module| {
                vec![module.name, module.digest, module.bytes.to_string(), module.added_at]
            })
            .collect();
        let columns = [
            Column::id("name"),
            Column::id("digest"),
            Column::text("bytes"),
            Column::text("registered"),
        ];
        out.table(&columns, &rows);
        Ok(Exit::Done)
    }
}

impl Inspect {
    async fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let bytes = if Path::new(&self.what).is_file() {
            std::fs::read(&self.what).with_context(|| format!("cannot read {}", self.what))?
        } else {
            registered(place, &self.what).await?
        };
        let sandbox = match place.root() {
            Ok(_) => place.sandbox()?,
            Err(_) => twice_sandbox::Sandbox::new(&twice_sandbox::SandboxConfig {
                compiler: compile_component::program(),
                ..twice_sandbox::SandboxConfig::default()
            })?,
        };
        let component = tokio::task::spawn_blocking(move || sandbox.load(&bytes)).await??;
        let found = component.inspection();
        if self.json {
            out.json(&document(&found));
        } else {
            show(out, &found);
        }
        Ok(Exit::Done)
    }
}

fn document(found: &Inspection) -> serde_json::Value {
    let wasi: serde_json::Map<_, _> =
        found.wasi.iter().map(|wasi| (wasi.name.clone(), wasi.gets.into())).collect();
    serde_json::json!({
        "digest": found.digest,
        "bytes": found.bytes,
        "world": found.world,
        "imports": found.imports,
        "typed": found.typed.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "wasi": wasi,
        "exports": found.exports,
        "limits": limits_document(),
        "compiled_ms": found.compiled_in.map(|time| time.as_millis() as u64),
    })
}

/// What a workflow sets for a node: the name, the default, and what it is of.
fn node_limits() -> [(&'static str, u64, &'static str); 4] {
    [
        ("memory", LIMITS.memory_bytes, "bytes of memory"),
        ("time", LIMITS.time_ms, "milliseconds from start to return, waiting included"),
        ("effects", LIMITS.effects.into(), "requests for effects of one call"),
        ("log", LIMITS.log_bytes, "bytes of log of one call"),
    ]
}

fn limits_document() -> serde_json::Value {
    let node: Vec<_> = node_limits()
        .into_iter()
        .map(|(name, default, unit)| {
            serde_json::json!({
                "name": name, "default": default, "unit": unit, "set_by": format!("limits.{name}"),
            })
        })
        .collect();
    let fixed: Vec<_> = FIXED_LIMITS
        .iter()
        .map(|limit| {
            serde_json::json!({
                "name": limit.name, "value": limit.value, "unit": limit.unit, "reached": limit.reached,
            })
        })
        .collect();
    serde_json::json!({ "node": node, "fixed": fixed })
}

fn show_limits(out: &Out) {
    out.line("limits   (set for the node in a workflow; these are the defaults)");
    for (name, default, unit) in node_limits() {
        out.line(&format!("  limits.{name}: {default} {unit}"));
    }
    out.line("limits   (the same for every node)");
    for limit in FIXED_LIMITS {
        out.line(&format!("  {}: {} {}; {}", limit.name, limit.value, limit.unit, limit.reached));
    }
}

fn show(out: &Out, found: &Inspection) {
    let compiled = found.compiled_in.map_or_else(
        || "taken from the cache".to_owned(),
        |time| format!("compiled in {} ms", time.as_millis()),
    );
    out.line(&format!("digest   {}", found.digest));
    out.line(&format!("bytes    {}", found.bytes));
    out.line(&format!("code     {compiled}"));
    out.line(&format!("world    {}", found.world));
    out.line("imports  (all it can ever ask for)");
    for import in &found.imports {
        out.line(&format!("  {import}"));
    }
    if !found.typed.is_empty() {
        out.line("typed    (functions of tools, each to be granted as a slot)");
    }
    for import in &found.typed {
        out.line(&format!("  {import}"));
    }
    if !found.wasi.is_empty() {
        out.line("wasi     (what its language's runtime insists on, and what it gets: nothing of this machine)");
    }
    for wasi in &found.wasi {
        out.line(&format!("  {}: {}", wasi.name, wasi.gets));
    }
    out.line("exports");
    for export in &found.exports {
        out.line(&format!("  {export}"));
    }
    show_limits(out);
}

async fn registered(place: &Place, name: &str) -> anyhow::Result<Vec<u8>> {
    let missing = || {
        format!(
            "{name} is neither a file nor a registered component\nfix: `twice node list` shows what is registered"
        )
    };
    let name = Name::parse(name.to_owned()).with_context(missing)?;
    let ledger = place.ledger().await?;
    let module = ledger.module(&name).await?.with_context(missing)?;
    ledger.module_bytes(&module.digest).await?.with_context(missing)
}
