//! What is wrong with a file, in a form that a person can act on without reading this source.

use std::fmt;

/// Whether a project can be used despite a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// It cannot.
    Error,
    /// It can; something will not work as its author may expect.
    Warning,
}

impl Severity {
    /// The word used in messages and in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $severity:ident;)*) => {
        /// The stable code of a kind of finding. `TW20` is about files in general, `TW21` about workflows, `TW22` about
        /// tools.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code as text, e.g. `TW2001`.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $code,)*
                }
            }

            /// Whether a project can be used despite it.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self {
                    $(Self::$name => Severity::$severity,)*
                }
            }
        }
    };
}

codes! {
    /// The file is not TOML.
    Syntax = "TW2001", Error;
    /// A key that nothing reads.
    UnknownKey = "TW2002", Error;
    /// A key that must be stated is not.
    MissingKey = "TW2003", Error;
    /// A value of the wrong type.
    WrongType = "TW2004", Error;
    /// A value that is not one of those possible: a size, duration, name, URL, status, method.
    BadValue = "TW2005", Error;
    /// Something that this version does not know yet.
    NotYet = "TW2006", Error;
    /// A file that cannot be read.
    Unreadable = "TW2007", Error;
    /// The same name twice.
    Duplicate = "TW2008", Error;
    /// A JSON Schema that is none.
    Schema = "TW2009", Error;
    /// A JSON Pointer that is none.
    Pointer = "TW2010", Error;
    /// A name of something that does not exist.
    Dangling = "TW2101", Error;
    /// Nodes that wait for each other.
    Cycle = "TW2102", Error;
    /// A node that can never start.
    Unreachable = "TW2103", Error;
    /// A source of identity that untrusted code could steer.
    Untrusted = "TW2104", Error;
    /// An effect without a business object.
    NoObject = "TW2105", Error;
    /// A pointer to, or an expression about, something that the schema rules out.
    NoSuchValue = "TW2106", Error;
    /// A business object that is neither a string nor an integer, or a list that is no array.
    ObjectType = "TW2107", Error;
    /// A business object that an input may lack.
    ObjectOptional = "TW2108", Warning;
    /// A CEL expression that cannot be used.
    Expression = "TW2109", Error;
    /// Two slots that are one effect.
    OneEffect = "TW2110", Warning;
    /// Two slots that make the same effect twice.
    TwoEffects = "TW2112", Warning;
    /// A node whose time is up before its effect can answer.
    ShortTime = "TW2111", Warning;
    /// A slot whose every request is permitted without a word.
    NoPolicy = "TW2113", Warning;
    /// An `allow` that decides the same whatever the request is.
    ConstantPolicy = "TW2114", Warning;
    /// An expression about something that an open schema does not name.
    UnlistedValue = "TW2115", Warning;
    /// A route that a node does not declare.
    UnknownRoute = "TW2116", Error;
    /// A route that no condition takes.
    UnusedRoute = "TW2117", Warning;
    /// A join of fewer than two paths.
    PointlessJoin = "TW2118", Warning;
    /// A loop that is entered or left in its midst, or overlaps another.
    BadLoop = "TW2119", Error;
    /// A loop without a bound.
    UnboundedLoop = "TW2120", Error;
    /// Elements of a fan-out that may have no identity.
    ElementIdentity = "TW2121", Error;
    /// Elements of a fan-out that may not be told apart.
    ElementsRepeat = "TW2122", Warning;
    /// Something of a node that may not have run.
    MaybeSkipped = "TW2123", Warning;
    /// A pivot that is none, or an effect behind it that leads nowhere.
    Pivot = "TW2124", Error;
    /// An effect that stays when the others are undone.
    NotUndone = "TW2125", Warning;
    /// A compensation that cannot be made.
    Compensation = "TW2126", Error;
    /// A lock on nothing, or without a name.
    Lock = "TW2127", Error;
    /// Workflows that start each other.
    ChildCycle = "TW2128", Error;
    /// A slot for the elements of an array whose policy does not tell them apart.
    ElementUnchecked = "TW2129", Warning;
    /// A secret written into a file.
    SecretLiteral = "TW2201", Error;
    /// A template that cannot be filled.
    Template = "TW2202", Error;
    /// A key that does not reach the provider, or is placed without being declared.
    KeyPlacement = "TW2203", Error;
    /// A retention too short to be relied upon.
    Retention = "TW2204", Error;
    /// Waits that outlive the key, with nothing else to ask.
    KeyOutlived = "TW2205", Warning;
    /// A read that promises what only effects can.
    ReadPromise = "TW2206", Error;
    /// A replay whose answer names nothing.
    ReplayWithoutId = "TW2207", Error;
    /// A lookup that cannot find what was sent.
    BlindLookup = "TW2208", Error;
    /// Declarations that exclude each other.
    Contradiction = "TW2209", Error;
    /// A template reference that args may lack.
    ReferenceOptional = "TW2210", Warning;
    /// A horizon that ends before a request is surely over.
    ShortHorizon = "TW2211", Error;
    /// Secrets that travel unencrypted.
    PlainHttp = "TW2212", Warning;
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    /// The file, relative to the project.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// The kind of finding.
    pub code: Code,
    /// What is wrong.
    pub what: String,
    /// Why that matters.
    pub why: String,
    /// What to do.
    pub fix: String,
}

impl Diagnostic {
    /// Whether the project can be used despite it.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        self.code.severity()
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, code, what, why, fix } = self;
        let severity = code.severity().as_str();
        writeln!(f, "{file}:{line}:{column}: {severity}[{code}]: {what}")?;
        writeln!(f, "  why: {why}")?;
        write!(f, "  fix: {fix}")
    }
}

/// The candidate that `word` is most likely a slip of, if any is close.
pub(crate) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let limit = word.chars().count().max(3) / 3;
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, candidate)| candidate)
}

/// The names that exist, and the one that was likely meant, as the words of a fix.
pub(crate) fn suggest<'a>(
    kind: &str,
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> String {
    let candidates: Vec<&str> = candidates.into_iter().collect();
    if let Some(near) = nearest(word, candidates.iter().copied()) {
        return format!("did you mean `{near}`?");
    }
    if candidates.is_empty() {
        return format!("there is no {kind} here yet: declare it first");
    }
    format!("use one of: {}", listed(candidates))
}

/// Words in backticks, separated by commas.
pub(crate) fn listed<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// Edits between two words: insertion, removal, substitution and the swap of neighbours.
fn distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().take(64).collect();
    let right: Vec<char> = right.chars().take(64).collect();
    let mut rows = vec![(0..=right.len()).collect::<Vec<usize>>()];
    for (i, a) in left.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in right.iter().enumerate() {
            let mut best =
                (rows[i][j] + usize::from(a != b)).min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == right[j - 1] && left[i - 1] == *b {
                best = best.min(rows[i - 1][j - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[left.len()][right.len()]
}
