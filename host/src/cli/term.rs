//! What all commands say things with: tables, status words, JSON, progress and errors. What the output can take is
//! found out once; nothing else in the command line asks the environment about it.
//!
//! Text that comes from guests, providers or people is shown, never obeyed: control characters in it are made visible,
//! so that no escape sequence reaches a terminal.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use comfy_table::{ColumnConstraint, ContentArrangement, Table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

/// Width of lines when the output does not tell its own. Columns.
const WIDTH_DEFAULT: usize = 100;
/// Narrowest and widest output that tables are laid out for. Columns.
const WIDTH_RANGE: std::ops::RangeInclusive<usize> = 40..=1_000;
/// How often a spinner turns.
const TICK: Duration = Duration::from_millis(120);
/// Most causes of an error that are printed; a longer chain is a loop.
const CAUSES_MAX: usize = 20;

/// What an output stream can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    /// Whether colours and other styles are used.
    pub color: bool,
    /// Whether a person is looking at it, who sees lines being redrawn.
    pub interactive: bool,
    /// Length of a line. Columns.
    pub width: usize,
}

/// How a word is meant, and thus coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// It is done as wished: green.
    Good,
    /// It needs attention, or cannot be told: yellow.
    Doubt,
    /// It went wrong: red.
    Bad,
    /// It is under way: cyan.
    Moving,
    /// It says little: dimmed.
    Quiet,
    /// No style.
    Plain,
}

impl Tone {
    /// The tone of a status word: of an effect, a run, an approval or a check. Other words are plain.
    #[must_use]
    pub fn of(word: &str) -> Self {
        match word.to_ascii_uppercase().as_str() {
            "CONFIRMED" | "COMPLETED" | "GRANTED" | "PASS" | "PASSED" | "OK" | "HELD"
            | "VERIFIED" | "DELIVERED" => Self::Good,
            "UNKNOWN" | "HALTED" | "CONFLICT" | "STUCK" | "DIVERGED" | "WARNING" | "EXPIRED" => {
                Self::Doubt
            }
            "FAILED" | "FAIL" | "QUARANTINED" | "REFUSED" | "DENIED" | "ERROR" | "VIOLATED"
            | "BROKEN" => Self::Bad,
            "AUTHORIZED" | "REQUESTED" | "RUNNING" | "READY" | "COMPENSATING" => Self::Moving,
            "PROPOSED" | "WAITING" | "PENDING" | "SKIPPED" | "CANCELLED" | "REPLAYED" => {
                Self::Quiet
            }
            _ => Self::Plain,
        }
    }

    const fn style(self) -> Style {
        match self {
            Self::Good => AnsiColor::Green.on_default(),
            Self::Doubt => AnsiColor::Yellow.on_default().bold(),
            Self::Bad => AnsiColor::Red.on_default().bold(),
            Self::Moving => AnsiColor::Cyan.on_default(),
            Self::Quiet => Style::new().dimmed(),
            Self::Plain => Style::new(),
        }
    }
}

/// What is asked of the environment.
struct Environment<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
    is_terminal: bool,
    /// What the terminal itself says. Columns.
    terminal_width: Option<usize>,
}

impl Term {
    /// What standard output can take. Asks the environment; call it once.
    #[must_use]
    pub fn stdout() -> Self {
        Self::ask(io::stdout().is_terminal(), &console::Term::stdout())
    }

    /// What standard error can take. Asks the environment; call it once.
    #[must_use]
    pub fn stderr() -> Self {
        Self::ask(io::stderr().is_terminal(), &console::Term::stderr())
    }

    fn ask(is_terminal: bool, terminal: &console::Term) -> Self {
        Self::of(&Environment {
            variable: &|name| std::env::var(name).ok(),
            is_terminal,
            terminal_width: terminal.size_checked().map(|(_, columns)| usize::from(columns)),
        })
    }

    /// Plain text: no colour, nothing redrawn.
    #[must_use]
    pub const fn plain() -> Self {
        Self { color: false, interactive: false, width: WIDTH_DEFAULT }
    }

