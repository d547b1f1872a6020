//! Several ledgers on one database, as several worker processes have them.

use std::sync::Arc;

use twice_core::ids::Fence;
use twice_core::run::RunState;
use twice_core::time::Timestamp;
use twice_ledger::{
    ClaimBy, ClaimOutcome, Ledger, LedgerError, NewRun, RunFilter, Started, Wanted,
};
use twice_test_postgres::Cluster;

use crate::file::start_claimed;
use crate::postgres::{ledger, open};
use crate::support::{Story, append, by, change, new_run, parked, verified_chain};

const AT: Timestamp = Timestamp(1);

/// Three workers, each with a ledger of its own.
#[tokio::test(flavor = "multi_thread")]
async fn ledgers_on_one_database_claim_different_runs() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    let first = ledger(&database).await;
    for run in 0..60 {
        first.start_run(new_run(&format!("r{run}"), AT)).await.unwrap();
    }
    let mut workers = Vec::new();
    for worker in 0..3 {
        let ledger = open(&database.url()).await.unwrap();
        for _ in 0..3 {
            let ledger = Arc::clone(&ledger);
            let by = ClaimBy { lease_ms: 600_000, ..by(&format!("w{worker}")) };
            workers.push(tokio::spawn(async move {
                let mut mine = Vec::new();
                while let ClaimOutcome::Claimed(claim) =
                    ledger.claim(&by, &Wanted::any(), AT).await.unwrap()
                {
                    for _ in 0..3 {
                        ledger.append(append(&claim, vec![parked(AT)])).await.unwrap();
                    }
                    mine.push(claim.run.id);
                }
                mine
            }));
        }
    }
    let mut taken = Vec::new();
    for worker in workers {
        taken.extend(worker.await.unwrap());
    }
    // Whoever met only rows that others held has left; what was left over is still to be had.
    while let ClaimOutcome::Claimed(claim) =
        first.claim(&by("w9"), &Wanted::any(), AT).await.unwrap()
    {
        taken.push(claim.run.id);
    }
    assert_eq!(taken.len(), 60);
    taken.sort();
    taken.dedup();
    assert_eq!(taken.len(), 60, "a run was given to two workers");
    for run in &taken {
        let claims = verified_chain(&*first, run).await;
        let claims = claims.iter().filter(|entry| entry.kind == "run_claimed").count();
        assert_eq!(claims, 1, "{run}");
    }
}

/// BR-50, by several processes: nothing is lost and nobody is told what is not so.
#[tokio::test(flavor = "multi_thread")]
async fn chains_under_several_ledgers_stay_straight() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    let first = ledger(&database).await;
    let mut claims = Vec::new();
    for run in 0..6 {
        claims.push(start_claimed(&*first, &format!("r{run}")).await);
    }
    let second = open(&database.url()).await.unwrap();
    let mut writers = Vec::new();
    for (number, ledger) in [&first, &second, &first, &second].into_iter().enumerate() {
        for turn in 0..claims.len() {
            // Each in another order, so that locks taken in the order of arrival would meet head on.
            let claim = claims[(turn * (2 * number + 1) + number) % claims.len()].clone();
            let ledger = Arc::clone(ledger);
            writers.push(tokio::spawn(async move {
                for _ in 0..25 {
                    ledger.append(append(&claim, vec![parked(AT)])).await.unwrap();
                    ledger.renew(&claim.run.id, claim.fence, 600_000).await.unwrap();
                }
            }));
        }
    }
    let written = writers.len() * 25;
    for writer in writers {
        writer.await.unwrap();
    }
    let mut found = 0;
    for claim in &claims {
        found += verified_chain(&*second, &claim.run.id).await.len() - 2;
    }
    assert_eq!(found, written);
}

/// Starting a run is idempotent, whoever does it and wherever.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_many_start_is_started_once() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    let ledgers = [ledger(&database).await, open(&database.url()).await.unwrap()];
    for round in 0..10 {
        let starting = (0..6).map(|number| {
            let ledger = Arc::clone(&ledgers[number % 2]);
            // By the same key, half of them under ids of their own.
            let id = if number < 3 { format!("r{round}") } else { format!("r{round}-{number}") };
            let key = Some(format!("key-{round}"));
            let new = NewRun { caller_key: key, ..new_run(&id, AT) };
            tokio::spawn(async move { ledger.start_run(new).await })
        });
        let mut created = 0;
        for started in starting.collect::<Vec<_>>() {
            match started.await.unwrap() {
                Ok(Started::Created(_)) => created += 1,
                Ok(Started::Existing(_)) => {}
                Err(error) => panic!("{error}: {error:?}"),
            }
        }
        assert_eq!(created, 1, "round {round}");
    }
    let runs = ledgers[0].runs(&RunFilter::default()).await.unwrap();
    assert_eq!(runs.len(), 10);
}

