//! `twice init`

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;

use super::exit::Exit;
use super::out::Out;

/// The files of a new project. All but the workflow are those of the example project.
const FILES: [(&str, &str); 8] = [
    ("workflows/damaged-item-refund.toml", include_str!("template/workflow.toml")),
    ("tools/payments.toml", include_str!("../../../nodes/example-project/tools/payments.toml")),
    (
        "schemas/refund-request.json",
        include_str!("../../../nodes/example-project/schemas/refund-request.json"),
    ),
    (
        "schemas/refund-args.json",
        include_str!("../../../nodes/example-project/schemas/refund-args.json"),
    ),
    ("schemas/refund.json", include_str!("../../../nodes/example-project/schemas/refund.json")),
    ("nodes/Cargo.toml", include_str!("template/nodes.toml")),
    (".gitignore", "twice.db*\n.twice/\ntarget/\n"),
    (
        "input.json",
        "{\n  \"order_id\": \"order-42\",\n  \"amount_cents\": 1200,\n  \"paid_cents\": 5000,\n  \"customer_email\": \"ada@example.com\"\n}\n",
    ),
];

/// Make a new project in this folder.
#[derive(Debug, Args)]
pub(super) struct Init {
    /// The project's name (default: the folder's)
    #[arg(long)]
    name: Option<String>,
    /// The folder (default: this one); made when missing
    #[arg(default_value = ".")]
    dir: PathBuf,
}

impl Init {
    pub(super) fn run(&self, out: &Out) -> anyhow::Result<Exit> {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => folder_name(&self.dir)?,
        };
        create(&self.dir, &name)?;
        out.line(&format!("made project `{name}` in {}", self.dir.display()));
        out.line("next:");
        out.line("  twice node new refund          writes nodes/refund for the slots that the workflow grants it");
        out.line("  twice node build nodes/refund  builds and registers it");
        out.line("  twice check                    checks everything and says what each operation promises");
        Ok(Exit::Done)
    }
}

/// Makes a project.
///
/// # Errors
/// When the folder holds a project already, or cannot be written; no file that exists is changed.
pub(super) fn create(dir: &Path, name: &str) -> anyhow::Result<()> {
    if dir.join("twice.toml").exists() {
        bail!("{} holds a twice.toml already\nfix: choose another folder", dir.display());
    }
    for (path, text) in FILES {
        write_new(&dir.join(path), text)?;
    }
    write_new(&dir.join("twice.toml"), &format!("project = \"{name}\"\n"))
}

/// Writes a file that is not there yet.
pub(super) fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)
            .with_context(|| format!("cannot make the folder {}", parent.display()))?;
    }
    let mut file =
        OpenOptions::new().write(true).create_new(true).open(path).with_context(|| {
            format!("cannot write {} (it is never overwritten)", path.display())
        })?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

fn folder_name(dir: &Path) -> anyhow::Result<String> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let full = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
    let text = full.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase());
    let name: String = text
        .unwrap_or_default()
        .chars()
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' })
        .collect();
    let name = name.trim_matches('-').to_owned();
    Ok(if name.starts_with(|c: char| c.is_ascii_lowercase()) {
        name
    } else {
        format!("project-{name}")
    })
}