    fn of(environment: &Environment<'_>) -> Self {
        let set = |name: &str| (environment.variable)(name).filter(|value| !value.is_empty());
        let dumb = set("TERM").is_some_and(|term| term == "dumb");
        // NO_COLOR is a person's wish about all programs, and outranks what a script forces.
        let color = if set("NO_COLOR").is_some() {
            false
        } else if set("CLICOLOR_FORCE").is_some_and(|value| value != "0") {
            true
        } else {
            environment.is_terminal && !dumb && set("CLICOLOR").is_none_or(|value| value != "0")
        };
        let columns = set("COLUMNS").and_then(|columns| columns.parse().ok());
        let width = environment
            .terminal_width
            .filter(|_| environment.is_terminal)
            .or(columns)
            .unwrap_or(WIDTH_DEFAULT)
            .clamp(*WIDTH_RANGE.start(), *WIDTH_RANGE.end());
        Self { color, interactive: environment.is_terminal && !dumb, width }
    }

    /// A word in its tone.
    #[must_use]
    pub fn toned(&self, tone: Tone, text: &str) -> String {
        let text = visible(text);
        if !self.color || tone == Tone::Plain {
            return text;
        }
        let style = tone.style();
        format!("{style}{text}{style:#}")
    }

    /// A status word in the tone that belongs to it.
    #[must_use]
    pub fn status(&self, word: &str) -> String {
        self.toned(Tone::of(word), word)
    }

    /// A heading.
    #[must_use]
    pub fn heading(&self, text: &str) -> String {
        let text = visible(text);
        if !self.color {
            return text;
        }
        let style = Style::new().bold();
        format!("{style}{text}{style:#}")
    }

