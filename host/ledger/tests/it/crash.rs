//! Other processes: one that holds the file all the time, and one that is killed while it writes. Each test runs itself
//! again as that process.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::{Connection, SqliteConnection};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use twice_core::ids::RunId;
use twice_core::time::Timestamp;
use twice_ledger::{EffectFilter, Ledger, LedgerOptions, RunFilter, SqlLedger};

use crate::file::start_claimed;
use crate::support::{DEFINITION, Story, append, parked, verified_chain};

const AT: Timestamp = Timestamp(1);
/// Set in the other process: the file, and the round.
const FILE: &str = "TWICE_TEST_LEDGER";
const ROUND: &str = "TWICE_TEST_ROUND";

/// Runs a test of this binary as another process; it speaks through its standard error.
fn other_process(test: &str, file: &Path, round: usize) -> (Child, Lines<BufReader<ChildStderr>>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(FILE, file)
        .env(ROUND, round.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stderr.take().unwrap()).lines();
    (child, said)
}

fn is_other_process() -> Option<PathBuf> {
    std::env::var_os(FILE).map(PathBuf::from)
}

async fn open(path: &Path) -> Arc<SqlLedger> {
    Arc::new(SqlLedger::open(path.to_str().unwrap(), LedgerOptions::default()).await.unwrap())
}

/// BR-48: a writer that is there all the time costs time, and nothing else.
#[tokio::test]
async fn another_process_that_writes_all_the_time_is_waited_for() {
    if let Some(path) = is_other_process() {
        return hammer(&path).await;
    }
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("twice.db");
    let ledger = open(&path).await;
    ledger.put_definition(DEFINITION, "text").await.unwrap();
    let test = "crash::another_process_that_writes_all_the_time_is_waited_for";
    let (mut child, mut said) = other_process(test, &path, 0);
    // The other process says each time that it held the file; the runs write on until it did so often enough.
    let disturbed = Arc::new(AtomicU32::new(0));
    let counting = Arc::clone(&disturbed);
    let counter = tokio::spawn(async move {
        while let Some(line) = said.next_line().await.unwrap() {
            assert_eq!(line, "held");
            counting.fetch_add(1, Ordering::Relaxed);
        }
    });
    let writers = (0..50).map(|run| {
        let (ledger, disturbed) = (Arc::clone(&ledger), Arc::clone(&disturbed));
        tokio::spawn(async move {
            let claim = start_claimed(&*ledger, &format!("r{run}")).await;
            let mut written = 2;
            while written < 12 || disturbed.load(Ordering::Relaxed) < 20 {
                ledger.append(append(&claim, vec![parked(AT)])).await.unwrap();
                written += 1;
            }
            assert_eq!(verified_chain(&*ledger, &claim.run.id).await.len(), written);
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    drop(child.stdin.take());
    assert!(child.wait().await.unwrap().success());
    counter.await.unwrap();
}

/// Holds the write lock for some milliseconds, again and again, until nobody listens.
async fn hammer(path: &Path) {
    let mut connection = SqliteConnection::connect(path.to_str().unwrap()).await.unwrap();
    sqlx::raw_sql("PRAGMA busy_timeout = 60000; CREATE TABLE other (n INTEGER) STRICT")
        .execute(&mut connection)
        .await
        .unwrap();
    let mut listening = tokio::task::spawn_blocking(|| std::io::read_to_string(std::io::stdin()));
    while !listening.is_finished() {
        sqlx::raw_sql("BEGIN IMMEDIATE; INSERT INTO other VALUES (1)")
            .execute(&mut connection)
            .await
            .unwrap();
        // This is the disturbance itself, not a wait for something.
        let held = std::time::Duration::from_millis(5);
        drop(tokio::time::timeout(held, &mut listening).await);
        sqlx::raw_sql("COMMIT").execute(&mut connection).await.unwrap();
        eprintln!("held");
    }
}

/// I3, I4: what was acknowledged is there after a kill, and whatever is there holds together.
#[tokio::test]
async fn a_killed_process_leaves_whole_chains() {
    if let Some(path) = is_other_process() {
        return write_for_ever(&path).await;
    }
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("twice.db");
    let mut acknowledged: BTreeMap<RunId, i64> = BTreeMap::new();
    for (round, acknowledgements) in [1, 25, 60, 140].into_iter().enumerate() {
        let (mut child, mut said) =
            other_process("crash::a_killed_process_leaves_whole_chains", &path, round);
        let mut heard = 0;
        while let Some(line) = said.next_line().await.unwrap() {
            let Some((run, seq)) = line.split_once(' ') else { panic!("{line}") };
            let seq = seq.parse().unwrap_or_else(|_| panic!("{line}"));
            acknowledged.insert(RunId::parse(run).unwrap(), seq);
            heard += 1;
            if heard == acknowledgements {
                child.kill().await.unwrap();
            }
        }
        assert!(heard >= acknowledgements);
        check_whole(&path, &acknowledged).await;
    }
    assert!(acknowledged.len() > 8);
}

async fn check_whole(path: &Path, acknowledged: &BTreeMap<RunId, i64>) {
    let ledger = open(path).await;
    for (run, seq) in acknowledged {
        let chain = verified_chain(&*ledger, run).await;
        assert!(
            chain.len() as i64 >= *seq,
            "{run}: {seq} was acknowledged, {} are there",
            chain.len()
        );
    }
    for run in ledger.runs(&RunFilter::default()).await.unwrap() {
        verified_chain(&*ledger, &run.id).await;
        let filter = EffectFilter { run: Some(run.id), ..EffectFilter::default() };
        for row in ledger.effects(&filter).await.unwrap() {
            let effect = ledger.effect(&row.id).await.unwrap().unwrap();
            assert_eq!(row.state, effect.shown_state(true));
            assert_eq!(row.attempts as usize, effect.attempts.len());
        }
    }
    ledger.close().await;
}

/// Eight runs that write steps until they are killed; says each acknowledged step.
async fn write_for_ever(path: &Path) {
    let round = std::env::var(ROUND).unwrap();
    let ledger = open(path).await;
    ledger.put_definition(DEFINITION, "text").await.unwrap();
    let runs = (0..8).map(|run| {
        let (ledger, id) = (Arc::clone(&ledger), format!("round-{round}-{run}"));
        tokio::spawn(async move {
            let claim = start_claimed(&*ledger, &id).await;
            for step in 0.. {
                let slot = format!("slot-{step}");
                let mut story = Story::of_run(&claim.run.id, &slot, claim.fence, AT).requested(AT);
                let head = ledger.append(story.write(&claim)).await.unwrap();
                eprintln!("{id} {}", head.seq);
            }
        })
    });
    for run in runs.collect::<Vec<_>>() {
        run.await.unwrap();
    }
}
