//! A network between ledger and server that fails at the worst moments: what is said of a write is what became of it.

use twice_core::time::Timestamp;
use twice_ledger::{Ledger, LedgerError};
use twice_test_postgres::{Cluster, Cut, PASSWORD, Proxy, ROLE};

use crate::file::start_claimed;
use crate::postgres::open;
use crate::support::{DEFINITION, append, parked, verified_chain};

const AT: Timestamp = Timestamp(1);

#[tokio::test]
async fn a_cut_connection_is_told_apart_by_what_may_have_happened() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    let proxy = Proxy::before(Cluster::shared().port());
    let ledger = open(&database.url_of(ROLE, PASSWORD, proxy.port())).await.unwrap();
    ledger.put_definition(DEFINITION, "text").await.unwrap();
    let claim = start_claimed(&*ledger, "r1").await;
    let run = &claim.run.id;
    for (cut, told, written) in [
        // Nothing can have been written, so that it is simply written now.
        (Cut::BeforeBegin, true, 1),
        (Cut::AfterBegin, true, 1),
        // Nobody can know, so that nobody is told that it was or was not.
        (Cut::BeforeCommit, false, 0),
        (Cut::AfterCommit, false, 1),
        (Cut::Nowhere, true, 1),
    ] {
        let before = ledger.head(run).await.unwrap().seq;
        let connections = proxy.connections();
        proxy.cut(cut);
        let appended = ledger.append(append(&claim, vec![parked(AT)])).await;
        assert!(proxy.has_cut(), "{cut:?} was never met");
        match appended {
            Ok(head) => assert!(told && head.seq == before + 1, "{cut:?}"),
            Err(LedgerError::Indeterminate { action, .. }) => {
                assert!(!told, "{cut:?}");
                assert_eq!(action, "write a step of a run");
            }
            Err(error) => panic!("{cut:?}: {error:?}"),
        }
        // The ledger goes on by itself, and what it reads is what there is.
        assert_eq!(ledger.head(run).await.unwrap().seq, before + written, "{cut:?}");
        ledger.append(append(&claim, vec![parked(AT)])).await.unwrap();
        verified_chain(&*ledger, run).await;
        let opened = proxy.connections() - connections;
        assert!(opened > 0 || cut == Cut::Nowhere, "{cut:?}");
    }
}