    /// A table: columns aligned and, for a person, wrapped to the width; off a terminal each row is one line, whatever
    /// its length. Ends with a line break; without rows it says so.
    #[must_use]
    pub fn table(&self, columns: &[Column], rows: &[Vec<String>]) -> String {
        if rows.is_empty() {
            return "(none)\n".to_owned();
        }
        let mut table = Table::new();
        // Two spaces between columns and nothing else: what `cut`, `awk` and people read equally well.
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header(columns.iter().map(|column| column.title));
        for row in rows {
            table.add_row(row.iter().zip(columns).map(|(text, column)| {
                let text = visible(text);
                match column.kind {
                    Kind::Status => Marks::around(Tone::of(&text), &text),
                    Kind::Text | Kind::Id => text,
                }
            }));
        }
        if self.interactive {
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(u16::try_from(self.width).unwrap_or(u16::MAX));
        } else {
            table.set_content_arrangement(ContentArrangement::Disabled);
        }
        for (index, column) in columns.iter().enumerate() {
            if let Some(laid_out) = table.column_mut(index) {
                laid_out.set_padding((0, 2));
                if column.kind != Kind::Text {
                    // A status or an id that is broken over lines can be neither read nor copied.
                    laid_out.set_constraint(ColumnConstraint::ContentWidth);
                }
            }
        }
        let mut text = String::new();
        for (number, line) in table.lines().enumerate() {
            let line = line.trim_end();
            let line = if number == 0 { self.heading(line) } else { self.colour_marks(line) };
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    /// Names and values, one per line, values aligned. The further lines of a value stand indented below its name.
    #[must_use]
    pub fn fields(&self, fields: &[(&str, String)]) -> String {
        let widest = fields.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for (name, value) in fields {
            let padding = " ".repeat(widest - name.chars().count());
            let mut lines = value.lines();
            let value = lines.next().unwrap_or_default();
            let value = if *name == "state" || *name == "status" {
                self.status(value)
            } else {
                visible(value)
            };
            text.push_str(&self.toned(Tone::Quiet, name));
            text.push_str(&padding);
            text.push_str("  ");
            text.push_str(&value);
            text.push('\n');
            for line in lines {
                text.push_str("    ");
                text.push_str(&visible(line));
                text.push('\n');
            }
        }
        text
    }

    /// Replaces the marks left in a line of a table by styles, or by nothing.
    fn colour_marks(&self, line: &str) -> String {
        let mut text = String::with_capacity(line.len());
        let mut open = None;
        for c in line.chars() {
            match Marks::read(c) {
                Some(Mark::Start(tone)) => {
                    open = Some(tone);
                    if self.color {
                        let _ = write!(text, "{}", tone.style());
                    }
                }
                Some(Mark::End) => {
                    if let Some(tone) = open.take()
                        && self.color
                    {
                        let _ = write!(text, "{:#}", tone.style());
                    }
                }
                None => text.push(c),
            }
        }
        text
    }

    /// An error as people read it: what went wrong, its causes, and what to do.
    #[must_use]
    pub fn error(&self, error: &dyn Error, fix: Option<&str>) -> String {
        let mut text =
            format!("{} {}\n", self.toned(Tone::Bad, "error:"), indented(&error.to_string()));
        let mut said = error.to_string();
        let mut cause = error.source();
        for _ in 0..CAUSES_MAX {
            let Some(error) = cause else { break };
            let message = error.to_string();
            // Some libraries repeat their source in their own text; saying it once is enough.
            if !said.ends_with(&message) {
                let label = self.toned(Tone::Quiet, "caused by:");
                let _ = writeln!(text, "  {label} {}", indented(&message));
            }
            said = message;
            cause = error.source();
        }
        if let Some(fix) = fix {
            let _ = writeln!(text, "{} {}", self.toned(Tone::Good, "fix:"), indented(fix));
        }
        text
    }

    /// Prints an error to standard error. A standard error that is gone leaves nobody to tell.
    pub fn print_error(&self, error: &dyn Error, fix: Option<&str>) {
        let _ = io::stderr().lock().write_all(self.error(error, fix).as_bytes());
    }

    /// A reporter for work that takes a while: a bar on a terminal, a line per step elsewhere. It writes to standard
    /// error, so that standard output stays the result.
    #[must_use]
    pub fn progress(&self, what: &str, steps: Option<u64>) -> Progress {
        let what = visible(what);
        if !self.interactive {
            return Progress {
                what,
                steps,
                done: 0,
                display: Display::Lines(Box::new(io::stderr())),
            };
        }
        let bar = ProgressBar::with_draw_target(steps, ProgressDrawTarget::stderr());
        let template = match steps {
            Some(_) => "{prefix} [{bar:24}] {pos}/{len} {wide_msg}",
            None => "{spinner} {prefix} {pos} {wide_msg}",
        };
        bar.set_style(
            ProgressStyle::with_template(template)
                .expect("the template is a constant that a test draws")
                .progress_chars("=> "),
        );
        bar.set_prefix(what.clone());
        if steps.is_none() {
            // Nobody knows how long a step takes; what turns is not stuck.
            bar.enable_steady_tick(TICK);
        }
        Progress { what, steps, done: 0, display: Display::Bar(bar) }
    }
}

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    title: &'static str,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Id,
    Status,
}

impl Column {
    /// Free text, wrapped when the line is too narrow.
    #[must_use]
    pub const fn text(title: &'static str) -> Self {
        Self { title, kind: Kind::Text }
    }

    /// Something to be copied as a whole: never wrapped.
    #[must_use]
    pub const fn id(title: &'static str) -> Self {
        Self { title, kind: Kind::Id }
    }

    /// A status word: coloured, never wrapped.
    #[must_use]
    pub const fn status(title: &'static str) -> Self {
        Self { title, kind: Kind::Status }
    }
}

/// Characters that take no room in a table and mark where a style starts and ends. The table's layout counts every
/// character of an escape sequence as visible, so styles are put in after it. [`visible`] lets none of these through
/// from outside.
struct Marks;

enum Mark {
    Start(Tone),
    End,
}

impl Marks {
    const END: char = '\u{2060}';
    const STARTS: [(char, Tone); 5] = [
        ('\u{2061}', Tone::Good),
        ('\u{2062}', Tone::Doubt),
        ('\u{2063}', Tone::Bad),
        ('\u{2064}', Tone::Moving),
        ('\u{200b}', Tone::Quiet),
    ];

