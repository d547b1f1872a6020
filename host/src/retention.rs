//! Exports of runs that are over, and their removal. A run is removed only after its export was written, flushed, read back
//! and verified. The format is in `docs/retention.md`.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use twice_core::chain::{Broken, Entry, Hash, Head, Verifier};
use twice_core::identity::hash_text;
use twice_core::ids::{EffectId, Fence, RunId};
use twice_core::limits::ENTRY_BYTES_MAX;
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_ledger::{Ledger, LedgerError, OverFilter, Prune, RunRecord, Tombstone};

/// What the first line of an export says it is.
pub const FORMAT: &str = "twice-run-export/1";
/// Longest line of an export. Bytes: an entry's body, each of its characters escaped, and room for the rest.
const LINE_BYTES_MAX: u64 = 6 * ENTRY_BYTES_MAX as u64 + (1 << 16);

/// Why a run was not exported, or an export does not hold.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The ledger failed.
    #[error("{0}")]
    Ledger(#[from] LedgerError),
    /// A file cannot be written or read.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// What was to be done.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The chain of the run does not hold.
    #[error("{0}")]
    Chain(#[from] Broken),
    /// A line is not what belongs there.
    #[error("line {line}: {problem}")]
    Line {
        /// Which, from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
}

/// The first line: the run as it was when it was exported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FirstLine {
    format: String,
    run_id: RunId,
    workflow: String,
    definition: String,
    state: String,
    priority: i64,
    input: Value,
    output: Option<Value>,
    reason: Option<String>,
    worker: Option<String>,
    fence: i64,
    created_at: i64,
    ended_at: i64,
    head_seq: i64,
    head_hash: String,
}

/// One line for each entry, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntryLine {
    seq: i64,
    fence: i64,
    at: i64,
    effect_id: Option<EffectId>,
    kind: String,
    /// Canonical JSON, as a text: what the hash covers, byte by byte.
    body: String,
    prev_hash: String,
    hash: String,
}

/// The last line: the digest of all lines before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct LastLine {
    digest: String,
}

/// An export that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The run.
    pub run: RunId,
    /// The head of its chain.
    pub head: Head,
    /// The digest of everything but the last line, which repeats it.
    pub digest: String,
}

/// What became of a run that is old enough.
#[derive(Debug)]
pub enum Outcome {
    /// It is in its export alone.
    Pruned(Box<Tombstone>),
    /// It stays, and why.
    Kept(String),
}

/// Where the export of a run is written.
#[must_use]
pub fn file_of(folder: &Path, run: &RunId) -> PathBuf {
    folder.join(format!("{run}.jsonl"))
}

/// Runs that are over and have been for so long, a page at a time, in the order of their ids.
///
/// # Errors
/// [`LedgerError`].
pub async fn page(
    ledger: &dyn Ledger,
    state: Option<RunState>,
    older_than_ms: u64,
    after: Option<RunId>,
) -> Result<Vec<RunRecord>, LedgerError> {
    ledger.runs_over(&OverFilter { state, older_than_ms, after, limit: 0 }).await
}

/// Exports a run and removes it. Done again after whatever interrupted it, it goes on.
///
/// # Errors
/// [`ExportError`]; the run is where it was, or is removed already and its export holds.
pub async fn prune(
    ledger: &dyn Ledger,
    run: &RunRecord,
    folder: &Path,
    by: &str,
) -> Result<Outcome, ExportError> {
    let path = file_of(folder, &run.id);
    // What an earlier try left of this very chain may go; anything else may be somebody's only copy.
    if fs::symlink_metadata(&path).is_ok() {
        let head = ledger.head(&run.id).await?;
        let own = verify(&path).is_ok_and(|held| held.run == run.id && held.head == head);
        if !own {
            let path = path.display();
            return Ok(Outcome::Kept(format!(
                "{path} is there and is not its export; move that away, or give another folder"
            )));
        }
    }
    let written = export(ledger, run, &path).await?;
    let read = verify(&path)?;
    if read != written {
        let problem = "it is not what was written".to_owned();
        return Err(ExportError::Line { line: 1, problem });
    }
    let export = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    let prune = Prune {
        run: run.id.clone(),
        expected_head: written.head,
        by: by.to_owned(),
        export: export.display().to_string(),
        export_digest: written.digest,
    };
    match ledger.prune(prune).await {
        Ok(tombstone) => Ok(Outcome::Pruned(Box::new(tombstone))),
        Err(LedgerError::State { rule, .. }) => {
            // What stays in the ledger needs no export.
            fs::remove_file(&path).map_err(|source| file("remove", &path, source))?;
            Ok(Outcome::Kept(rule.to_owned()))
        }
        Err(error) => Err(error.into()),
    }
}

fn file(action: &'static str, path: &Path, source: io::Error) -> ExportError {
    ExportError::File { action, path: path.to_owned(), source }
}

