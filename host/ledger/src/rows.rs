//! Rows into domain values. A row that does not parse is [`LedgerError::Corrupt`] and names its place; it is never a panic.

use std::fmt::Display;

use serde_json::Value as Json;
use twice_core::chain::{Content, Entry, Hash, Head};
use twice_core::effect::{Effect, State};
use twice_core::event::Parent;
use twice_core::ids::{EffectId, ElementId, Fence, Name, RunId, WorkerId};
use twice_core::run::{Priority, RunState};
use twice_core::time::Timestamp;

use crate::value::{Cell, Row};
use crate::{EffectRow, LedgerError, ModuleRow, Overview, RunRecord, WorkerLoad, WorkflowLoad};

/// Reads the columns of a row in order.
pub(crate) struct Fields {
    table: &'static str,
    key: String,
    cells: std::vec::IntoIter<Cell>,
}

impl Fields {
    /// A row of `table`, whose first column is its key.
    pub(crate) fn of(table: &'static str, row: Row) -> Self {
        let key = match row.first() {
            Some(Cell::Text(key)) => key.clone(),
            Some(Cell::Int(key)) => key.to_string(),
            Some(Cell::Null | Cell::Blob(_) | Cell::Foreign(_)) | None => "?".to_owned(),
        };
        Self { table, key, cells: row.into_iter() }
    }

    pub(crate) fn corrupt(&self, column: &'static str, problem: impl Display) -> LedgerError {
        LedgerError::Corrupt {
            table: self.table,
            column,
            key: self.key.clone(),
            problem: problem.to_string(),
        }
    }

    fn next(&mut self) -> Cell {
        self.cells.next().unwrap_or_else(|| Cell::Foreign("no column".to_owned()))
    }

    pub(crate) fn int(&mut self, column: &'static str) -> Result<i64, LedgerError> {
        self.optional_int(column)?
            .ok_or_else(|| self.corrupt(column, "NULL where a number belongs"))
    }

    pub(crate) fn optional_int(
        &mut self,
        column: &'static str,
    ) -> Result<Option<i64>, LedgerError> {
        match self.next() {
            Cell::Int(value) => Ok(Some(value)),
            Cell::Null => Ok(None),
            other @ (Cell::Text(_) | Cell::Blob(_) | Cell::Foreign(_)) => {
                Err(self.corrupt(column, format_args!("{} where a number belongs", other.kind())))
            }
        }
    }

    fn count(&mut self, column: &'static str) -> Result<u32, LedgerError> {
        let value = self.int(column)?;
        u32::try_from(value).map_err(|_| self.corrupt(column, format_args!("{value} is no count")))
    }

    pub(crate) fn time(&mut self, column: &'static str) -> Result<Timestamp, LedgerError> {
        self.int(column).map(Timestamp)
    }

    pub(crate) fn text(&mut self, column: &'static str) -> Result<String, LedgerError> {
        self.optional_text(column)?.ok_or_else(|| self.corrupt(column, "NULL where text belongs"))
    }

    pub(crate) fn optional_text(
        &mut self,
        column: &'static str,
    ) -> Result<Option<String>, LedgerError> {
        match self.next() {
            Cell::Text(value) => Ok(Some(value)),
            Cell::Null => Ok(None),
            other @ (Cell::Int(_) | Cell::Blob(_) | Cell::Foreign(_)) => {
                Err(self.corrupt(column, format_args!("{} where text belongs", other.kind())))
            }
        }
    }

    /// A text with a form of its own.
    pub(crate) fn parsed<T, E: Display>(
        &mut self,
        column: &'static str,
        parse: impl FnOnce(String) -> Result<T, E>,
    ) -> Result<T, LedgerError> {
        let text = self.text(column)?;
        parse(text).map_err(|problem| self.corrupt(column, problem))
    }

    pub(crate) fn optional_parsed<T, E: Display>(
        &mut self,
        column: &'static str,
        parse: impl FnOnce(String) -> Result<T, E>,
    ) -> Result<Option<T>, LedgerError> {
        let Some(text) = self.optional_text(column)? else { return Ok(None) };
        parse(text).map(Some).map_err(|problem| self.corrupt(column, problem))
    }

    pub(crate) fn bytes(&mut self, column: &'static str) -> Result<Vec<u8>, LedgerError> {
        match self.next() {
            Cell::Blob(value) => Ok(value),
            other @ (Cell::Null | Cell::Int(_) | Cell::Text(_) | Cell::Foreign(_)) => {
                Err(self.corrupt(column, format_args!("{} where bytes belong", other.kind())))
            }
        }
    }

    pub(crate) fn hash(&mut self, column: &'static str) -> Result<Hash, LedgerError> {
        let bytes = self.bytes(column)?;
        Hash::try_from(bytes.as_slice())
            .map_err(|_| self.corrupt(column, format_args!("a digest of {} bytes", bytes.len())))
    }

