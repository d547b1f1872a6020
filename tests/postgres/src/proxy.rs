//! A network between a client and its server that is cut at the worst moments: around the commit of a transaction.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

/// Where the next connection that comes there is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Cut {
    /// None is.
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

/// Carries connections to a server, and cuts the one that comes to a [`Cut`]. Dropping it ends the accepting; connections
/// that are there go on.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    server: u16,
    cut: AtomicU8,
    connections: AtomicU32,
    ended: AtomicBool,
}

impl Proxy {
    /// A proxy before the server at this port of 127.0.0.1. While there is none, connections are refused by closing them.
    ///
    /// # Panics
    /// When it cannot listen.
    #[must_use]
    pub fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("this machine has a free port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let shared = Arc::new(Shared {
            server,
            cut: AtomicU8::new(Cut::Nowhere as u8),
            connections: AtomicU32::new(0),
            ended: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if accepting.ended.load(Ordering::SeqCst) {
                    return;
                }
                if let Ok(client) = client {
                    accepting.connections.fetch_add(1, Ordering::Relaxed);
                    carry(&accepting, client);
                }
            }
        });
        Self { port, shared }
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Cuts the next connection that comes there, once.
    pub fn cut(&self, cut: Cut) {
        self.shared.cut.store(cut as u8, Ordering::SeqCst);
    }

    /// Whether the cut that was asked for was made.
    #[must_use]
    pub fn has_cut(&self) -> bool {
        self.shared.cut.load(Ordering::SeqCst) == Cut::Nowhere as u8
    }

    /// How many connections there were so far.
    #[must_use]
    pub fn connections(&self) -> u32 {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // Whoever accepts looks once more.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    /// Whether the cut is to be made here; it is made once.
    fn is_cut(&self, cut: Cut) -> bool {
        let (here, nowhere) = (cut as u8, Cut::Nowhere as u8);
        self.cut.compare_exchange(here, nowhere, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

/// A connection is two threads, one for each direction; whichever ends closes both ends, which is the cut.
fn carry(shared: &Arc<Shared>, client: TcpStream) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", shared.server)) else {
        return;
    };
    let ends = [client.try_clone(), server.try_clone()];
    let [Ok(client_back), Ok(server_back)] = ends else { return };
    for end in [&client, &server] {
        // Slower otherwise, and no more.
        let _ = end.set_nodelay(true);
    }
    let committing = Arc::new(AtomicBool::new(false));
    let (asking, answering) = (Arc::clone(shared), Arc::clone(shared));
    let told = Arc::clone(&committing);
    std::thread::spawn(move || {
        let mut begun = false;
        pump(client, server, |chunk| {
            let says = |word: &[u8]| chunk.windows(word.len()).any(|part| part == word);
            if begun && asking.is_cut(Cut::AfterBegin) {
                return false;
            }
            if says(b"BEGIN ISOLATION") {
                begun = true;
                return !asking.is_cut(Cut::BeforeBegin);
            }
            if says(b"COMMIT\0") {
                begun = false;
                if asking.is_cut(Cut::BeforeCommit) {
                    return false;
                }
                // Before the server can have heard of it.
                told.store(true, Ordering::SeqCst);
            }
            true
        });
    });
    std::thread::spawn(move || {
        pump(server_back, client_back, |_| {
            !(committing.swap(false, Ordering::SeqCst) && answering.is_cut(Cut::AfterCommit))
        });
    });
}

/// Hands on what comes, as long as it may.
fn pump(mut from: TcpStream, mut to: TcpStream, mut may_pass: impl FnMut(&[u8]) -> bool) {
    let mut chunk = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut chunk) {
        if !may_pass(&chunk[..read]) || to.write_all(&chunk[..read]).is_err() {
            break;
        }
    }
    // They may be closed already.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