/// Writes the export of a run under another name, and gives it its own when it is whole and on disk.
async fn export(
    ledger: &dyn Ledger,
    run: &RunRecord,
    path: &Path,
) -> Result<Verified, ExportError> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let unfinished = path.with_extension("unfinished");
    // Never through a link to somewhere else.
    match fs::remove_file(&unfinished) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            return Err(file("remove", &unfinished, source));
        }
        Ok(()) | Err(_) => {}
    }
    let create = File::create_new(&unfinished).map_err(|e| file("make", &unfinished, e))?;
    let mut lines = Lines { out: BufWriter::new(create), digest: Sha256::new() };
    let wrote = |result: io::Result<()>| result.map_err(|e| file("write", &unfinished, e));
    let head = ledger.head(&run.id).await?;
    wrote(lines.line(&first_line(run, head)))?;
    let mut verifier = Verifier::new(&run.id);
    loop {
        let page = ledger.history(&run.id, verifier.head().seq, 0).await?;
        if page.is_empty() {
            break;
        }
        for entry in &page {
            verifier.push(entry)?;
            wrote(lines.line(&entry_line(entry)))?;
        }
    }
    if verifier.head() != head {
        let problem = "the run's head is not the end of its chain".to_owned();
        return Err(ExportError::Line { line: 1, problem });
    }
    let digest = hash_text(&lines.digest.clone().finalize().into());
    wrote(lines.line(&LastLine { digest: digest.clone() }))?;
    let out = lines.out.into_inner().map_err(|e| file("write", &unfinished, e.into_error()))?;
    wrote(out.sync_all())?;
    fs::rename(&unfinished, path).map_err(|source| file("name", path, source))?;
    // The name is on disk when its folder is.
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(|source| file("flush", folder, source))?;
    Ok(Verified { run: run.id.clone(), head, digest })
}

struct Lines {
    out: BufWriter<File>,
    digest: Sha256,
}

impl Lines {
    fn line(&mut self, line: &impl Serialize) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.digest.update(&text);
        self.out.write_all(&text)
    }
}

fn first_line(run: &RunRecord, head: Head) -> FirstLine {
    FirstLine {
        format: FORMAT.to_owned(),
        run_id: run.id.clone(),
        workflow: run.workflow.to_string(),
        definition: run.definition.clone(),
        state: run.state.to_string(),
        priority: run.priority.get(),
        input: run.input.clone(),
        output: run.output.clone(),
        reason: run.reason.clone(),
        worker: run.worker.as_ref().map(ToString::to_string),
        fence: run.fence.0,
        created_at: run.created_at.0,
        ended_at: run.updated_at.0,
        head_seq: head.seq,
        head_hash: hash_text(&head.hash),
    }
}

fn entry_line(entry: &Entry) -> EntryLine {
    EntryLine {
        seq: entry.seq,
        fence: entry.fence.0,
        at: entry.at.0,
        effect_id: entry.effect.clone(),
        kind: entry.kind.clone(),
        body: entry.body.clone(),
        prev_hash: hash_text(&entry.prev),
        hash: hash_text(&entry.hash),
    }
}

/// Checks an export by itself: that it is whole and as it was written, that the chain holds and ends where the first line
/// says, and that every move was legal. Whoever can write the file can write another one that holds: hold the
/// digest, or the head, against the run's tombstone.
///
/// # Errors
/// [`ExportError`], with the first thing that is wrong.
pub fn verify(path: &Path) -> Result<Verified, ExportError> {
    let source = File::open(path).map_err(|source| file("open", path, source))?;
    let mut reader = Reader { lines: BufReader::new(source), number: 0, digest: Sha256::new() };
    let Some(first) = reader.next(path)? else {
        return Err(reader.wrong("the file is empty"));
    };
    let first: FirstLine = reader.parse(&first)?;
    if first.format != FORMAT {
        return Err(reader.wrong(&format!("its format is `{}`, not `{FORMAT}`", first.format)));
    }
    let head_hash = reader.hash(&first.head_hash)?;
    let mut verifier = Verifier::new(&first.run_id);
    loop {
        let before = hash_text(&reader.digest.clone().finalize().into());
        let Some(line) = reader.next(path)? else {
            return Err(reader.wrong("the file ends before its last line, which has its digest"));
        };
        if let Ok(last) = serde_json::from_slice::<LastLine>(&line) {
            if last.digest != before {
                return Err(reader.wrong("the lines before do not have this digest"));
            }
            if reader.next(path)?.is_some() {
                return Err(reader.wrong("something follows the last line"));
            }
            let head = Head { seq: first.head_seq, hash: head_hash };
            if verifier.head() != head {
                return Err(reader.wrong("the entries do not end with the head of the first line"));
            }
            return Ok(Verified { run: first.run_id, head, digest: last.digest });
        }
        let line: EntryLine = reader.parse(&line)?;
        verifier.push(&Entry {
            run: first.run_id.clone(),
            seq: line.seq,
            fence: Fence(line.fence),
            at: Timestamp(line.at),
            effect: line.effect_id,
            kind: line.kind,
            body: line.body,
            prev: reader.hash(&line.prev_hash)?,
            hash: reader.hash(&line.hash)?,
        })?;
    }
}

struct Reader {
    lines: BufReader<File>,
    number: usize,
    digest: Sha256,
}

impl Reader {
    fn next(&mut self, path: &Path) -> Result<Option<Vec<u8>>, ExportError> {
        let mut line = Vec::new();
        let mut limited = io::Read::take(&mut self.lines, LINE_BYTES_MAX);
        let read = limited.read_until(b'\n', &mut line);
        if read.map_err(|source| file("read", path, source))? == 0 {
            return Ok(None);
        }
        self.number += 1;
        self.digest.update(&line);
        if line.pop() != Some(b'\n') {
            return Err(self.wrong("it is cut off, or longer than any line of an export"));
        }
        Ok(Some(line))
    }

    fn parse<T: for<'a> Deserialize<'a>>(&self, line: &[u8]) -> Result<T, ExportError> {
        serde_json::from_slice(line).map_err(|problem| self.wrong(&problem.to_string()))
    }

    fn hash(&self, text: &str) -> Result<Hash, ExportError> {
        let bytes = text.strip_prefix("sha256:").and_then(|hex| {
            data_encoding::HEXLOWER.decode(hex.as_bytes()).ok().and_then(|b| b.try_into().ok())
        });
        bytes.ok_or_else(|| self.wrong(&format!("`{text}` is no hash")))
    }

    fn wrong(&self, problem: &str) -> ExportError {
        ExportError::Line { line: self.number.max(1), problem: problem.to_owned() }
    }
}
