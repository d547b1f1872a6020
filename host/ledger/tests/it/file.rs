//! What only a database file can show: what it refuses by itself, how damage is reported, and who else may use it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sqlx::{Connection, Row, SqliteConnection};
use tempfile::TempDir;
use twice_core::effect::State;
use twice_core::event::EffectEventKind;
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_core::transition;
use twice_ledger::{
    Claim, ClaimOutcome, EffectFilter, Ledger, LedgerError, LedgerOptions, NewRun, Prune,
    RunFilter, SqlLedger, Started, Wanted,
};

use crate::support::{
    DEFINITION, Story, append, by, change, name, new_run, parked, run_id, step_id, verified_chain,
};

const AT: Timestamp = Timestamp(1);

/// Statements of someone else, on a connection of their own.
pub(crate) async fn execute(path: &Path, statements: &'static str) -> Result<(), sqlx::Error> {
    let mut connection = SqliteConnection::connect(path.to_str().unwrap()).await?;
    sqlx::raw_sql(statements).execute(&mut connection).await?;
    connection.close().await
}

struct File {
    _dir: TempDir,
    path: PathBuf,
    ledger: Arc<SqlLedger>,
}

impl File {
    async fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("twice.db");
        let ledger = Arc::new(open(&path).await.unwrap());
        ledger.put_definition(DEFINITION, "text").await.unwrap();
        Self { _dir: dir, path, ledger }
    }

    /// A run with a confirmed effect, under a lease.
    async fn story(&self, run: &str) -> (Claim, Story) {
        let claim = start_claimed(&*self.ledger, run).await;
        let mut story = Story::of_run(&claim.run.id, "refund", claim.fence, AT)
            .requested(AT)
            .confirmed(serde_json::json!({ "id": 1 }), AT);
        self.ledger.append(story.write(&claim)).await.unwrap();
        (claim, story)
    }
}

async fn open(path: &Path) -> Result<SqlLedger, LedgerError> {
    SqlLedger::open(path.to_str().unwrap(), LedgerOptions::default()).await
}

pub(crate) async fn start_claimed(ledger: &dyn Ledger, run: &str) -> Claim {
    let claim = twice_ledger::ClaimBy { lease_ms: 600_000, ..by("w1") };
    let new = NewRun { claim: Some(claim), ..new_run(run, AT) };
    match ledger.start_run(new).await.unwrap() {
        Started::Created(Some(claim)) => claim,
        other => panic!("{other:?}"),
    }
}

