//! The programs of a Postgres installation, run as a user that they accept.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

/// Where distributions put them when they are not on the PATH.
const FOLDERS: [&str; 3] = ["/usr/lib/postgresql", "/opt/homebrew/opt", "/usr/local/opt"];
const HELP: &str = "tests need the tools of PostgreSQL 15 or newer: initdb, pg_ctl, postgres, psql\nfix: install them \
     (Debian: apt-get install postgresql-15)";

/// Whether tests that need a server leave it out, as the tools are not here; says so, past the capture of test output. In CI
/// (the variable `CI` is set) nothing is left out: there a test without its server fails.
#[must_use]
pub fn is_missing() -> bool {
    static MISSING: LazyLock<bool> = LazyLock::new(|| {
        let missing = std::env::var_os("CI").is_none() && !bins().iter().any(|bin| is_new(bin));
        if missing {
            let _ = writeln!(std::io::stderr(), "\nNOT TESTED on Postgres: {HELP}\n");
        }
        missing
    });
    *MISSING
}

pub(crate) struct Tools {
    bin: PathBuf,
    /// Whom to become first; these programs refuse to run as root.
    user: Option<String>,
}

impl Tools {
    pub(crate) fn find() -> Self {
        let Some(bin) = bins().into_iter().find(|bin| is_new(bin)) else { panic!("{HELP}") };
        let root = output(Command::new("id").arg("-u")).is_ok_and(|uid| uid.trim() == "0");
        let exists = |user: &&str| output(Command::new("id").args(["-u", user])).is_ok();
        let user = root.then(|| {
            let user = ["postgres", "nobody"].into_iter().find(exists);
            user.expect("PostgreSQL refuses to run as root, and there is no other user").to_owned()
        });
        Self { bin, user }
    }

    /// A folder that the programs may write to. Whoever watches over the server removes it.
    pub(crate) fn folder(&self) -> PathBuf {
        let folder = tempfile::Builder::new().prefix("twice-postgres-").tempdir();
        let folder = folder.expect("a temporary folder can be made").keep();
        if let Some(user) = &self.user {
            run(Command::new("chown").arg(user).arg(&folder));
        }
        folder
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        let own = self.bin.join(name);
        if own.is_file() { own } else { PathBuf::from(name) }
    }

    /// A program, ready for its arguments.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let program = self.program(&program.as_ref().to_string_lossy());
        let mut command = match &self.user {
            Some(user) => {
                let group =
                    output(Command::new("id").args(["-g", user])).expect("a user has a group");
                let mut become_other = Command::new("setpriv");
                become_other.args([
                    &format!("--reuid={user}"),
                    &format!("--regid={}", group.trim()),
                    "--clear-groups",
                    "--",
                ]);
                become_other.arg(program);
                become_other
            }
            None => Command::new(program),
        };
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        command.current_dir("/");
        command
    }
}

/// Folders that may hold the programs, the likeliest first.
fn bins() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut bins: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let mut versions: Vec<PathBuf> = FOLDERS
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .collect();
    versions.sort();
    bins.extend(versions.into_iter().rev());
    bins.retain(|bin| bin.join("initdb").is_file() && bin.join("pg_ctl").is_file());
    bins
}

/// Whether it says `initdb (PostgreSQL) 15.6` or more.
fn is_new(bin: &Path) -> bool {
    let said = output(Command::new(bin.join("initdb")).arg("--version")).unwrap_or_default();
    let version =
        said.split_whitespace().nth(2).and_then(|text| text.split('.').next()?.parse().ok());
    version.is_some_and(|major: u32| major >= 15)
}

/// Runs a command that is to succeed.
pub(crate) fn run(command: &mut Command) {
    if let Err(problem) = output(command) {
        panic!("{command:?}: {problem}\n{HELP}");
    }
}

/// What a command prints; what it complains about when it fails.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|problem| problem.to_string())?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}
