//! `twice init`

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use twice_core::ids::Name;

use super::exit::Exit;
use super::given;
use super::out::Out;

/// The files of a new project. All but the workflow are those of the example project.
const FILES: [(&str, &str); 6] = [
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
    (
        "input.json",
        "{\n  \"order_id\": \"order-42\",\n  \"amount_cents\": 1200,\n  \"paid_cents\": 5000,\n  \"customer_email\": \"ada@example.com\"\n}\n",
    ),
];

/// What is made in a project and belongs to nobody else: the ledger, the simulated provider's database, what is compiled.
const IGNORED: [&str; 4] = ["twice.db*", "provider.db*", ".twice/", "target/"];
/// Longest name that is made of a folder's.
const NAME_CHARS: usize = 40;

/// Make a new project in this folder.
#[derive(Debug, Args)]
pub(super) struct Init {
    /// The project's name (default: the folder's)
    #[arg(long, value_parser = given::name)]
    name: Option<Name>,
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
        let ignored = create(&self.dir, &name)?;
        out.line(&format!("made project `{name}` in {}", self.dir.display()));
        if !ignored.is_empty() {
            out.line(&format!("added to the .gitignore that was there: {}", ignored.join(" ")));
        }
        out.line("next:");
        out.line("  twice node new refund          writes nodes/refund for the slots that the workflow grants it");
        out.line("  twice node build nodes/refund  builds and registers it");
        out.line("  twice check                    checks everything and says what each operation promises");
        Ok(Exit::Done)
    }
}

/// Makes a project: all of it, or nothing. A file that is there already stays as it is if it is the same; a `.gitignore` gets
/// what it lacks, which is handed back.
///
/// # Errors
/// When the folder holds a project already or other files in the way, or cannot be written.
pub(super) fn create(dir: &Path, name: &Name) -> anyhow::Result<Vec<&'static str>> {
    if dir.join("twice.toml").exists() {
        bail!("{} holds a twice.toml already\nfix: choose another folder", dir.display());
    }
    let mut missing = Vec::new();
    let mut in_the_way = Vec::new();
    for (path, text) in FILES {
        match std::fs::read(dir.join(path)) {
            Ok(found) if found == text.as_bytes() => {}
            Ok(_) => in_the_way.push(path),
            Err(error) if error.kind() == ErrorKind::NotFound => missing.push((path, text)),
            // A folder of that name, or a file where its folder should be.
            Err(_) => in_the_way.push(path),
        }
    }
    if !in_the_way.is_empty() {
        bail!(
            "{} holds other files of these names already; nothing was written: {}\nfix: move them away, or make the project in another folder, as in `twice init shop`",
            dir.display(),
            in_the_way.join(", ")
        );
    }
    let ignored = Ignored::read(&dir.join(".gitignore"))?;
    let project = format!("project = \"{name}\"\n");
    // What makes the folder a project comes last.
    missing.push(("twice.toml", &project));
    let mut written = Vec::new();
    let done = missing.iter().try_for_each(|(path, text)| {
        let path = dir.join(path);
        write_new(&path, text)?;
        written.push(path);
        Ok(())
    });
    if let Err(error) = done.and_then(|()| ignored.complete()) {
        // Whatever stands in the way of that as well is worth less than the reason.
        written.iter().for_each(|path| drop(std::fs::remove_file(path)));
        return Err(error);
    }
    Ok(if ignored.found.is_empty() { Vec::new() } else { ignored.missing })
}

/// What git is told not to take.
struct Ignored {
    path: PathBuf,
    found: String,
    missing: Vec<&'static str>,
}

impl Ignored {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let found = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => {
                let what = format!("cannot read {}; nothing was written", path.display());
                return Err(anyhow::Error::new(error).context(what));
            }
        };
        let has = |line: &str| found.lines().any(|known| known.trim() == line);
        let missing = IGNORED.into_iter().filter(|line| !has(line)).collect();
        Ok(Self { path: path.to_owned(), found, missing })
    }

    fn complete(&self) -> anyhow::Result<()> {
        if self.missing.is_empty() {
            return Ok(());
        }
        let mut text = self.missing.join("\n") + "\n";
        if !self.found.is_empty() && !self.found.ends_with('\n') {
            text.insert(0, '\n');
        }
        let file = OpenOptions::new().append(true).create(true).open(&self.path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// Writes a file that is not there yet: the whole of it, or none.
pub(super) fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)
            .with_context(|| format!("cannot make the folder {}", parent.display()))?;
    }
    let mut file =
        OpenOptions::new().write(true).create_new(true).open(path).with_context(|| {
            format!("cannot write {} (it is never overwritten)", path.display())
        })?;
    file.write_all(text.as_bytes()).with_context(|| {
        // Half a file would be in the way of the next try.
        drop(std::fs::remove_file(path));
        format!("cannot write {}", path.display())
    })
}

fn folder_name(dir: &Path) -> anyhow::Result<Name> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let full = dir.canonicalize().with_context(|| format!("cannot find {}", dir.display()))?;
    let text = full.file_name().map(|name| name.to_string_lossy().into_owned());
    Ok(Name::parse(name_of(&text.unwrap_or_default()))?)
}

/// The name that comes nearest to a text: letters without their accents, one `-` for whatever else stands between them.
fn name_of(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars().flat_map(char::to_lowercase) {
        match plain(c) {
            Some(letters) => name.push_str(letters),
            None if c.is_ascii_lowercase() || c.is_ascii_digit() => name.push(c),
            // An accent that follows its letter.
            None if ('\u{300}'..='\u{36f}').contains(&c) => {}
            None if name.is_empty() || name.ends_with('-') => {}
            None => name.push('-'),
        }
    }
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        name.insert_str(0, "project-");
    }
    name.truncate(NAME_CHARS);
    name.trim_end_matches('-').to_owned()
}

/// A Latin letter without what is added to it.
const fn plain(c: char) -> Option<&'static str> {
    Some(match c {
        'à'..='å' | 'ā' | 'ă' | 'ą' => "a",
        'æ' => "ae",
        'ç' | 'ć' | 'č' => "c",
        'ď' | 'đ' | 'ð' => "d",
        'è'..='ë' | 'ē' | 'ė' | 'ę' | 'ě' => "e",
        'ğ' => "g",
        'ì'..='ï' | 'ī' | 'į' | 'ı' => "i",
        'ł' => "l",
        'ñ' | 'ń' | 'ň' => "n",
        'ò'..='ö' | 'ø' | 'ō' | 'ő' => "o",
        'œ' => "oe",
        'ř' => "r",
        'ś' | 'š' | 'ş' | 'ș' => "s",
        'ß' => "ss",
        'ť' | 'ț' => "t",
        'ù'..='ü' | 'ū' | 'ů' | 'ű' | 'ų' => "u",
        'ý' | 'ÿ' => "y",
        'ź' | 'ż' | 'ž' => "z",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_of_any_text() {
        for (text, name) in [
            ("shop", "shop"),
            ("My Shop", "my-shop"),
            ("my shöp ünï", "my-shop-uni"),
            ("u\u{308}ni", "uni"),
            ("  --Straße 7--  ", "strasse-7"),
            ("7 shops", "project-7-shops"),
            ("店", "project"),
            ("", "project"),
        ] {
            assert_eq!(name_of(text), name, "{text}");
        }
        Name::parse(name_of(&"shop ".repeat(100))).unwrap();
    }
}
