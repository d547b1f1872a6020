//! What only a Postgres server can show: what it refuses by itself, and what it is refused for.

use std::sync::Arc;

use serde_json::json;
use sqlx::Connection as _;
use twice_core::event::EffectEventKind;
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_core::{effect::State, transition};
use twice_ledger::{
    Claim, ClaimOutcome, Ledger, LedgerError, LedgerOptions, Prune, SqlLedger, Wanted,
};
use twice_test_postgres::{Cluster, Database, PASSWORD, ROLE};

use crate::file::{over_and_gone, start_claimed};
use crate::support::{
    DEFINITION, Story, append, by, change, name, new_run, parked, run_id, verified_chain,
};

const AT: Timestamp = Timestamp(1);

pub(crate) async fn open(url: &str) -> Result<Arc<SqlLedger>, LedgerError> {
    SqlLedger::open(url, LedgerOptions::default()).await.map(Arc::new)
}

pub(crate) async fn ledger(database: &Database<'_>) -> Arc<SqlLedger> {
    let ledger = open(&database.url()).await.unwrap();
    ledger.put_definition(DEFINITION, "text").await.unwrap();
    ledger
}

async fn story(ledger: &dyn Ledger, run: &str) -> (Claim, Story) {
    let claim = start_claimed(ledger, run).await;
    let mut story = Story::of_run(&claim.run.id, "refund", claim.fence, AT)
        .requested(AT)
        .confirmed(json!({ "id": 1 }), AT);
    ledger.append(story.write(&claim)).await.unwrap();
    (claim, story)
}

