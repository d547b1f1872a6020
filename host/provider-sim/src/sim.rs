//! Starting, driving and stopping a simulator.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::ANY_PORT;
use crate::clock::Clock;
use crate::connection::{Connection, Loopback};
use crate::control::WaitFor;
use crate::keys::InFlight;
use crate::limits::{PAGE_MAX, STOP_MS_MAX};
use crate::server::{App, Shared, router};
use crate::store::{Counters, Object, Request, Store, StoreError};
use crate::switches::{ReplaceError, Switch, SwitchState, Switches};

/// How to start a simulator.
#[derive(Clone)]
pub struct SimConfig {
    /// Where to listen; an address of this machine only.
    pub listen: SocketAddr,
    /// The database file, made when it is not there.
    pub database: PathBuf,
    /// The key that requests must carry as `Authorization: Bearer`; none is asked for otherwise.
    pub api_key: Option<String>,
    /// The switches to start with. When empty, those stored in the database stay.
    pub switches: Vec<Switch>,
}

impl SimConfig {
    /// A simulator on any free port, with this database, no API key and no switches.
    #[must_use]
    pub fn new(database: impl Into<PathBuf>) -> Self {
        Self {
            listen: ANY_PORT.parse().expect("the constant is an address"),
            database: database.into(),
            api_key: None,
            switches: Vec::new(),
        }
    }
}

impl fmt::Debug for SimConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimConfig")
            .field("listen", &self.listen)
            .field("database", &self.database)
            .field("api_key", &self.api_key.as_ref().map(|_| "(redacted)"))
            .field("switches", &self.switches)
            .finish()
    }
}

/// Why a simulator did not start.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// It would have been open to other machines.
    #[error("{address} is not an address of this machine alone; listen on 127.0.0.1 or [::1]")]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}; choose another port, or 0 for any free one")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The switches cannot be set.
    #[error("cannot start with these switches")]
    Switches(#[source] ReplaceError),
    /// The database cannot be used.
    #[error("cannot use the database {}", database.display())]
    Database {
        /// The file.
        database: PathBuf,
        /// What failed.
        #[source]
        source: StoreError,
    },
}

/// A running simulator. Dropping it stops it at once; [`Sim::stop`] stops it in order.
#[derive(Debug)]
pub struct Sim {
    app: Shared,
    address: SocketAddr,
    server: Option<JoinHandle<()>>,
}

impl Sim {
    /// Starts a simulator; it listens when this returns.
    ///
    /// # Errors
    /// [`SimError`] when the address, the database or a switch cannot be used.
    pub async fn start(config: SimConfig) -> Result<Self, SimError> {
        if !config.listen.ip().is_loopback() {
            return Err(SimError::NotLoopback { address: config.listen });
        }
        let unusable = |source| SimError::Database { database: config.database.clone(), source };
        let store = Store::open(&config.database).await.map_err(unusable)?;
        let switches = Switches::load(store.clone()).await.map_err(unusable)?;
        if !config.switches.is_empty() {
            switches.replace(config.switches.clone()).await.map_err(SimError::Switches)?;
        }
        let clock = Clock::with_offset_ms(store.clock_offset_ms().await.map_err(unusable)?);
        let cannot_listen = |source| SimError::Listen { address: config.listen, source };
        let listener = TcpListener::bind(config.listen).await.map_err(cannot_listen)?;
        let address = listener.local_addr().map_err(cannot_listen)?;
        let app = Arc::new(App {
            store,
            switches,
            clock,
            in_flight: InFlight::default(),
            paused: Arc::default(),
            continued: watch::Sender::new(0),
            changed: watch::Sender::new(0),
            stopping: watch::Sender::new(false),
            authorization: config.api_key.map(|key| format!("Bearer {key}")),
        });
        let service = router(Arc::clone(&app)).into_make_service_with_connect_info::<Connection>();
        let stopping = Arc::clone(&app);
        let server = tokio::spawn(async move {
            let shutdown = async move { stopping.stopped().await };
            // Serving ends only by the shutdown; accepting never fails for good.
            let _ = axum::serve(Loopback(listener), service).with_graceful_shutdown(shutdown).await;
        });
        Ok(Self { app, address, server: Some(server) })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL of the services, without a slash at the end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Replaces the switches; their counts start anew.
    ///
    /// # Errors
    /// [`ReplaceError`]; the switches are as before.
    pub async fn set_switches(
        &self,
        switches: impl IntoIterator<Item = Switch>,
    ) -> Result<(), ReplaceError> {
        self.app.switches.replace(switches.into_iter().collect()).await
    }

    /// The switches and what became of them.
    #[must_use]
    pub fn switches(&self) -> Vec<SwitchState> {
        self.app.switches.all()
    }

    /// The counters, read at one instant.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn counters(&self) -> Result<Counters, StoreError> {
        self.app.store.counters().await
    }

    /// The books after the object with this `seq` (0: from their start), oldest first, at most a page of them.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn objects(&self, after: i64) -> Result<Vec<Object>, StoreError> {
        self.app.store.objects(after, PAGE_MAX).await
    }

    /// The log after the request with this `seq` (0: from its start), oldest first, at most a page of it.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn requests(&self, after: i64) -> Result<Vec<Request>, StoreError> {
        self.app.store.requests(after, PAGE_MAX).await
    }

    /// Waits until so many were counted, of one operation or of all. False when the time was over before.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be read.
    pub async fn wait(
        &self,
        wait_for: WaitFor,
        count: u64,
        operation: Option<&str>,
        timeout: Duration,
    ) -> Result<bool, StoreError> {
        Ok(self.app.wait(wait_for, count, operation, timeout).await?.0)
    }

    /// Lets paused replies go on. Tells how many were paused.
    pub fn go_on(&self) -> u64 {
        self.app.go_on()
    }

    /// Moves the clock by so many milliseconds: objects and keys age without waiting.
    ///
    /// # Errors
    /// [`StoreError`] when the offset cannot be stored.
    pub async fn advance_clock(&self, ms: i64) -> Result<(), StoreError> {
        self.app.advance_clock(ms).await
    }

    /// Sets what the model answers, one line per call.
    ///
    /// # Errors
    /// [`StoreError`] when the script cannot be stored.
    pub async fn set_script(&self, lines: &[Value]) -> Result<(), StoreError> {
        self.app.store.set_script(lines).await
    }

    /// Forgets everything.
    ///
    /// # Errors
    /// [`StoreError`] when the database cannot be written.
    pub async fn reset(&self) -> Result<(), StoreError> {
        self.app.reset().await
    }

    /// Stops it: requests at work end as if the provider had crashed, and the database is closed.
    pub async fn stop(mut self) {
        self.app.stopping.send_replace(true);
        if let Some(mut server) = self.server.take()
            && tokio::time::timeout(Duration::from_millis(STOP_MS_MAX), &mut server).await.is_err()
        {
            server.abort();
        }
        self.app.store.close().await;
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.app.stopping.send_replace(true);
        if let Some(server) = &self.server {
            server.abort();
        }
    }
}
