//! Many writers at once: shared commits, straight chains, and no write that spoils another.

use std::sync::Arc;

use twice_core::ids::Fence;
use twice_core::time::Timestamp;
use twice_ledger::{Claim, Ledger, LedgerError, LedgerOptions, SqlLedger, Wanted};
use twice_test_postgres::Cluster;

use crate::support::{
    Backend, DEFINITION, LEASE_MS, Story, all, append, by, new_run, parked, run_id, verified_chain,
};

#[tokio::test]
async fn a_lone_write_is_one_commit_and_a_refused_one_none() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        let before = backend.ledger.commits();
        let entries = (0..4).map(|_| parked(backend.at())).collect();
        backend.ledger.append(append(&claim, entries)).await.unwrap();
        assert_eq!(backend.ledger.commits(), before + 1, "{}", backend.name);
        let mut stale = append(&claim, vec![parked(backend.at())]);
        stale.fence = Fence(0);
        backend.ledger.append(stale).await.unwrap_err();
        backend.ledger.effects(&Default::default()).await.unwrap();
        assert_eq!(backend.ledger.commits(), before + 1, "{}", backend.name);
    }
}

/// BR-50.
#[tokio::test]
async fn one_chain_under_many_writers_stays_straight() {
    for backend in all().await {
        let claim = backend.start_claimed("r1").await;
        let writers = (0..16).map(|_| {
            let (ledger, claim) = (Arc::clone(&backend.ledger), claim.clone());
            let at = backend.at();
            tokio::spawn(async move {
                for _ in 0..100 {
                    ledger.append(append(&claim, vec![parked(at)])).await.unwrap();
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        assert_eq!(backend.chain("r1").await.len(), 2 + 1_600, "{}", backend.name);
    }
}

#[tokio::test]
async fn concurrent_runs_share_commits() {
    for backend in all().await.into_iter().filter(|backend| backend.name != "memory") {
        check_shared_commits(&backend).await;
    }
}

async fn check_shared_commits(backend: &Backend) {
    let mut claims = Vec::new();
    for run in 0..64 {
        claims.push(backend.start_claimed(&format!("r{run}")).await);
    }
    let before = backend.ledger.commits();
    let writers = claims.into_iter().map(|claim| {
        let ledger = Arc::clone(&backend.ledger);
        let at = backend.at();
        tokio::spawn(async move {
            for round in 0..4 {
                let slot = format!("slot-{round}");
                let mut story = Story::of_run(&claim.run.id, &slot, claim.fence, at).requested(at);
                let mut write = story.write(&claim);
                write.entries.push(parked(at));
                ledger.append(write).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let commits = backend.ledger.commits() - before;
    assert!(commits <= 64, "{}: 256 writes took {commits} commits", backend.name);
    for run in 0..64 {
        assert_eq!(backend.chain(&format!("r{run}")).await.len(), 2 + 16);
    }
}

/// A row that contradicts a chain makes the database refuse every transaction that continues it.
#[tokio::test]
async fn a_write_that_the_database_refuses_fails_alone() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("twice.db");
    let ledger = SqlLedger::open(path.to_str().unwrap(), LedgerOptions::default()).await.unwrap();
    let ledger: Arc<dyn Ledger> = Arc::new(ledger);
    let claims = claim_twenty(&*ledger).await;
    crate::file::execute(
        &path,
        "INSERT INTO ledger_entry (run_id, seq, fence, made_at, kind, body, prev_hash, hash) \
         SELECT id, head_seq + 1, 0, 0, 'run_parked', '{}', head_hash, zeroblob(32) FROM run WHERE id = 'r7'",
    )
    .await
    .unwrap();
    check_refused_alone(&ledger, claims).await;

    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    let ledger = SqlLedger::open(&database.url(), LedgerOptions::default()).await.unwrap();
    let ledger: Arc<dyn Ledger> = Arc::new(ledger);
    let claims = claim_twenty(&*ledger).await;
    database
        .sql(
            "INSERT INTO ledger_entry (run_id, seq, fence, made_at, kind, body, prev_hash, hash) \
             SELECT id, head_seq + 1, 0, 0, 'run_parked', '{}', head_hash, decode(repeat('00', 32), 'hex') \
             FROM run WHERE id = 'r7'",
        )
        .unwrap();
    check_refused_alone(&ledger, claims).await;
}

async fn claim_twenty(ledger: &dyn Ledger) -> Vec<Claim> {
    ledger.put_definition(DEFINITION, "text").await.unwrap();
    let at = Timestamp(1);
    let mut claims = Vec::new();
    for run in 0..20 {
        ledger.start_run(new_run(&format!("r{run}"), at)).await.unwrap();
        match ledger
            .claim(&by("w1"), &Wanted::run(&run_id(&format!("r{run}")), false), at)
            .await
            .unwrap()
        {
            twice_ledger::ClaimOutcome::Claimed(claim) => claims.push(*claim),
            other => panic!("{other:?}"),
        }
    }
    claims
}

async fn check_refused_alone(ledger: &Arc<dyn Ledger>, claims: Vec<Claim>) {
    let at = Timestamp(1);
    let writes = claims.into_iter().map(|claim| {
        let ledger = Arc::clone(ledger);
        tokio::spawn(async move { ledger.append(append(&claim, vec![parked(at)])).await })
    });
    for (run, write) in writes.collect::<Vec<_>>().into_iter().enumerate() {
        match (run, write.await.unwrap()) {
            (7, Err(LedgerError::NotApplied { action, .. })) => {
                assert_eq!(action, "write a step of a run");
            }
            (7, other) => panic!("{other:?}"),
            (_, written) => assert_eq!(written.unwrap().seq, 3, "r{run}"),
        }
    }
    for run in (0..20).filter(|run| *run != 7) {
        assert_eq!(verified_chain(&**ledger, &run_id(&format!("r{run}"))).await.len(), 3);
    }
    ledger.renew(&run_id("r7"), Fence(1), LEASE_MS).await.unwrap();
}