#[tokio::test]
async fn the_database_itself_refuses_to_forget() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    let ledger = ledger(&database).await;
    story(&*ledger, "r1").await;
    ledger.put_module(&name("refund"), "sha256:m", b"m", AT).await.unwrap();
    over_and_gone(&*ledger).await;
    let before = verified_chain(&*ledger, &run_id("r1")).await;
    for (statement, refusal) in [
        ("UPDATE ledger_entry SET body = '{}' WHERE seq = 1", "never updated"),
        ("UPDATE ledger_entry SET body = '{}' WHERE seq = 99", "never updated"),
        ("DELETE FROM ledger_entry WHERE seq = 5", "never deleted"),
        ("TRUNCATE ledger_entry", "never deleted"),
        (
            "INSERT INTO ledger_entry SELECT * FROM ledger_entry WHERE seq = 2 \
             ON CONFLICT (run_id, seq) DO UPDATE SET body = '{}'",
            "never updated",
        ),
        (
            "INSERT INTO ledger_entry (run_id, seq, fence, made_at, kind, body, prev_hash, hash) \
             SELECT id, head_seq + 1, 9, 0, 'run_parked', '{}', sha256('a'), sha256('a') FROM run",
            "must continue its chain",
        ),
        (
            "INSERT INTO ledger_entry (run_id, seq, fence, made_at, kind, body, prev_hash, hash) \
             SELECT id, head_seq + 2, 9, 0, 'run_parked', '{}', head_hash, sha256('a') FROM run",
            "must continue its chain",
        ),
        (
            "INSERT INTO ledger_entry SELECT run_id, seq + 1, fence, made_at, effect_id, 'requested', body, hash, \
             sha256('a'), 'CONFIRMED', 'REQUESTED' FROM ledger_entry WHERE kind = 'confirmed'",
            "a move that effects can make",
        ),
        ("UPDATE definition SET body = 'other'", "never updated"),
        ("DELETE FROM definition", "never deleted"),
        ("TRUNCATE definition CASCADE", "never deleted"),
        ("UPDATE module SET bytes = ''", "never updated"),
        ("DELETE FROM module", "never deleted"),
        ("TRUNCATE module CASCADE", "never deleted"),
        ("UPDATE module_name SET digest = 'sha256:m'", "never updated"),
        ("DELETE FROM module_name", "never deleted"),
        ("TRUNCATE module_name", "never deleted"),
        ("UPDATE effect_transition SET to_state = 'CONFIRMED'", "fixed"),
        ("DELETE FROM effect_transition", "fixed"),
        ("TRUNCATE effect_transition CASCADE", "fixed"),
        ("DELETE FROM effect", "never deleted"),
        ("TRUNCATE effect CASCADE", "never deleted"),
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
            "violates foreign key constraint",
        ),
        (
            "INSERT INTO tombstone (run_id, workflow, definition, input_hash, state, head_seq, head_hash, created_at, \
             ended_at, pruned_at, pruned_by, export, export_digest, pruning) SELECT id, workflow, definition, head_hash, 'failed', \
             head_seq, head_hash, 0, 0, 0, 'x', 'x', 'x', NULL FROM run WHERE id = 'r2'",
            "of a run that is over",
        ),
        (
            "INSERT INTO tombstone (run_id, workflow, definition, input_hash, state, head_seq, head_hash, created_at, \
             ended_at, pruned_at, pruned_by, export, export_digest, pruning) SELECT id, workflow, definition, head_hash, 'failed', \
             head_seq, head_hash, 0, 0, 0, 'x', 'x', 'x', 'now' FROM run WHERE id = 'r2'; DELETE FROM ledger_entry WHERE run_id = 'r1'",
            "never deleted",
        ),
        (
            "INSERT INTO tombstone (run_id, workflow, definition, input_hash, state, head_seq, head_hash, created_at, \
             ended_at, pruned_at, pruned_by, export, export_digest, pruning) SELECT id, workflow, definition, head_hash, 'failed', \
             head_seq, head_hash, 0, 0, 0, 'x', 'x', 'x', 'now' FROM run WHERE id = 'r2'; \
             DELETE FROM ledger_entry WHERE run_id = 'r2'; UPDATE tombstone SET pruning = NULL",
            "tombstones are never updated",
        ),
        ("DELETE FROM tombstone WHERE run_id = 'gone'", "never deleted"),
        ("TRUNCATE tombstone", "never deleted"),
        ("UPDATE tombstone SET export = 'x' WHERE run_id = 'gone'", "never updated"),
        ("UPDATE effect SET run_id = 'r2'", "never changed"),
        ("DELETE FROM run", "violates foreign key constraint"),
        ("DELETE FROM run WHERE id = 'r2'", "never deleted"),
        ("TRUNCATE run CASCADE", "never deleted"),
        ("UPDATE run SET input = '{}'", "never changed"),
        ("UPDATE run SET caller_key = 'k'", "never changed"),
        ("UPDATE run SET fence = fence - 1", "never go back"),
        ("UPDATE run SET state = 'resting'", "violates check constraint"),
    ] {
        // The role that owns everything, and the one that may do anything.
        for role in ["", "SET ROLE shopkeeper; "] {
            let refused = database.sql(&format!("{role}{statement}"));
            let error = refused.expect_err(statement);
            assert!(error.contains(refusal), "{statement}: {error}");
        }
    }
    assert_eq!(verified_chain(&*ledger, &run_id("r1")).await, before);
}

#[tokio::test]
async fn the_transition_table_is_that_of_the_state_machine() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    ledger(&database).await;
    let mut expected = Vec::new();
    for from in std::iter::once(None).chain(State::ALL.map(Some)) {
        for kind in EffectEventKind::ALL {
            if let Ok(to) = transition::next(from, kind) {
                let from = from.map_or("NONE", State::as_str);
                expected.push(format!("{from}|{}|{to}", kind.as_str()));
            }
        }
    }
    let stored = database.sql("SELECT from_state, kind, to_state FROM effect_transition").unwrap();
    let mut stored: Vec<&str> = stored.lines().collect();
    stored.sort_unstable();
    expected.sort();
    assert_eq!(stored, expected);
}

#[tokio::test]
async fn many_open_a_new_ledger_at_once() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    let opening = (0..8).map(|_| {
        let url = database.url();
        tokio::spawn(async move { open(&url).await })
    });
    for opened in opening.collect::<Vec<_>>() {
        opened.await.unwrap().unwrap().close().await;
    }
    assert_eq!(database.sql("SELECT count(*) FROM schema_migration").unwrap(), "4");
}

