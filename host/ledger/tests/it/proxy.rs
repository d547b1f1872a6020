//! A network between ledger and server that fails at the worst moments: what is said of a write is what became of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use twice_core::time::Timestamp;
use twice_ledger::{Ledger, LedgerError};
use twice_test_postgres::{Cluster, PASSWORD, ROLE};

use crate::file::start_claimed;
use crate::postgres::open;
use crate::support::{DEFINITION, append, parked, verified_chain};

const AT: Timestamp = Timestamp(1);

/// Where the next connection that comes there is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Cut {
    Nowhere,
    /// What begins a transaction does not reach the server.
    BeforeBegin,
    /// The statement after that does not.
    AfterBegin,
    /// What commits it does not.
    BeforeCommit,
    /// It does, but the answer does not come back.
    AfterCommit,
}

#[derive(Clone)]
struct Proxy {
    port: u16,
    cut: Arc<AtomicU8>,
    connections: Arc<AtomicU32>,
}

impl Proxy {
    async fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let proxy = Self {
            port,
            cut: Arc::new(AtomicU8::new(Cut::Nowhere as u8)),
            connections: Arc::new(AtomicU32::new(0)),
        };
        let accepting = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                accepting.connections.fetch_add(1, Ordering::Relaxed);
                let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                tokio::spawn(accepting.clone().carry(client, server));
            }
        });
        proxy
    }

    fn cut(&self, cut: Cut) {
        self.cut.store(cut as u8, Ordering::SeqCst);
    }

    /// Whether the cut is to be made here; it is made once.
    fn is_cut(&self, cut: Cut) -> bool {
        let (here, nowhere) = (cut as u8, Cut::Nowhere as u8);
        self.cut.compare_exchange(here, nowhere, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Dropping both ends is the cut.
    async fn carry(self, mut client: TcpStream, mut server: TcpStream) {
        let (mut asked, mut answered) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        let (mut begun, mut committing) = (false, false);
        loop {
            tokio::select! {
                read = client.read(&mut asked) => {
                    let Ok(1..) = read else { return };
                    let chunk = &asked[..read.unwrap()];
                    let says = |word: &[u8]| chunk.windows(word.len()).any(|part| part == word);
                    if begun && self.is_cut(Cut::AfterBegin) {
                        return;
                    }
                    if says(b"BEGIN ISOLATION") {
                        if self.is_cut(Cut::BeforeBegin) {
                            return;
                        }
                        begun = true;
                    }
                    if says(b"COMMIT\0") {
                        if self.is_cut(Cut::BeforeCommit) {
                            return;
                        }
                        (begun, committing) = (false, true);
                    }
                    if server.write_all(chunk).await.is_err() {
                        return;
                    }
                }
                read = server.read(&mut answered) => {
                    let Ok(1..) = read else { return };
                    if std::mem::take(&mut committing) && self.is_cut(Cut::AfterCommit) {
                        return;
                    }
                    if client.write_all(&answered[..read.unwrap()]).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn a_cut_connection_is_told_apart_by_what_may_have_happened() {
    if twice_test_postgres::is_missing() {
        return;
    }
    let database = Cluster::shared().database();
    let proxy = Proxy::before(Cluster::shared().port()).await;
    let ledger = open(&database.url_of(ROLE, PASSWORD, proxy.port)).await.unwrap();
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
        let connections = proxy.connections.load(Ordering::Relaxed);
        proxy.cut(cut);
        let appended = ledger.append(append(&claim, vec![parked(AT)])).await;
        assert!(proxy.is_cut(Cut::Nowhere), "{cut:?} was never met");
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
        let opened = proxy.connections.load(Ordering::Relaxed) - connections;
        assert!(opened > 0 || cut == Cut::Nowhere, "{cut:?}");
    }
}
