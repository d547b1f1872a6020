//! A write that rests on what is no longer so. On `SQLite` no other process can come between what a transaction read and
//! what it writes, as it holds the write lock from its first statement; on a database that locks rows one can. Here a
//! trigger of the file stands in for it: when a definition is stored, the run is taken over by someone else, within the
//! very transaction of a write that was decided before.

use std::sync::Arc;

use serde_json::json;
use sqlx::Connection as _;
use twice_core::chain::{Content, NewEntry};
use twice_core::event::RunEvent;
use twice_core::ids::{Name, WorkerId};
use twice_core::run::Priority;
use twice_core::time::Timestamp;
use twice_ledger::{
    Append, Claim, ClaimBy, Ledger, LedgerError, LedgerOptions, NewRun, SqlLedger, Started,
};

use crate::host::{LEASE_MS, run_id};
use crate::invariants::{Broken, entries, holds};

const DEFINITION: &str = "sha256:definition";
/// Another worker takes the run, whenever the definition is stored that says so.
const TAKEN: &str = "CREATE TRIGGER taken AFTER INSERT ON definition WHEN NEW.digest = 'sha256:taken' \
     BEGIN UPDATE run SET fence = fence + 1, worker = 'another' WHERE id = 'run-1'; END";

/// Two ledgers on one file: a worker of the first writes, while one of the second takes its run. Nothing that the first
/// writes may be there, and it has to be told.
///
/// # Errors
/// [`Broken`] when it is not so.
///
/// # Panics
/// When something cannot be set up.
pub async fn row_count() -> Result<(), Broken> {
    for renews in [true, false] {
        let at = format!("boundary={}, two ledgers", if renews { "renewal" } else { "append" });
        let dir = tempfile::tempdir().expect("a temporary folder can be made");
        let path = dir.path().join("twice.db");
        let path = path.to_str().expect("a temporary folder has a readable name");
        let open = || SqlLedger::open(path, LedgerOptions::default());
        let first: Arc<dyn Ledger> = Arc::new(open().await.expect("the ledger can be opened"));
        let second = open().await.expect("the ledger can be opened twice");
        let claim = start(&*first).await;
        let mut file = sqlx::SqliteConnection::connect(path).await.expect("the file can be opened");
        sqlx::raw_sql(TAKEN).execute(&mut file).await.expect("a trigger can be made");

        // Both wait when the writer looks, so that they are one transaction.
        let taken = first.put_definition("sha256:taken", "text");
        let written = async {
            if renews {
                first.renew(&claim.run.id, claim.fence, LEASE_MS).await.map(drop)
            } else {
                first.append(parked(&claim)).await.map(drop)
            }
        };
        let (taken, written) = tokio::join!(taken, written);
        assert!(taken.is_ok(), "{taken:?}");
        let told = matches!(written, Err(LedgerError::Fenced { .. }));
        holds(told, "I7", &at, || format!("a worker that lost its run was told {written:?}"))?;
        let run = second.run(&claim.run.id).await.expect("the ledger can be read");
        let run = run.expect("the run exists");
        let another = run.worker.as_ref().map(WorkerId::as_str);
        assert_eq!(another, Some("another"), "the schedule does not do what it is for");
        let count = entries(&second, &claim.run.id).await.len();
        holds(count == 2, "I7", &at, || format!("the chain has {count} entries"))?;
        first.close().await;
        second.close().await;
    }
    Ok(())
}

async fn start(ledger: &dyn Ledger) -> Claim {
    ledger.put_definition(DEFINITION, "text").await.expect("a definition can be stored");
    let name = Name::parse("refunds").expect("this is a name");
    let event = RunEvent::Started {
        workflow: name.clone(),
        version: 1,
        definition: DEFINITION.to_owned(),
        input: json!({}),
        identity_alg: 1,
        priority: Priority::default(),
        parent: None,
    };
    let by = ClaimBy {
        worker: WorkerId::parse("first").expect("this is a worker id"),
        lease_ms: LEASE_MS,
    };
    let run = NewRun {
        id: run_id("run-1"),
        caller_key: None,
        workflow: name,
        definition: DEFINITION.to_owned(),
        input: json!({}),
        priority: Priority::default(),
        entry: NewEntry { content: Content::Run(event), at: Timestamp(1) },
        claim: Some(by),
        parent_fence: None,
    };
    match ledger.start_run(run).await.expect("a run can be started") {
        Started::Created(Some(claim)) => claim,
        other => panic!("{other:?}"),
    }
}

fn parked(claim: &Claim) -> Append {
    let event = RunEvent::Parked { why: "a test".to_owned(), until: None };
    Append {
        run: claim.run.id.clone(),
        fence: claim.fence,
        entries: vec![NewEntry { content: Content::Run(event), at: Timestamp(2) }],
        effects: Vec::new(),
        run_change: None,
        progress_made: false,
        past_pivot: false,
    }
}