#[tokio::test]
async fn a_ledger_is_found_as_it_was_left() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    let first = ledger(&database).await;
    let (claim, story) = story(&*first, "r1").await;
    let head = first.head(&claim.run.id).await.unwrap();
    first.close().await;
    assert!(matches!(first.run(&claim.run.id).await, Err(LedgerError::Closed)));
    let again = open(&database.url().replace("postgres://", "postgresql://")).await.unwrap();
    assert_eq!(again.head(&claim.run.id).await.unwrap(), head);
    assert_eq!(again.effect(&story.effect.id).await.unwrap(), Some(story.effect));
}

#[tokio::test]
async fn a_schema_of_another_build_is_refused() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    ledger(&database).await.close().await;
    for (statement, reason) in [
        ("INSERT INTO schema_migration VALUES (9, '0009_later', 'sha256:x')", "newer"),
        (
            "DELETE FROM schema_migration WHERE version = 9; UPDATE schema_migration SET digest = 'sha256:x'",
            "another text",
        ),
    ] {
        database.sql(statement).unwrap();
        let error = open(&database.url()).await.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[tokio::test]
async fn a_damaged_run_does_not_keep_others_from_being_claimed() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    let ledger = ledger(&database).await;
    for run in ["r1", "r2", "r3"] {
        ledger.start_run(new_run(run, AT)).await.unwrap();
    }
    database.sql("UPDATE run SET progress = '{' WHERE id IN ('r1', 'r2')").unwrap();
    let outcome = ledger.claim(&by("w1"), &Wanted::any(), AT).await.unwrap();
    assert!(
        matches!(&outcome, ClaimOutcome::Claimed(claim) if claim.run.id == run_id("r3")),
        "{outcome:?}"
    );
    let named = ledger.claim(&by("w1"), &Wanted::run(&run_id("r1"), false), AT).await;
    assert!(matches!(named, Err(LedgerError::Corrupt { column: "progress", .. })), "{named:?}");
}

/// The role that workers need may neither change the schema nor forget anything, triggers or not.
#[tokio::test]
async fn whoever_removes_runs_needs_no_more_than_is_written_down() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    let owner = ledger(&database).await;
    let (claim, mut story) = story(&*owner, "r1").await;
    let mut end = story.write(&claim);
    end.run_change = Some(change(RunState::Completed, None));
    let expected_head = owner.append(end).await.unwrap();
    let page = include_str!("../../../../docs/retention.md");
    let grants =
        page.split("```sql\n").find(|part| part.starts_with("CREATE ROLE twice_archivist"));
    database.sql(grants.and_then(|part| part.split("```").next()).unwrap()).unwrap();
    let url = database.url_of("twice_archivist", "choose-another", Cluster::shared().port());
    let archivist = open(&url).await.unwrap();
    let text = || "there".to_owned();
    let (run, by, export, export_digest) = (claim.run.id, text(), text(), text());
    let prune = Prune { run, expected_head, by, export, export_digest };
    let tombstone = archivist.prune(prune).await.unwrap();
    assert_eq!(owner.tombstone(&tombstone.run).await.unwrap(), Some(tombstone));
    for statement in ["TRUNCATE ledger_entry", "DELETE FROM tombstone", "DELETE FROM definition"] {
        let refused = database.sql(&format!("SET ROLE twice_archivist; {statement}"));
        let error = refused.expect_err(statement);
        assert!(error.contains("permission denied"), "{statement}: {error}");
    }
}

