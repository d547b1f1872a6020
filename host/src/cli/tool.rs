//! `twice tool`

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use twice_core::ids::Name;
use twice_core::wit::InterfaceName;
use twice_sandbox::NODE_WIT;
use twice_workflow::typed;

use super::exit::Exit;
use super::given;
use super::open::Place;
use super::out::Out;

/// Write what authors of nodes build against.
#[derive(Debug, Subcommand)]
pub(super) enum Tool {
    /// Write the WIT of a tool: its operations as typed functions
    Wit(Wit),
}

/// Write the WIT of a tool: its operations as typed functions.
#[derive(Debug, Args)]
pub(super) struct Wit {
    /// The tool
    #[arg(value_parser = given::name)]
    tool: Name,
    /// Give the function of this operation the parameter `item`, for a slot with `for_each` (may be repeated)
    #[arg(long, value_name = "OPERATION", value_parser = given::name)]
    each: Vec<Name>,
    /// Write another interface than the tool's own, for a slot with `import`
    #[arg(long, value_name = "INTERFACE", value_parser = interface)]
    interface: Option<InterfaceName>,
    /// Write it into this `wit` folder of a node, with a world that imports it if there is none yet, instead of printing it
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

fn interface(text: &str) -> Result<InterfaceName, String> {
    InterfaceName::parse(text).ok_or_else(|| format!("write {}", InterfaceName::FORM))
}

impl Tool {
    pub(super) fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        match self {
            Self::Wit(wit) => wit.run(out, place),
        }
    }
}

impl Wit {
    fn run(&self, out: &Out, place: &Place) -> anyhow::Result<Exit> {
        let project = place.project(out)?;
        let name = &self.tool;
        let Some(tool) = project.tools.get(name) else {
            let known: Vec<&str> = project.tools.keys().map(Name::as_str).collect();
            bail!("there is no tool `{name}`\nfix: the project has: {}", known.join(", "));
        };
        for operation in &self.each {
            if !tool.operations.contains_key(operation) {
                let known: Vec<&str> = tool.operations.keys().map(Name::as_str).collect();
                bail!(
                    "the tool `{name}` has no operation `{operation}`\nfix: it has: {}",
                    known.join(", ")
                );
            }
        }
        let interface = match &self.interface {
            Some(interface) => interface.clone(),
            None => typed::interface(tool).with_context(|| {
                format!("the name `{name}` is not one of WIT\nfix: state `wit = \"…\"` in the tool's file: {}", InterfaceName::FORM)
            })?,
        };
        let each: BTreeSet<Name> = self.each.iter().cloned().collect();
        let written = typed::write(tool, &interface, &each);
        for (operation, why) in &written.left_out {
            out.warn(&format!("warning: the operation `{operation}` has no function: {why}"));
        }
        match &self.out {
            None => out.line(written.text.trim_end()),
            Some(dir) => write_folder(out, dir, &interface, &written.text)?,
        }
        Ok(Exit::Done)
    }
}

/// Writes the interface where the tools of all languages look for it.
fn write_folder(
    out: &Out,
    dir: &Path,
    interface: &InterfaceName,
    text: &str,
) -> anyhow::Result<()> {
    let package = format!("{}-{}", interface.namespace, interface.package);
    write(out, &dir.join("deps/twice-node/node.wit"), NODE_WIT)?;
    write(out, &dir.join("deps").join(package).join(format!("{}.wit", interface.interface)), text)?;
    let own = own_texts(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    if !own.is_empty() {
        let line = format!("import {interface};");
        if !own.iter().flat_map(|text| text.lines()).any(|found| found.trim() == line) {
            out.line(&format!("its world needs the line `{line}`"));
        }
        return Ok(());
    }
    let world = format!(
        "package local:typed;\n\n/// A node, with the tools that it asks by function.\nworld typed {{\n    include twice:node/node@0.1.0;\n    import {interface};\n}}\n"
    );
    write(out, &dir.join("world.wit"), &world)
}

/// The files of the folder's own package.
fn own_texts(dir: &Path) -> io::Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "wit") {
            texts.push(fs::read_to_string(path)?);
        }
    }
    Ok(texts)
}

fn write(out: &Out, path: &Path, text: &str) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", path.display());
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(failed)?;
    }
    fs::write(path, text).with_context(failed)?;
    out.line(&format!("wrote {}", path.display()));
    Ok(())
}