/// A run that failed, and one that was removed.
pub(crate) async fn over_and_gone(ledger: &dyn Ledger) {
    for run in ["r2", "gone"] {
        let claim = start_claimed(ledger, run).await;
        let mut end = append(&claim, vec![parked(AT)]);
        end.run_change = Some(change(RunState::Failed, None));
        let expected_head = ledger.append(end).await.unwrap();
        if run == "gone" {
            let text = || "there".to_owned();
            let run = claim.run.id;
            let (by, export, export_digest) = (text(), text(), text());
            ledger.prune(Prune { run, expected_head, by, export, export_digest }).await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_database_itself_refuses_to_forget() {
    let file = File::new().await;
    file.story("r1").await;
    file.ledger.put_module(&name("refund"), "sha256:m", b"m", AT).await.unwrap();
    over_and_gone(&*file.ledger).await;
    let before = verified_chain(&*file.ledger, &run_id("r1")).await;
    for (statement, refusal) in [
        ("UPDATE ledger_entry SET body = '{}' WHERE seq = 1", "never updated"),
        ("DELETE FROM ledger_entry WHERE seq = 5", "never deleted"),
        (
            "INSERT OR REPLACE INTO ledger_entry SELECT * FROM ledger_entry WHERE seq = 2",
            "must continue its chain",
        ),
        (
            "INSERT OR REPLACE INTO ledger_entry (rowid, run_id, seq, fence, made_at, kind, body, prev_hash, hash) \
             SELECT rowid, run_id, seq + 1, fence, made_at, 'run_parked', body, hash, zeroblob(32) FROM ledger_entry \
             WHERE seq = (SELECT MAX(seq) FROM ledger_entry)",
            "must continue its chain",
        ),
        (
            "INSERT INTO ledger_entry (run_id, seq, fence, made_at, kind, body, prev_hash, hash) \
             SELECT id, head_seq + 1, 9, 0, 'run_parked', '{}', zeroblob(32), zeroblob(32) FROM run",
            "must continue its chain",
        ),
        (
            "INSERT INTO ledger_entry SELECT run_id, seq + 1, fence, made_at, effect_id, 'requested', body, hash, \
             zeroblob(32), 'CONFIRMED', 'REQUESTED' FROM ledger_entry WHERE kind = 'confirmed'",
            "FOREIGN KEY constraint failed",
        ),
        ("UPDATE definition SET body = 'other'", "never updated"),
        ("DELETE FROM definition", "never deleted"),
        ("UPDATE module SET bytes = x'00'", "never updated"),
        ("DELETE FROM module", "never deleted"),
        ("UPDATE module_name SET digest = 'sha256:m'", "never updated"),
        ("DELETE FROM module_name", "never deleted"),
        ("INSERT OR REPLACE INTO module_name SELECT * FROM module_name", "never replaced"),
        ("UPDATE effect_transition SET to_state = 'CONFIRMED'", "fixed"),
        ("DELETE FROM effect_transition", "fixed"),
        ("DELETE FROM effect", "never deleted"),
        (
            "INSERT INTO tombstone (run_id, workflow, definition, input_hash, state, head_seq, head_hash, created_at, \
             ended_at, pruned_at, pruned_by, export, export_digest, pruning) SELECT id, workflow, definition, head_hash, state, \
             head_seq, head_hash, 0, 0, 0, 'x', 'x', 'x', 'now' FROM run WHERE id = 'r1'",
            "CHECK constraint failed",
        ),
        (
            "INSERT INTO tombstone (run_id, workflow, definition, input_hash, state, head_seq, head_hash, created_at, \
             ended_at, pruned_at, pruned_by, export, export_digest, pruning) SELECT id, workflow, definition, head_hash, 'failed', \
             head_seq, head_hash, 0, 0, 0, 'x', 'x', 'x', 'now' FROM run WHERE id = 'r1'",
            "of a run that is over",
        ),
        (
            "INSERT INTO tombstone (run_id, workflow, definition, input_hash, state, head_seq, head_hash, created_at, \
             ended_at, pruned_at, pruned_by, export, export_digest, pruning) SELECT id, workflow, definition, head_hash, 'failed', \
             head_seq, head_hash, 0, 0, 0, 'x', 'x', 'x', 'now' FROM run WHERE id = 'r2'",
            "FOREIGN KEY constraint failed",
        ),
        (
            "INSERT INTO tombstone (run_id, workflow, definition, input_hash, state, head_seq, head_hash, created_at, \
             ended_at, pruned_at, pruned_by, export, export_digest, pruning) SELECT id, workflow, definition, head_hash, 'failed', \
             head_seq, head_hash, 0, 0, 0, 'x', 'x', 'x', NULL FROM run WHERE id = 'r2'",
            "of a run that is over",
        ),
        (
            "BEGIN; INSERT INTO tombstone (run_id, workflow, definition, input_hash, state, head_seq, head_hash, created_at, \
             ended_at, pruned_at, pruned_by, export, export_digest, pruning) SELECT id, workflow, definition, head_hash, 'failed', \
             head_seq, head_hash, 0, 0, 0, 'x', 'x', 'x', 'now' FROM run WHERE id = 'r2'; DELETE FROM ledger_entry WHERE run_id = 'r1'",
            "never deleted",
        ),
        (
            "BEGIN; INSERT INTO tombstone (run_id, workflow, definition, input_hash, state, head_seq, head_hash, created_at, \
             ended_at, pruned_at, pruned_by, export, export_digest, pruning) SELECT id, workflow, definition, head_hash, 'failed', \
             head_seq, head_hash, 0, 0, 0, 'x', 'x', 'x', 'now' FROM run WHERE id = 'r2'; \
             DELETE FROM ledger_entry WHERE run_id = 'r2'; UPDATE tombstone SET pruning = NULL",
            "tombstones are never updated",
        ),
        ("DELETE FROM tombstone WHERE run_id = 'gone'", "never deleted"),
        ("UPDATE tombstone SET export = 'x' WHERE run_id = 'gone'", "never updated"),
        ("UPDATE effect SET run_id = 'r2'", "never changed"),
        ("DELETE FROM run", "never deleted"),
        ("UPDATE run SET input = '{}'", "never changed"),
        ("UPDATE run SET fence = fence - 1", "never go back"),
        ("UPDATE run SET state = 'resting'", "CHECK constraint failed"),
    ] {
        let refused = execute(&file.path, statement).await;
        let error = refused.expect_err(statement).to_string();
        assert!(error.contains(refusal), "{statement}: {error}");
    }
    // Replaced silently by nothing: what exists stays.
    execute(&file.path, "INSERT OR REPLACE INTO definition SELECT digest, 'other' FROM definition")
        .await
        .unwrap();
    execute(&file.path, "INSERT OR REPLACE INTO module SELECT digest, 1, x'00' FROM module")
        .await
        .unwrap();
    assert_eq!(file.ledger.definition(DEFINITION).await.unwrap().as_deref(), Some("text"));
    assert_eq!(file.ledger.module_bytes("sha256:m").await.unwrap().as_deref(), Some(&b"m"[..]));
    assert_eq!(verified_chain(&*file.ledger, &run_id("r1")).await, before);
}

#[tokio::test]
async fn the_transition_table_is_that_of_the_state_machine() {
    let file = File::new().await;
    let mut connection = SqliteConnection::connect(file.path.to_str().unwrap()).await.unwrap();
    let rows = sqlx::query("SELECT from_state, kind, to_state FROM effect_transition")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    let mut stored: Vec<(String, String, String)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    let mut expected = Vec::new();
    for from in std::iter::once(None).chain(State::ALL.map(Some)) {
        for kind in EffectEventKind::ALL {
            if let Ok(to) = transition::next(from, kind) {
                let from = from.map_or("NONE", State::as_str);
                expected.push((from.to_owned(), kind.as_str().to_owned(), to.to_string()));
            }
        }
    }
    stored.sort();
    expected.sort();
    assert_eq!(stored, expected);
}

#[tokio::test]
async fn damage_is_reported_with_its_place() {
    for (damage, table, column) in [
        ("UPDATE run SET state = 'resting' WHERE id = 'r1'", "run", "state"),
        ("UPDATE run SET progress = '{' WHERE id = 'r1'", "run", "progress"),
        ("UPDATE run SET input = 'x' WHERE id = 'r1'", "run", "input"),
        ("UPDATE run SET workflow = 'Not a name' WHERE id = 'r1'", "run", "workflow"),
        ("UPDATE run SET reason = CAST(x'ff' AS TEXT) WHERE id = 'r1'", "run", "reason"),
        ("UPDATE run SET head_hash = x'00' WHERE id = 'r1'", "run", "head_hash"),
        ("UPDATE run SET crashes = -1 WHERE id = 'r1'", "run", "crashes"),
        ("UPDATE effect SET state = 'DONE' WHERE run_id = 'r1'", "effect", "state"),
        ("UPDATE effect SET visit = -1 WHERE run_id = 'r1'", "effect", "visit"),
        ("UPDATE ledger_entry SET hash = x'00' WHERE run_id = 'r1'", "ledger_entry", "hash"),
        ("UPDATE ledger_entry SET body = '[' WHERE run_id = 'r1'", "ledger_entry", "body"),
        (
            "UPDATE ledger_entry SET kind = 'failed' WHERE kind = 'confirmed'",
            "ledger_entry",
            "body",
        ),
        (
            "UPDATE ledger_entry SET run_id = 'r3' WHERE run_id = 'r1' AND kind = 'authorized'",
            "ledger_entry",
            "kind",
        ),
    ] {
        check_damage(damage, table, column).await;
    }
}

async fn check_damage(damage: &'static str, table: &str, column: &str) {
    let file = File::new().await;
    let (claim, story) = file.story("r1").await;
    let (other, _) = file.story("r2").await;
    execute(
        &file.path,
        "DROP TRIGGER ledger_entry_no_update; DROP TRIGGER run_fixed; DROP TRIGGER run_fence_rises",
    )
    .await
    .unwrap();
    let statement: &'static str =
        format!("PRAGMA ignore_check_constraints = ON; PRAGMA foreign_keys = OFF; {damage}").leak();
    execute(&file.path, statement).await.unwrap();
    let ledger = &file.ledger;
    let run = &claim.run.id;
    let errors = [
        ledger.run(run).await.err(),
        ledger.runs(&RunFilter::default()).await.err(),
        ledger.effects(&EffectFilter::default()).await.err(),
        ledger.effect(&story.effect.id).await.err(),
        ledger.step_effects(run, &step_id("refund", 1, None)).await.err(),
        ledger.history(run, 0, 10).await.err(),
    ];
    let found = errors.iter().flatten().all(|error| {
        matches!(error, LedgerError::Corrupt { table: t, column: c, key, .. }
            if *t == table && *c == column && !key.is_empty())
    });
    assert!(found && errors.iter().any(Option::is_some), "{damage}: {errors:?}");
    // I11: the damage of one run is no other's.
    ledger.append(append(&other, vec![parked(AT)])).await.unwrap();
}

#[tokio::test]
async fn a_damaged_run_does_not_keep_others_from_being_claimed() {
    let file = File::new().await;
    for run in ["r1", "r2", "r3"] {
        file.ledger.start_run(new_run(run, AT)).await.unwrap();
    }
    execute(&file.path, "UPDATE run SET progress = '{' WHERE id IN ('r1', 'r2')").await.unwrap();
    let outcome = file.ledger.claim(&by("w1"), &Wanted::any(), AT).await.unwrap();
    assert!(
        matches!(&outcome, ClaimOutcome::Claimed(claim) if claim.run.id == run_id("r3")),
        "{outcome:?}"
    );
    let none = file.ledger.claim(&by("w1"), &Wanted::any(), AT).await.unwrap();
    assert!(matches!(none, ClaimOutcome::Nothing));
    let named = file.ledger.claim(&by("w1"), &Wanted::run(&run_id("r1"), false), AT).await;
    assert!(matches!(named, Err(LedgerError::Corrupt { column: "progress", .. })), "{named:?}");
}

#[tokio::test]
async fn a_ledger_is_found_as_it_was_left() {
    let file = File::new().await;
    let (claim, story) = file.story("r1").await;
    let head = file.ledger.head(&claim.run.id).await.unwrap();
    file.ledger.close().await;
    for url in ["", "sqlite:", "sqlite://"] {
        let url = format!("{url}{}", file.path.display());
        let again = SqlLedger::open(&url, LedgerOptions::default()).await.unwrap();
        assert_eq!(again.head(&claim.run.id).await.unwrap(), head);
        assert_eq!(again.effect(&story.effect.id).await.unwrap(), Some(story.effect.clone()));
        again.close().await;
    }
}

#[tokio::test]
async fn what_cannot_be_opened_says_why() {
    let file = File::new().await;
    file.ledger.close().await;
    let folder = file.path.parent().unwrap();
    let text = folder.join("notes.txt");
    std::fs::write(&text, "these are notes, and long enough to be taken for a header of a file")
        .unwrap();
    for (url, reason) in [
        ("mysql://ann:hunter2@db/twice".to_owned(), "no support"),
        (":memory:".to_owned(), "path of a file"),
        (folder.join("none/twice.db").display().to_string(), "folder exists"),
        (text.display().to_string(), "not a database"),
    ] {
        let error = SqlLedger::open(&url, LedgerOptions::default()).await.unwrap_err();
        assert!(matches!(error, LedgerError::Open { .. }));
        let error = error.to_string();
        assert!(error.contains(reason) && !error.contains("hunter2"), "{url}: {error}");
    }
    for (statement, reason) in [
        ("INSERT INTO schema_migration VALUES (9, '0009_later', 'sha256:x')", "newer"),
        (
            "DELETE FROM schema_migration WHERE version = 9; UPDATE schema_migration SET digest = 'sha256:x'",
            "another text",
        ),
    ] {
        execute(&file.path, statement).await.unwrap();
        let error = open(&file.path).await.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[tokio::test]
async fn many_open_a_new_ledger_at_once() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("twice.db");
    let opening = (0..8).map(|_| {
        let path = path.clone();
        tokio::spawn(async move { open(&path).await })
    });
    for opened in opening.collect::<Vec<_>>() {
        opened.await.unwrap().unwrap().close().await;
    }
}

/// Two workers, each with its own ledger on one file.
#[tokio::test]
async fn two_ledgers_share_a_file() {
    let file = File::new().await;
    let second = Arc::new(open(&file.path).await.unwrap());
    for run in 0..20 {
        file.ledger.start_run(new_run(&format!("r{run}"), AT)).await.unwrap();
    }
    let workers = [&file.ledger, &second].map(|ledger| {
        let ledger = Arc::clone(ledger);
        tokio::spawn(async move {
            let mut mine = Vec::new();
            let worker = twice_ledger::ClaimBy { lease_ms: 600_000, ..by("w1") };
            while let ClaimOutcome::Claimed(claim) =
                ledger.claim(&worker, &Wanted::any(), AT).await.unwrap()
            {
                for _ in 0..5 {
                    ledger.append(append(&claim, vec![parked(AT)])).await.unwrap();
                }
                mine.push(claim.run.id);
            }
            mine
        })
    });
    let mut taken = Vec::new();
    for worker in workers {
        taken.extend(worker.await.unwrap());
    }
    assert_eq!(taken.len(), 20);
    for run in &taken {
        assert_eq!(verified_chain(&*second, run).await.len(), 7);
    }
}

#[tokio::test]
async fn leases_are_judged_by_the_clock_of_the_database() {
    let file = File::new().await;
    // The host's clock is decades off; nobody looks at it.
    file.ledger.start_run(new_run("r1", Timestamp(i64::MAX / 2))).await.unwrap();
    let outcome = file.ledger.claim(&by("w1"), &Wanted::any(), Timestamp(0)).await.unwrap();
    let ClaimOutcome::Claimed(claim) = outcome else { panic!("{outcome:?}") };
    assert!(claim.run.lease_until.is_some_and(|until| until.0 > 1_700_000_000_000));
    assert!(file.ledger.run(&claim.run.id).await.unwrap().unwrap().lease_live);
}

/// A holder that never lets go is an error in the end, and one after which everything goes on.
#[tokio::test]
async fn waiting_for_another_process_has_an_end() {
    let file = File::new().await;
    let (claim, _) = file.story("r1").await;
    file.ledger.close().await;
    let options = LedgerOptions { busy_timeout_ms: 1, ..LedgerOptions::default() };
    let ledger = SqlLedger::open(file.path.to_str().unwrap(), options).await.unwrap();
    let mut holder = SqliteConnection::connect(file.path.to_str().unwrap()).await.unwrap();
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut holder).await.unwrap();
    let refused = ledger.append(append(&claim, vec![parked(AT)])).await;
    assert!(matches!(refused, Err(LedgerError::NotApplied { .. })), "{refused:?}");
    assert!(ledger.run(&claim.run.id).await.unwrap().is_some(), "reading needs no lock");
    sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
    ledger.append(append(&claim, vec![parked(AT)])).await.unwrap();
}

/// What is not ours is found out before anything of it is changed, and a file that nobody wants made is not.
#[tokio::test]
async fn a_file_of_something_else_and_one_that_is_not_there() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("other.db");
    std::fs::write(&path, "").unwrap();
    for statements in ["CREATE TABLE invoice (id)", "CREATE TABLE schema_migration (id, version)"] {
        execute(&path, statements).await.unwrap();
        let before = std::fs::read(&path).unwrap();
        let refused = open(&path).await.err();
        let Some(LedgerError::Open { problem, .. }) = &refused else { panic!("{refused:?}") };
        assert!(problem.contains("something else (it has the tables invoice"), "{problem}");
        assert_eq!(std::fs::read(&path).unwrap(), before, "it was touched");
    }

    let absent = dir.path().join("absent.db");
    let reading = LedgerOptions { create: false, ..LedgerOptions::default() };
    let refused = SqlLedger::open(absent.to_str().unwrap(), reading.clone()).await.err();
    assert!(matches!(refused, Some(LedgerError::Open { .. })), "{refused:?}");
    assert!(!absent.exists());
    open(&absent).await.unwrap().close().await;
    SqlLedger::open(absent.to_str().unwrap(), reading).await.unwrap().close().await;
}