#[tokio::test]
async fn a_role_needs_no_more_than_is_written_down() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    let owner = ledger(&database).await;
    let page = include_str!("../../../../docs/postgres.md");
    let grants = page.split("```sql\n").find(|part| part.starts_with("CREATE ROLE twice_worker"));
    let grants = grants.and_then(|part| part.split("```").next()).unwrap();
    database.sql(grants).unwrap();
    let url = database.url_of("twice_worker", "choose-another", Cluster::shared().port());
    let worker = open(&url).await.unwrap();
    let (claim, story) = story(&*worker, "r1").await;
    worker.put_definition("sha256:other", "text").await.unwrap();
    worker.put_definition("sha256:other", "text").await.unwrap();
    worker.put_module(&name("refund"), "sha256:m", b"m", AT).await.unwrap();
    worker.renew(&claim.run.id, claim.fence, 600_000).await.unwrap();
    let late = crate::support::late("so it was");
    worker.observe(&claim.run.id, &story.effect.id, late, AT).await.unwrap();
    assert_eq!(verified_chain(&*worker, &claim.run.id).await.len(), 7);
    assert_eq!(worker.modules().await.unwrap(), owner.modules().await.unwrap());
    for statement in [
        "DELETE FROM ledger_entry",
        "UPDATE ledger_entry SET body = '{}'",
        "TRUNCATE ledger_entry",
        "ALTER TABLE ledger_entry DISABLE TRIGGER ALL",
        "DROP TABLE ledger_entry CASCADE",
        "CREATE TABLE mine (n BIGINT)",
        "CREATE TEMPORARY TABLE ledger_entry (n BIGINT)",
        "DELETE FROM run",
        "UPDATE definition SET body = ''",
        "INSERT INTO effect_transition VALUES ('CONFIRMED', 'x', 'FAILED')",
        "INSERT INTO schema_migration VALUES (9, 'x', 'x')",
        "INSERT INTO tombstone SELECT t.* FROM tombstone t",
    ] {
        let refused = database.sql(&format!("SET ROLE twice_worker; {statement}"));
        let error = refused.expect_err(statement);
        assert!(
            error.contains("permission denied") || error.contains("must be owner"),
            "{statement}: {error}"
        );
    }
    // An empty database is none that such a role can open.
    let empty = Cluster::shared().database();
    let url = empty.url_of("twice_worker", "choose-another", Cluster::shared().port());
    let error = open(&url).await.unwrap_err().to_string();
    assert!(error.contains("open it once as its owner"), "{error}");
}

#[tokio::test]
async fn a_server_that_would_lose_what_it_confirms_is_refused() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let cluster = Cluster::start();
    let database = cluster.database();
    let before = ledger(&database).await;
    let claim = start_claimed(&*before, "r1").await;
    for setting in ["fsync", "full_page_writes", "synchronous_commit"] {
        cluster.set(setting, "'off'");
        let error = open(&database.url()).await.unwrap_err();
        assert!(matches!(error, LedgerError::Open { .. }));
        let error = error.to_string();
        assert!(error.contains(&format!("set {setting} = on")), "{error}");
        assert!(error.contains("127.0.0.1") && !error.contains(PASSWORD), "{error}");
        cluster.set(setting, "'on'");
    }
    cluster.set("synchronous_commit", "'local'");
    open(&database.url()).await.unwrap().close().await;
    cluster.set("synchronous_commit", "'on'");
    // A role or a URL may ask for it as well.
    let asked = format!("{}?options=-c%20synchronous_commit%3Doff", database.url());
    let error = open(&asked).await.unwrap_err().to_string();
    assert!(error.contains("set synchronous_commit = on"), "{error}");
    cluster
        .sql("postgres", &format!("ALTER ROLE {ROLE} SET default_transaction_read_only = on"))
        .unwrap();
    let again = open(&database.url()).await.unwrap();
    again.append(append(&claim, vec![parked(AT)])).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_opened_says_why() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    let port = Cluster::shared().port();
    Cluster::shared()
        .sql("postgres", "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' LOCALE_PROVIDER 'libc' TEMPLATE template0")
        .unwrap();
    for (url, reasons) in [
        (
            database.url_of(ROLE, "hunter22-wrong", port),
            ["password authentication failed", "check the user"],
        ),
        (
            database.url_of("nobody-here", "hunter22-wrong", port),
            ["password authentication failed", "pg_hba.conf"],
        ),
        (
            format!("postgres://{ROLE}:{PASSWORD}@127.0.0.1:{port}/none"),
            ["does not exist", "CREATE DATABASE"],
        ),
        (
            format!("postgres://{ROLE}:{PASSWORD}@127.0.0.1:{port}/latin"),
            ["encoding is LATIN1", "ENCODING 'UTF8'"],
        ),
        (
            database.url_of(ROLE, "hunter22-wrong", 1),
            ["onnection refused", "PostgreSQL server runs there"],
        ),
        (format!("{}?sslmode=verify-full", database.url()), ["TLS", "sslmode"]),
        (format!("{}?passwrod=hunter22-wrong", database.url()), ["`passwrod`", "take it out"]),
        ("postgres://ann:hunter22-wrong@db:port/x".to_owned(), ["port", "postgres://USER"]),
    ] {
        let error = open(&url).await.unwrap_err();
        assert!(matches!(error, LedgerError::Open { .. }), "{error:?}");
        let error = error.to_string();
        for reason in reasons {
            assert!(error.contains(reason), "{reason}: {error}");
        }
        assert!(!error.contains("hunter22") && !error.contains(PASSWORD), "{error}");
    }
}