    fn priority(&mut self) -> Result<Priority, LedgerError> {
        let number = self.int("priority")?;
        Priority::try_from(number).map_err(|problem| self.corrupt("priority", problem))
    }

    pub(crate) fn head(&mut self) -> Result<Head, LedgerError> {
        Ok(Head { seq: self.int("head_seq")?, hash: self.hash("head_hash")? })
    }
}

pub(crate) fn run_state(text: String) -> Result<RunState, String> {
    RunState::parse(&text).ok_or_else(|| format!("`{text}` is no state of a run"))
}

fn effect_state(text: String) -> Result<State, String> {
    State::parse(&text).ok_or_else(|| format!("`{text}` is no state of an effect"))
}

fn json(text: String) -> Result<Json, serde_json::Error> {
    serde_json::from_str(&text)
}

/// A run and the head of its chain.
pub(crate) fn run(row: Row) -> Result<(RunRecord, Head), LedgerError> {
    let mut f = Fields::of("run", row);
    let id = f.parsed("id", RunId::parse)?;
    let workflow = f.parsed("workflow", Name::parse)?;
    let definition = f.text("definition")?;
    let input = f.parsed("input", json)?;
    let priority = f.priority()?;
    let state = f.parsed("state", run_state)?;
    let progress = f.parsed("progress", |text| serde_json::from_str(&text))?;
    let progress_seq = f.int("progress_seq")?;
    let output = f.optional_parsed("output", json)?;
    let reason = f.optional_text("reason")?;
    let cancel = f.optional_parsed("cancel", |text| serde_json::from_str(&text))?;
    let due_at = f.optional_int("due_at")?.map(Timestamp);
    let worker = f.optional_parsed("worker", WorkerId::parse)?;
    let fence = Fence(f.int("fence")?);
    let lease_until = f.optional_int("lease_until")?.map(Timestamp);
    let crashes = f.count("crashes")?;
    let head = f.head()?;
    let created_at = f.time("created_at")?;
    let updated_at = f.time("updated_at")?;
    let parent = f.optional_parsed("parent_run", RunId::parse)?;
    let effect = f.optional_parsed("parent_effect", EffectId::parse)?;
    let parent = parent.zip(effect).map(|(run, effect)| Parent { run, effect });
    let lease_live = f.int("lease_until")? == 1;
    let record = RunRecord {
        id,
        workflow,
        definition,
        input,
        priority,
        state,
        progress,
        progress_seq,
        output,
        reason,
        cancel,
        due_at,
        worker,
        fence,
        lease_live,
        lease_until,
        crashes,
        created_at,
        updated_at,
        parent,
    };
    Ok((record, head))
}

/// What a write needs to know of a run, and what it makes of it.
#[derive(Debug, Clone)]
pub(crate) struct RunLock {
    pub(crate) state: RunState,
    pub(crate) head: Head,
    pub(crate) fence: Fence,
    pub(crate) lease_until: Option<i64>,
    pub(crate) due_at: Option<i64>,
    pub(crate) claim_at: Option<i64>,
    pub(crate) worker: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) crashes: u32,
    pub(crate) updated_at: i64,
    /// Whether its cancellation was asked for.
    pub(crate) cancelled: bool,
    /// The new checkpoint and the number of the last entry it has taken in, if there is one.
    pub(crate) progress: Option<(String, i64)>,
    /// The output, if there is one now.
    pub(crate) output: Option<String>,
}

pub(crate) fn run_lock(row: Row) -> Result<RunLock, LedgerError> {
    let mut f = Fields::of("run", row);
    f.text("id")?;
    let state = f.parsed("state", run_state)?;
    let head = f.head()?;
    Ok(RunLock {
        state,
        head,
        fence: Fence(f.int("fence")?),
        lease_until: f.optional_int("lease_until")?,
        due_at: f.optional_int("due_at")?,
        claim_at: f.optional_int("claim_at")?,
        worker: f.optional_text("worker")?,
        reason: f.optional_text("reason")?,
        crashes: f.count("crashes")?,
        updated_at: f.int("updated_at")?,
        cancelled: f.int("cancel")? == 1,
        progress: None,
        output: None,
    })
}

/// Where runs are due: of which workflow, and how urgent.
pub(crate) struct Place {
    pub(crate) workflow: Name,
    pub(crate) priority: Priority,
}

pub(crate) fn place(row: Row) -> Result<Place, LedgerError> {
    let mut f = Fields::of("run", row);
    Ok(Place { workflow: f.parsed("workflow", Name::parse)?, priority: f.priority()? })
}

