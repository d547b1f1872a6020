//! Postgres servers of a test process's own: made when first needed, on a free port of this machine, gone when the process
//! is, however it ends. Nothing of a server that may run on the machine is touched.
//!
//! The tools of a Postgres installation are needed (Debian: `apt-get install postgresql-15`). A test that asks [`is_missing`]
//! first is left out without them, loudly, but fails in CI.

mod guard;
mod proxy;
mod tools;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use guard::Guard;
use tools::Tools;

pub use proxy::{Cut, Proxy};
pub use tools::is_missing;

/// The role that owns the databases.
pub const ROLE: &str = "shopkeeper";
/// Its password. It is asked for on every connection that is not a test's own look behind the scenes.
pub const PASSWORD: &str = "a-password-of-tests";

/// Ports are drawn and may be taken before the server has them.
const TRIES: u32 = 5;

/// A server.
pub struct Cluster {
    tools: Tools,
    folder: PathBuf,
    port: u16,
    guard: Mutex<Guard>,
    databases: AtomicU32,
}

impl Cluster {
    /// The server that the tests of this process share.
    #[must_use]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// A server for one test, which may stop it and change its settings. Dropping it ends it.
    ///
    /// # Panics
    /// When it cannot be made, with the reason; as everything here, because a test without its server has failed.
    #[must_use]
    pub fn start() -> Self {
        let tools = Tools::find();
        let folder = tools.folder();
        let mut guard = Guard::of(&tools, &folder);
        // Texts are ordered by language unless a column says otherwise: one that does not say it is found out.
        let collation =
            ["--encoding=UTF8", "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en"];
        let access = ["--username=postgres", "--auth-local=trust", "--auth-host=scram-sha-256"];
        let mut init = tools.command("initdb");
        init.args(collation).args(access).arg("--no-sync").arg("--no-instructions");
        tools::run(init.arg("--pgdata").arg(folder.join("data")));
        for _ in 0..TRIES {
            let port = free_port();
            guard.configure(&settings(&folder, port));
            if guard.start() {
                let guard = Mutex::new(guard);
                let cluster = Self { tools, folder, port, guard, databases: AtomicU32::new(0) };
                let role = format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'");
                cluster.sql("postgres", &role).expect("a role can be made");
                return cluster;
            }
        }
        let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        panic!("no Postgres server could be started:\n{log}");
    }

    /// An empty database that [`ROLE`] owns.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn database(&self) -> Database<'_> {
        let name = format!("shop_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.sql("postgres", &format!("CREATE DATABASE {name} OWNER {ROLE}"))
            .expect("a database can be made");
        Database { cluster: self, name }
    }

    /// Its port on 127.0.0.1.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Stops it at once, as a crash would.
    ///
    /// # Panics
    /// When it does not stop.
    pub fn stop(&self) {
        self.guard.lock().expect("no test panics while it holds the guard").stop();
    }

    /// Starts it again.
    ///
    /// # Panics
    /// When it does not start.
    pub fn go_on(&self) {
        let started = self.guard.lock().expect("no test panics while it holds the guard").start();
        assert!(started, "the Postgres server does not start again");
    }

    /// Changes a setting for all sessions that begin from now on.
    ///
    /// # Panics
    /// When it cannot be changed so.
    pub fn set(&self, setting: &str, value: &str) {
        self.sql("postgres", &format!("ALTER SYSTEM SET {setting} = {value}"))
            .expect("it can be set");
        self.sql("postgres", "SELECT pg_reload_conf()").expect("settings can be read again");
        // The server reads them when it comes to it; a new session has them once the server has.
        let shown = format!("SELECT current_setting('{setting}') = {value}");
        while self.sql("postgres", &shown).expect("a setting can be read") != "t" {
            std::thread::yield_now();
        }
    }

    /// Runs statements as the superuser; hands back what they print, one row a line.
    ///
    /// # Errors
    /// What the server says against them.
    pub fn sql(&self, database: &str, statements: &str) -> Result<String, String> {
        let port = self.port.to_string();
        let mut psql = self.tools.command("psql");
        psql.env("PGOPTIONS", "").args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only"]);
        psql.args(["--set=ON_ERROR_STOP=1", "--username=postgres", "--port", &port, "--host"]);
        psql.arg(&self.folder).args(["--dbname", database, "--command", statements]);
        tools::output(&mut psql).map(|said| said.trim_end().to_owned())
    }
}

/// A database of a [`Cluster`].
pub struct Database<'c> {
    cluster: &'c Cluster,
    name: String,
}

impl Database<'_> {
    /// Its URL, with the password of [`ROLE`].
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(ROLE, PASSWORD, self.cluster.port)
    }

    /// Its URL for another role, or by way of another port.
    #[must_use]
    pub fn url_of(&self, role: &str, password: &str, port: u16) -> String {
        format!("postgres://{role}:{password}@127.0.0.1:{port}/{}", self.name)
    }

    /// Runs statements as the superuser; hands back what they print, one row a line.
    ///
    /// # Errors
    /// What the server says against them.
    pub fn sql(&self, statements: &str) -> Result<String, String> {
        self.cluster.sql(&self.name, statements)
    }

    /// Transactions per second that `pgbench` makes of a script (its own language), as the superuser, with prepared
    /// statements.
    ///
    /// # Errors
    /// What it says against the script, or that it told no rate.
    pub fn pgbench(&self, script: &str, clients: u32, seconds: u32) -> Result<f64, String> {
        let file = self.cluster.folder.join("pgbench.sql");
        std::fs::write(&file, script).map_err(|problem| problem.to_string())?;
        let mut pgbench = self.cluster.tools.command("pgbench");
        pgbench.args(["--no-vacuum", "--protocol=prepared", "--username=postgres", "--port"]);
        pgbench.arg(self.cluster.port.to_string()).arg("--host").arg(&self.cluster.folder);
        pgbench.args([format!("--client={clients}"), format!("--jobs={}", clients.min(2))]);
        pgbench.arg(format!("--time={seconds}")).arg("--file").arg(&file).arg(&self.name);
        let said = tools::output(&mut pgbench)?;
        let rate = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next());
        let rate = rate.and_then(|rate| rate.parse().ok());
        rate.ok_or_else(|| format!("pgbench told no rate:\n{said}"))
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("this machine has a free port");
    listener.local_addr().expect("a bound socket has an address").port()
}

/// Durable like any other server: the ledger looks.
fn settings(folder: &Path, port: u16) -> String {
    format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = '{}'\nmax_connections = 300\n\
         shared_buffers = '64MB'\nmax_wal_senders = 0\nwal_level = minimal\njit = off\n",
        folder.display()
    )
}
