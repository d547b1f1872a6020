//! A server that follows a script, byte by byte: it can be cut off at any point of an exchange, which no well-behaved
//! HTTP library lets a test do.

mod script;
mod tls;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use self::script::Connection;
pub use self::script::{Script, Step, reply};
pub use self::tls::{Authority, TlsServer};

/// What a server has seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Connections accepted.
    pub connections: usize,
    /// Complete requests, head and body, in the order of their arrival.
    pub requests: Vec<String>,
    /// Bytes received, above TLS.
    pub bytes: usize,
}

/// A server on a port of its own at the loopback interface.
pub struct FaultServer {
    address: SocketAddr,
    tls: bool,
    seen: Arc<Mutex<Seen>>,
    stop: watch::Sender<bool>,
    accepting: JoinHandle<()>,
}

impl FaultServer {
    /// A server that treats its first connection by the first script, and so on. A connection more than there are scripts
    /// is served with status 500, and counted.
    ///
    /// # Panics
    /// When no port can be had.
    pub async fn start(tls: Option<TlsServer>, scripts: Vec<Script>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (stop, stopped) = watch::channel(false);
        let is_tls = tls.is_some();
        let accepting = tokio::spawn(accept(listener, tls, scripts, Arc::clone(&seen), stopped));
        Self { address, tls: is_tls, seen, stop, accepting }
    }

    /// Where it is, by the name that [`Authority`] gives certificates for.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://localhost:{}", self.address.port())
    }

    /// Ends it and tells what it saw.
    ///
    /// # Panics
    /// When one of its tasks did.
    pub async fn finish(self) -> Seen {
        self.stop.send_replace(true);
        self.accepting.await.expect("the server does not panic");
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsServer>,
    scripts: Vec<Script>,
    seen: Arc<Mutex<Seen>>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut scripts = VecDeque::from(scripts);
    let mut connections = JoinSet::new();
    loop {
        let socket = tokio::select! {
            biased;
            accepted = listener.accept() => accepted.expect("a listening socket accepts").0,
            _ = stopped.wait_for(|stopped| *stopped) => break,
        };
        seen.lock().unwrap_or_else(PoisonError::into_inner).connections += 1;
        let script = scripts.pop_front().unwrap_or_else(|| {
            vec![Step::ReadRequest, reply(500, &[], "{\"error\":\"unexpected connection\"}")]
        });
        let (tls, seen, mut stopped) = (tls.clone(), Arc::clone(&seen), stopped.clone());
        connections.spawn(async move {
            tokio::select! {
                // A client that goes away is a script's natural end.
                _ = serve(socket, tls, script, seen) => {}
                _ = stopped.wait_for(|stopped| *stopped) => {}
            }
        });
    }
    while let Some(ended) = connections.join_next().await {
        ended.expect("a connection's script does not panic");
    }
}

async fn serve(
    socket: TcpStream,
    tls: Option<TlsServer>,
    script: Script,
    seen: Arc<Mutex<Seen>>,
) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut connection = match tls {
        Some(tls) if script.first() != Some(&Step::SkipTls) => {
            Connection::tls(tls.accept(socket).await?, seen)
        }
        Some(_) | None => Connection::plain(socket, seen),
    };
    for step in script {
        connection.perform(step).await?;
    }
    connection.close().await
}

/// The URL of a port at which nothing listens.
///
/// # Panics
/// When no port can be had.
pub async fn closed_port(scheme: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("a bound socket has an address").port();
    drop(listener);
    format!("{scheme}://127.0.0.1:{port}")
}

/// A port at which connections are neither accepted nor refused, as behind a firewall that drops packets: its queue of
/// connections is full.
pub struct Unanswered {
    address: SocketAddr,
    _listener: TcpListener,
    _queue: Vec<TcpStream>,
}

impl Unanswered {
    /// Fills a queue.
    ///
    /// # Panics
    /// When the system's queue has no end.
    pub async fn start() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        let listener = socket.listen(1).expect("a bound socket listens");
        let address = listener.local_addr().expect("a bound socket has an address");
        let mut queue = Vec::new();
        for _ in 0..64 {
            let connecting = TcpStream::connect(address);
            match tokio::time::timeout(Duration::from_millis(200), connecting).await {
                Ok(connection) => queue.push(connection.expect("the queue takes it")),
                Err(_) => return Self { address, _listener: listener, _queue: queue },
            }
        }
        panic!("the queue of connections has no end");
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self, scheme: &str) -> String {
        format!("{scheme}://{}", self.address)
    }
}