/// How runs stand: counts by workflow and standing, and by worker.
pub(crate) fn overview(loads: Vec<Row>, workers: Vec<Row>) -> Result<Overview, LedgerError> {
    let mut overview = Overview::default();
    for row in loads {
        let mut f = Fields::of("run", row);
        let workflow = f.parsed("workflow", Name::parse)?;
        let standing = f.parsed("state", run_state)?;
        let count = u64::from(f.count("count")?);
        let lag = f.optional_int("lag")?;
        let loads = &mut overview.workflows;
        if loads.last().is_none_or(|last| last.workflow != workflow) {
            loads.push(WorkflowLoad::none(workflow));
        }
        let Some(load) = loads.last_mut() else { continue };
        match standing {
            RunState::Ready => {
                load.ready = count;
                load.lag_ms = lag.map(|lag| u64::try_from(lag).unwrap_or(0));
            }
            RunState::Running => load.running = count,
            RunState::Waiting => load.waiting = count,
            RunState::Halted => load.halted = count,
            RunState::Stuck => load.stuck = count,
            RunState::Quarantined => load.quarantined = count,
            RunState::Completed | RunState::Failed | RunState::Cancelled => {}
        }
    }
    for row in workers {
        let mut f = Fields::of("run", row);
        let worker = f.parsed("worker", WorkerId::parse)?;
        overview.workers.push(WorkerLoad { worker, runs: u64::from(f.count("count")?) });
    }
    Ok(overview)
}

/// The owner and the state of an effect.
pub(crate) fn effect_lock(row: Row) -> Result<(RunId, State), LedgerError> {
    let mut f = Fields::of("effect", row);
    f.text("id")?;
    Ok((f.parsed("run_id", RunId::parse)?, f.parsed("state", effect_state)?))
}

pub(crate) fn effect(row: Row) -> Result<EffectRow, LedgerError> {
    let mut f = Fields::of("effect", row);
    Ok(EffectRow {
        id: f.parsed("id", EffectId::parse)?,
        run: f.parsed("run_id", RunId::parse)?,
        node: f.parsed("node", Name::parse)?,
        visit: f.count("visit")?,
        element: f.optional_parsed("element", ElementId::parse)?,
        slot: f.parsed("slot", Name::parse)?,
        operation: f.text("operation")?,
        idempotency_key: f.text("idempotency_key")?,
        request_hash: f.text("request_hash")?,
        state: f.parsed("state", effect_state)?,
        attempts: f.count("attempts")?,
        external_id: f.optional_text("external_id")?,
        held: f.int("held")? == 1,
        undoes: f.optional_parsed("undoes", EffectId::parse)?,
        approves: f.optional_parsed("approves", EffectId::parse)?,
        last_error: f.optional_text("last_error")?,
        updated_at: f.time("updated_at")?,
    })
}

pub(crate) fn entry(row: Row) -> Result<Entry, LedgerError> {
    let mut f = Fields::of("ledger_entry", row);
    let run = f.parsed("run_id", RunId::parse)?;
    let seq = f.int("seq")?;
    f.key = format!("{run}/{seq}");
    Ok(Entry {
        run,
        seq,
        fence: Fence(f.int("fence")?),
        at: f.time("made_at")?,
        effect: f.optional_parsed("effect_id", EffectId::parse)?,
        kind: f.text("kind")?,
        body: f.text("body")?,
        prev: f.hash("prev_hash")?,
        hash: f.hash("hash")?,
    })
}

/// A component and the number of its registration.
pub(crate) fn module(row: Row) -> Result<(ModuleRow, i64), LedgerError> {
    let mut f = Fields::of("module_name", row);
    let name = f.parsed("name", Name::parse)?;
    let digest = f.text("digest")?;
    let size = f.int("size")?;
    let bytes =
        u64::try_from(size).map_err(|_| f.corrupt("size", format_args!("{size} is no size")))?;
    Ok((ModuleRow { name, digest, bytes, added_at: f.time("added_at")? }, f.int("number")?))
}

/// The effects that entries tell of, in the order of their first entries. The entries of an effect must be whole.
pub(crate) fn fold(entries: Vec<Entry>) -> Result<Vec<Effect>, LedgerError> {
    let mut effects: Vec<Effect> = Vec::new();
    for entry in entries {
        let corrupt = |column, problem: String| LedgerError::Corrupt {
            table: "ledger_entry",
            column,
            key: format!("{}/{}", entry.run, entry.seq),
            problem,
        };
        let content = Content::from_stored(&entry.kind, entry.effect.clone(), &entry.body)
            .map_err(|problem| corrupt("body", problem.to_string()))?;
        let Content::Effect { effect: id, event } = content else {
            return Err(corrupt("effect_id", "an entry about no effect".to_owned()));
        };
        let illegal =
            |problem: twice_core::transition::Illegal| corrupt("kind", problem.to_string());
        match effects.iter_mut().find(|effect| effect.id == id) {
            Some(effect) => effect.apply(&event, entry.fence, entry.at).map_err(illegal)?,
            None => effects
                .push(Effect::begin(id, entry.run.clone(), &event, entry.at).map_err(illegal)?),
        }
    }
    Ok(effects)
}