/// Two runs want the same shared effect at once: one owns it, and the others learn whose it is.
#[tokio::test(flavor = "multi_thread")]
async fn an_effect_that_many_propose_has_one_owner() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    let ledgers = [ledger(&database).await, open(&database.url()).await.unwrap()];
    let mut claims = Vec::new();
    for run in 0..8 {
        claims.push(start_claimed(&*ledgers[0], &format!("r{run}")).await);
    }
    let proposing = claims.into_iter().enumerate().map(|(number, claim)| {
        let ledger = Arc::clone(&ledgers[number % 2]);
        tokio::spawn(async move {
            let mut story = Story::shared(&claim.run.id, claim.fence, AT);
            (claim.run.id.clone(), ledger.append(story.write(&claim)).await)
        })
    });
    let mut owners = Vec::new();
    let mut refused = Vec::new();
    for proposed in proposing.collect::<Vec<_>>() {
        match proposed.await.unwrap() {
            (run, Ok(_)) => owners.push(run),
            (_, Err(LedgerError::EffectOwned { owner, .. })) => refused.push(owner),
            (run, Err(error)) => panic!("{run}: {error:?}"),
        }
    }
    assert_eq!((owners.len(), refused.len()), (1, 7));
    assert!(refused.iter().all(|owner| *owner == owners[0]));
}

/// I7, across processes.
#[tokio::test]
async fn whoever_lost_the_run_writes_nothing() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    let (first, second) = (ledger(&database).await, open(&database.url()).await.unwrap());
    let none = ClaimBy { lease_ms: 0, ..by("w1") };
    first.start_run(new_run("r1", AT)).await.unwrap();
    let ClaimOutcome::Claimed(old) = first.claim(&none, &Wanted::any(), AT).await.unwrap() else {
        panic!("it is due")
    };
    let ClaimOutcome::Claimed(new) = second.claim(&by("w2"), &Wanted::any(), AT).await.unwrap()
    else {
        panic!("its lease is over")
    };
    let before = verified_chain(&*second, &new.run.id).await;
    let mut leaving = append(&old, vec![parked(AT)]);
    leaving.run_change = Some(change(RunState::Failed, None));
    for refused in [
        first.append(append(&old, vec![parked(AT)])).await.map(drop),
        first.append(leaving).await.map(drop),
        first.renew(&old.run.id, old.fence, 600_000).await.map(drop),
    ] {
        assert!(matches!(refused, Err(LedgerError::Fenced { fence: Fence(1), .. })), "{refused:?}");
    }
    assert_eq!(verified_chain(&*second, &new.run.id).await, before);
    second.append(append(&new, vec![parked(AT)])).await.unwrap();
}

/// Nobody looks at the clock of a host, however wrong it is.
#[tokio::test]
async fn leases_are_judged_by_the_clock_of_the_database() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    let (first, second) = (ledger(&database).await, open(&database.url()).await.unwrap());
    first.start_run(new_run("r1", Timestamp(i64::MAX / 2))).await.unwrap();
    let lease = ClaimBy { lease_ms: 600_000, ..by("w1") };
    let outcome = first.claim(&lease, &Wanted::any(), Timestamp(0)).await.unwrap();
    let ClaimOutcome::Claimed(claim) = outcome else { panic!("{outcome:?}") };
    let until = claim.run.lease_until.unwrap().0;
    let now = database.sql("SELECT now_ms FROM clock").unwrap().parse::<i64>().unwrap();
    assert!((now + 1..=now + 600_000).contains(&until), "{until} {now}");
    for at in [Timestamp(0), Timestamp(i64::MAX / 2)] {
        let outcome = second.claim(&by("w2"), &Wanted::run(&claim.run.id, true), at).await.unwrap();
        assert!(matches!(outcome, ClaimOutcome::Nothing), "{outcome:?}");
        assert!(second.run(&claim.run.id).await.unwrap().unwrap().lease_live);
    }
}
