//! Where a command's words go: results to standard output, warnings and errors to standard error. A reader that has seen
//! enough (a closed pipe) is no failure.

use std::error::Error;
use std::io::{self, Write as _};
use std::sync::{Arc, PoisonError, RwLock};

use serde::Serialize;
use twice_core::redact::Redactor;

use super::exit::Exit;
use super::term::{Column, Progress, Term, Tone, print_json, visible};

/// What is known to be secret in this process. Everything said goes through it (I10).
pub(super) type Secrets = Arc<RwLock<Redactor>>;

/// Both streams, and what they can take.
#[derive(Debug, Clone)]
pub(super) struct Out {
    stdout: Term,
    stderr: Term,
    secrets: Secrets,
    json: bool,
}

impl Out {
    /// The streams of this process. `json`: what is on standard output is one JSON document, also when the command cannot do
    /// what it should.
    pub(super) fn detect(secrets: Secrets, json: bool) -> Self {
        Self { stdout: Term::stdout(), stderr: Term::stderr(), secrets, json }
    }

    fn print(&self, text: &str) {
        // A reader that is gone has had what it wanted.
        let _ = io::stdout().lock().write_all(self.clean(text).as_bytes());
    }

    fn clean(&self, text: &str) -> String {
        self.secrets.read().unwrap_or_else(PoisonError::into_inner).text(text)
    }

    /// A line of the result (or several, as the text has).
    pub(super) fn line(&self, text: &str) {
        let lines: Vec<String> = text.lines().map(visible).collect();
        self.print(&format!("{}\n", lines.join("\n")));
    }

    /// A line with a status word in it.
    pub(super) fn status_line(&self, before: &str, word: &str, after: &str) {
        self.print(&format!("{}{}{}\n", visible(before), self.stdout.status(word), visible(after)));
    }

    /// A line of parts, each in its tone.
    pub(super) fn toned_line(&self, parts: &[(Tone, String)]) {
        let parts: String =
            parts.iter().map(|(tone, text)| self.stdout.toned(*tone, text)).collect();
        self.print(&format!("{parts}\n"));
    }

    /// The heading of a part of the result.
    pub(super) fn title(&self, text: &str) {
        self.print(&format!("\n{}\n", self.stdout.heading(text)));
    }

    /// How wide a line is, if a person is looking at it. Columns.
    pub(super) fn width(&self) -> Option<usize> {
        self.stdout.interactive.then_some(self.stdout.width)
    }

    /// Names and values, a line each; what has several lines stands below its name.
    pub(super) fn fields(&self, fields: &[(&str, String)]) {
        self.print(&self.stdout.fields(fields));
    }

    /// A table.
    pub(super) fn table(&self, columns: &[Column], rows: &[Vec<String>]) {
        self.print(&self.stdout.table(columns, rows));
    }

    /// One JSON document, which is then the whole result.
    pub(super) fn json(&self, document: &impl Serialize) {
        let mut value =
            serde_json::to_value(document).expect("what is shown is plain data with text keys");
        let secrets = self.secrets.read().unwrap_or_else(PoisonError::into_inner);
        // A reader that is gone has had what it wanted.
        let _ = if secrets.finds_in(&value) {
            secrets.value(&mut value);
            print_json(&value)
        } else {
            // As it is, so that its members keep their order.
            print_json(document)
        };
    }

    /// One JSON document on a line of its own, one of several that are the result.
    pub(super) fn json_line(&self, document: &serde_json::Value) {
        let mut document = document.clone();
        self.secrets.read().unwrap_or_else(PoisonError::into_inner).value(&mut document);
        // A reader that is gone has had what it wanted.
        let _ = writeln!(io::stdout().lock(), "{document}");
    }

    /// Something that the user should know and that stops nothing.
    pub(super) fn warn(&self, text: &str) {
        let lines: Vec<String> = text.lines().map(visible).collect();
        let _ = writeln!(io::stderr().lock(), "{}", self.clean(&lines.join("\n")));
    }

    /// Why the command could not do it, in words; and as a document, for whoever waits for one. A text may carry its remedy
    /// after a line break and `fix: `.
    pub(super) fn error(&self, error: &anyhow::Error) {
        self.error_with(Exit::Error, error);
    }

    /// The same, of a command that ends with that code.
    pub(super) fn error_with(&self, exit: Exit, error: &anyhow::Error) {
        let text = self.clean(&error.to_string());
        let (what, fix) = match text.rsplit_once("\nfix: ") {
            Some((what, fix)) => (what.to_owned(), Some(fix)),
            None => (text.clone(), None),
        };
        let said = Said { what, cause: self.cause(error.source()) };
        self.stderr.print_error(&said, fix);
        if self.json {
            let causes: Vec<String> =
                error.chain().skip(1).map(|cause| self.clean(&cause.to_string())).collect();
            let code = exit.code();
            self.json(&serde_json::json!({
                "error": { "code": code, "message": said.what, "causes": causes, "fix": fix },
            }));
        }
    }

    fn cause(&self, source: Option<&(dyn Error + 'static)>) -> Option<Box<Said>> {
        let source = source?;
        let what = self.clean(&source.to_string());
        Some(Box::new(Said { what, cause: self.cause(source.source()) }))
    }

    /// A reporter for work that takes a while.
    pub(super) fn progress(&self, what: &str, steps: Option<u64>) -> Progress {
        self.stderr.progress(what, steps)
    }
}

/// Standard error for log lines, kept clean of secrets like everything else.
pub(super) struct CleanLog(pub(super) Secrets);

impl io::Write for CleanLog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let secrets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let text = secrets.text(&String::from_utf8_lossy(line));
        io::stderr().lock().write_all(text.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}

/// An error as it is said: without secrets, and without its remedy, which has a line of its own.
#[derive(Debug)]
struct Said {
    what: String,
    cause: Option<Box<Said>>,
}

impl std::fmt::Display for Said {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for Said {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.cause.as_deref()?)
    }
}