    fn around(tone: Tone, text: &str) -> String {
        match Self::STARTS.iter().find(|(_, start)| *start == tone) {
            Some((start, _)) => format!("{start}{text}{}", Self::END),
            None => text.to_owned(),
        }
    }

    fn read(c: char) -> Option<Mark> {
        if c == Self::END {
            return Some(Mark::End);
        }
        Self::STARTS.iter().find(|(start, _)| *start == c).map(|(_, tone)| Mark::Start(*tone))
    }
}

/// The first line of the text, made visible and cut to so many characters.
#[must_use]
pub fn shortened(text: &str, chars_max: usize) -> String {
    let line = visible(text.lines().next().unwrap_or_default());
    match line.char_indices().nth(chars_max.saturating_sub(1)) {
        Some((cut, _)) if line.chars().count() > chars_max => format!("{}…", &line[..cut]),
        Some(_) | None => line,
    }
}

/// The text with everything in it visible: line breaks and tabs become spaces, other control and invisible formatting
/// characters (escape sequences, reversed writing) their escaped form.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => shown.push(' '),
            c if c.is_control() || is_invisible(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

const fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A message of several lines, the later ones indented, each made visible.
fn indented(message: &str) -> String {
    let mut text = String::new();
    for (number, line) in message.lines().map(visible).enumerate() {
        if number > 0 {
            text.push('\n');
        }
        if number > 0 && !line.is_empty() {
            text.push_str("       ");
        }
        text.push_str(&line);
    }
    text
}

/// Writes one JSON document, indented, members in the order of their declaration, ended by a line break.
///
/// # Errors
/// The error of the writer; [`io::ErrorKind::BrokenPipe`] when the reader has seen enough, which is no failure.
pub fn write_json(out: &mut dyn Write, document: &impl Serialize) -> io::Result<()> {
    // As a whole, so that a document that cannot be formed leaves no half of it behind.
    let mut text = serde_json::to_string_pretty(document).map_err(io::Error::other)?;
    text.push('\n');
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Prints one JSON document to standard output; see [`write_json`].
///
/// # Errors
/// The error of standard output.
pub fn print_json(document: &impl Serialize) -> io::Result<()> {
    write_json(&mut io::stdout().lock(), document)
}

/// Reports the steps of a longer work.
pub struct Progress {
    what: String,
    steps: Option<u64>,
    done: u64,
    display: Display,
}

enum Display {
    Bar(ProgressBar),
    Lines(Box<dyn Write + Send>),
}

impl Progress {
    /// More steps came to light than were known.
    pub fn set_steps(&mut self, steps: u64) {
        self.steps = Some(steps);
        match &self.display {
            Display::Bar(bar) => bar.set_length(steps),
            Display::Lines(_) => {}
        }
    }

    /// One step is done; `message` says which, or with what outcome.
    pub fn step(&mut self, message: &str) {
        self.done += 1;
        let message = visible(message);
        match &mut self.display {
            Display::Bar(bar) => {
                bar.set_message(message);
                bar.inc(1);
            }
            Display::Lines(out) => {
                let of = self.steps.map(|steps| format!("/{steps}")).unwrap_or_default();
                // Progress that cannot be shown is no reason to stop the work.
                let _ = writeln!(out, "{} {}{of} {message}", self.what, self.done);
            }
        }
    }

    /// Says something beside the steps.
    pub fn note(&mut self, message: &str) {
        let message = visible(message);
        match &mut self.display {
            Display::Bar(bar) => bar.println(message),
            Display::Lines(out) => {
                let _ = writeln!(out, "{message}");
            }
        }
    }

    /// The work is over. A bar goes away; what there is to say is the command's result.
    pub fn finish(self) {
        match self.display {
            Display::Bar(bar) => bar.finish_and_clear(),
            Display::Lines(_) => {}
        }
    }
}

#[cfg(test)]
#[path = "term_tests.rs"]
mod tests;