/// I10: the database's own password is a secret like any other.
#[tokio::test]
async fn the_password_of_the_database_is_kept_out_of_it() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    let ledger = ledger(&database).await;
    let claim = start_claimed(&*ledger, "r1").await;
    let mut story = Story::of_run(&claim.run.id, "refund", claim.fence, AT)
        .failed(&format!("cannot reach {}", database.url()), AT);
    ledger.append(story.write(&claim)).await.unwrap();
    let stored = database
        .sql("SELECT last_error FROM effect UNION ALL SELECT body FROM ledger_entry")
        .unwrap();
    assert!(stored.contains("cannot reach") && !stored.contains(PASSWORD), "{stored}");
    assert!(!format!("{ledger:?}").contains(PASSWORD));
}

/// A holder that never lets go is an error in the end, and one after which everything goes on.
#[tokio::test]
async fn waiting_for_another_process_has_an_end() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    let first = ledger(&database).await;
    let claim = start_claimed(&*first, "r1").await;
    let options = LedgerOptions { busy_timeout_ms: 20, ..LedgerOptions::default() };
    let ledger = SqlLedger::open(&database.url(), options).await.unwrap();
    let other = start_claimed(&ledger, "r2").await;
    let mut holder = sqlx::PgConnection::connect(&database.url()).await.unwrap();
    sqlx::raw_sql("BEGIN; SELECT 1 FROM run WHERE id = 'r1' FOR UPDATE")
        .execute(&mut holder)
        .await
        .unwrap();
    let refused = ledger.append(append(&claim, vec![parked(AT)])).await;
    assert!(matches!(refused, Err(LedgerError::NotApplied { .. })), "{refused:?}");
    assert!(ledger.run(&claim.run.id).await.unwrap().is_some(), "reading needs no lock");
    ledger.append(append(&other, vec![parked(AT)])).await.unwrap();
    // Whoever is held is passed over by a claim, though it is due.
    ledger.start_run(new_run("r3", AT)).await.unwrap();
    sqlx::raw_sql("SELECT 1 FROM run WHERE id = 'r3' FOR UPDATE")
        .execute(&mut holder)
        .await
        .unwrap();
    let outcome = ledger.claim(&by("w1"), &Wanted::any(), AT).await.unwrap();
    assert!(matches!(outcome, ClaimOutcome::Nothing), "{outcome:?}");
    sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
    ledger.append(append(&claim, vec![parked(AT)])).await.unwrap();
}

#[tokio::test]
async fn a_server_that_was_away_is_used_again() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let cluster = Cluster::start();
    let database = cluster.database();
    let ledger = ledger(&database).await;
    let claim = start_claimed(&*ledger, "r1").await;
    for _ in 0..2 {
        ledger.append(append(&claim, vec![parked(AT)])).await.unwrap();
        assert!(ledger.run(&claim.run.id).await.unwrap().is_some());
        cluster.stop();
        let refused = ledger.append(append(&claim, vec![parked(AT)])).await;
        assert!(matches!(refused, Err(LedgerError::NotApplied { .. })), "{refused:?}");
        cluster.go_on();
        assert!(ledger.run(&claim.run.id).await.unwrap().is_some());
        ledger.append(append(&claim, vec![parked(AT)])).await.unwrap();
        // Stopped and started between two writes, nobody notices.
        cluster.stop();
        cluster.go_on();
        ledger.append(append(&claim, vec![parked(AT)])).await.unwrap();
    }
    assert_eq!(verified_chain(&*ledger, &claim.run.id).await.len(), 2 + 6);
}
