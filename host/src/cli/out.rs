//! Where a command's words go: results to standard output, warnings and errors to standard error. A reader that has seen
//! enough (a closed pipe) is no failure.

use std::error::Error;
use std::io::{self, Write as _};

use serde::Serialize;

use super::term::{Column, Progress, Term, print_json, visible};

/// Both streams, and what they can take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Out {
    stdout: Term,
    stderr: Term,
}

impl Out {
    /// The streams of this process.
    pub(super) fn detect() -> Self {
        Self { stdout: Term::stdout(), stderr: Term::stderr() }
    }

    /// A line of the result (or several, as the text has).
    pub(super) fn line(&self, text: &str) {
        let lines: Vec<String> = text.lines().map(visible).collect();
        print(&format!("{}\n", lines.join("\n")));
    }

    /// A line with a status word in it.
    pub(super) fn status_line(&self, before: &str, word: &str, after: &str) {
        print(&format!("{}{}{}\n", visible(before), self.stdout.status(word), visible(after)));
    }

    /// The heading of a part of the result.
    pub(super) fn title(&self, text: &str) {
        print(&format!("\n{}\n", self.stdout.heading(text)));
    }

    /// Names and values, a line each.
    pub(super) fn fields(&self, fields: &[(&str, String)]) {
        print(&self.stdout.fields(fields));
    }

    /// A table.
    pub(super) fn table(&self, columns: &[Column], rows: &[Vec<String>]) {
        print(&self.stdout.table(columns, rows));
    }

    /// One JSON document, which is then the whole result.
    pub(super) fn json(&self, document: &impl Serialize) {
        // A reader that is gone has had what it wanted.
        let _ = print_json(document);
    }

    /// Something that the user should know and that stops nothing.
    pub(super) fn warn(&self, text: &str) {
        let lines: Vec<String> = text.lines().map(visible).collect();
        let _ = writeln!(io::stderr().lock(), "{}", lines.join("\n"));
    }

    /// Why the command could not do it. A text may carry its remedy after a line break and `fix: `.
    pub(super) fn error(&self, error: &anyhow::Error) {
        let text = error.to_string();
        let (what, fix) = match text.rsplit_once("\nfix: ") {
            Some((what, fix)) => (what.to_owned(), Some(fix)),
            None => (text.clone(), None),
        };
        let said = Said { what, cause: error.source() };
        self.stderr.print_error(&said, fix);
    }

    /// A reporter for work that takes a while.
    pub(super) fn progress(&self, what: &str, steps: Option<u64>) -> Progress {
        self.stderr.progress(what, steps)
    }
}

fn print(text: &str) {
    // A reader that is gone has had what it wanted.
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

/// An error whose remedy was taken out of its text.
#[derive(Debug)]
struct Said<'a> {
    what: String,
    cause: Option<&'a (dyn Error + 'static)>,
}

impl std::fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for Said<'_> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause
    }
}
