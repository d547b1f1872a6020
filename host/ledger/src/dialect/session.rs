//! A session with a Postgres server: where it is, how it is set up, and whether the server keeps what it confirms.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Row};
use url::Url;

use crate::{LedgerError, LedgerOptions};

/// Longest time the server works on one statement. It bounds what a mistake costs; none of ours comes near it.
const STATEMENT_MAX: Duration = Duration::from_secs(30);
/// How long the server lets a transaction wait for its next statement: a worker that stands still holds rows which others
/// may need, for a write that then holds up all others of its process. Well below the length of a lease.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// The oldest server whose behaviour this rests on.
const VERSION_MIN: i32 = 150_000;

/// Parameters of a URL that are understood. Anything else is refused, because the driver would log it with its value.
const PARAMETERS: [&str; 16] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
];

/// What the server says about itself. The durability of commits is fixed for this session, so that a later change of the
/// server's configuration does not weaken it unseen.
const ASK: &str = "SELECT CAST(current_setting('server_version_num') AS INTEGER), \
     CASE WHEN pg_is_in_recovery() THEN 'on' ELSE 'off' END, current_setting('server_encoding'), \
     current_setting('fsync'), current_setting('full_page_writes'), \
     set_config('synchronous_commit', current_setting('synchronous_commit'), false), \
     current_setting('synchronous_standby_names')";

/// Where a database is.
pub(super) struct Place {
    /// Without credentials.
    pub(super) location: String,
    pub(super) options: PgConnectOptions,
}

/// Whether a URL names a Postgres database.
pub(crate) fn is_url(url: &str) -> bool {
    ["postgres:", "postgresql:"].iter().any(|scheme| url.starts_with(scheme))
}

/// The password in a URL, as the driver will read it.
pub(crate) fn password(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let named = url.query_pairs().filter(|(name, _)| name == "password").last();
    let decoded = |coded: &str| {
        let query = format!("={}", coded.replace('+', "%2B"));
        url::form_urlencoded::parse(query.as_bytes()).map(|(_, value)| value.into_owned()).collect()
    };
    named.map(|(_, value)| value.into_owned()).or_else(|| url.password().map(decoded))
}

fn read(url: &str) -> Result<PgConnectOptions, String> {
    let parsed = Url::parse(url).map_err(|problem| problem.to_string())?;
    let known = |name: &str| {
        PARAMETERS.contains(&name) || name == "options" || name.starts_with("options[")
    };
    if let Some((name, _)) = parsed.query_pairs().find(|(name, _)| !known(name)) {
        return Err(format!("it has a parameter `{name}`, which is not known; take it out"));
    }
    PgConnectOptions::from_url(&parsed).map_err(|problem| problem.to_string())
}

/// Reads a URL.
///
/// # Errors
/// [`LedgerError::Open`] when it is not understood.
pub(super) fn place(url: &str, options: &LedgerOptions) -> Result<Place, LedgerError> {
    let mut given = read(url).map_err(|problem| LedgerError::Open {
        url: "postgres://…".to_owned(),
        problem: format!("{problem}; a URL looks like postgres://USER:PASSWORD@HOST:5432/DATABASE"),
    })?;
    let host = match given.get_socket() {
        Some(folder) => folder.display().to_string(),
        None => given.get_host().to_owned(),
    };
    let database = given.get_database().unwrap_or_else(|| given.get_username()).to_owned();
    let location = format!("postgres://{host}:{}/{database}", given.get_port());
    if given.get_application_name().is_none() {
        given = given.application_name("twice");
    }
    let milliseconds = |time: Duration| time.as_millis().to_string();
    // What comes later wins over what the URL says.
    let options = given.disable_statement_logging().options([
        ("lock_timeout", options.busy_timeout_ms.max(1).to_string()),
        ("statement_timeout", milliseconds(STATEMENT_MAX)),
        ("idle_in_transaction_session_timeout", milliseconds(IDLE_MAX)),
        // Plans are kept for as long as a session lives. One that was made while a table was still small would walk it for
        // ever; every statement of ours has an index.
        ("enable_seqscan", "off".to_owned()),
    ]);
    Ok(Place { location, options })
}

/// Why a server may not hold a ledger.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Unfit {
    #[error(
        "the server is PostgreSQL {}.{}; the ledger needs 15 or newer, so upgrade the server",
        .0 / 10_000,
        .0 % 10_000
    )]
    Old(i32),
    #[error(
        "the server is a standby in recovery, which cannot write; give the address of the primary"
    )]
    Standby,
    #[error(
        "the database's encoding is {0}; texts need UTF8, so make a database with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
    )]
    Encoding(String),
    #[error(
        "{setting} is {value} on this server: {why}; set {setting} = {fix} (SHOW {setting} tells where a session stands)"
    )]
    Setting { setting: &'static str, value: String, why: &'static str, fix: &'static str },
}

/// Refuses a server that would lose what it confirms, or cannot hold a ledger at all.
pub(super) async fn check(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let row = sqlx::query(ASK).persistent(false).fetch_one(connection).await?;
    let text = |index: usize| row.try_get::<String, _>(index);
    let said = Said {
        version: row.try_get(0)?,
        in_recovery: text(1)? == "on",
        encoding: text(2)?,
        fsync: text(3)?,
        full_page_writes: text(4)?,
        synchronous_commit: text(5)?,
        standbys: text(6)?,
    };
    said.judge().map_err(|unfit| sqlx::Error::Configuration(Box::new(unfit)))
}

struct Said {
    version: i32,
    in_recovery: bool,
    encoding: String,
    fsync: String,
    full_page_writes: String,
    synchronous_commit: String,
    standbys: String,
}

impl Said {
    fn judge(self) -> Result<(), Unfit> {
        let refuse = |setting, value, why, fix| Err(Unfit::Setting { setting, value, why, fix });
        if self.version < VERSION_MIN {
            return Err(Unfit::Old(self.version));
        }
        if self.in_recovery {
            return Err(Unfit::Standby);
        }
        if self.encoding != "UTF8" {
            return Err(Unfit::Encoding(self.encoding));
        }
        if self.fsync != "on" {
            let why =
                "what it confirms may be lost with the power, and a request could be sent twice";
            return refuse("fsync", self.fsync, why, "on");
        }
        if self.full_page_writes != "on" {
            let why = "a page that was half written when the power went is not restored";
            return refuse("full_page_writes", self.full_page_writes, why, "on");
        }
        match self.synchronous_commit.as_str() {
            "off" => {
                let why =
                    "a commit is confirmed before it is on disk, and a request could be sent twice";
                refuse("synchronous_commit", self.synchronous_commit, why, "on")
            }
            "local" if !self.standbys.is_empty() => {
                let why = "a standby that takes over (synchronous_standby_names is set) may lack what was confirmed";
                refuse("synchronous_commit", self.synchronous_commit, why, "on")
            }
            _ => Ok(()),
        }
    }
}

/// Why there is no session, and what to do.
pub(super) fn explain(error: &sqlx::Error) -> String {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    let remedy = match (error, code.as_deref()) {
        // Its text says what to do.
        (sqlx::Error::Configuration(unfit), _) => return unfit.to_string(),
        (sqlx::Error::Io(_), _) => {
            "check that a PostgreSQL server runs there and can be reached, and the host and port in the URL"
        }
        (sqlx::Error::Tls(_), _) => "check sslmode and sslrootcert in the URL",
        (_, Some("28P01" | "28000")) => {
            "check the user and the password in the URL, and the server's pg_hba.conf"
        }
        (_, Some("3D000")) => {
            "make the database with CREATE DATABASE, or correct its name in the URL"
        }
        (_, Some("42501")) => "grant the role what it needs",
        (_, Some("53300")) => {
            "the server has no connection left; raise max_connections or stop others"
        }
        (_, Some("57P03")) => "the server is starting or stopping; try again",
        _ => "check the URL and the server's log",
    };
    format!("{error}; {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said() -> Said {
        Said {
            version: 150_006,
            in_recovery: false,
            encoding: "UTF8".to_owned(),
            fsync: "on".to_owned(),
            full_page_writes: "on".to_owned(),
            synchronous_commit: "on".to_owned(),
            standbys: String::new(),
        }
    }

    #[test]
    fn a_server_is_refused_for_what_it_would_lose() {
        let text = str::to_owned;
        let standbys = || text("ANY 1 (a, b)");
        for (said, refusal) in [
            (said(), None),
            (Said { version: 140_011, ..said() }, Some("15 or newer")),
            (Said { in_recovery: true, ..said() }, Some("primary")),
            (Said { encoding: text("SQL_ASCII"), ..said() }, Some("ENCODING 'UTF8'")),
            (Said { fsync: text("off"), ..said() }, Some("set fsync = on")),
            (Said { full_page_writes: text("off"), ..said() }, Some("set full_page_writes = on")),
            (
                Said { synchronous_commit: text("off"), ..said() },
                Some("set synchronous_commit = on"),
            ),
            (Said { synchronous_commit: text("local"), ..said() }, None),
            (
                Said { synchronous_commit: text("local"), standbys: standbys(), ..said() },
                Some("set synchronous_commit = on"),
            ),
            (
                Said { synchronous_commit: text("remote_write"), standbys: standbys(), ..said() },
                None,
            ),
            (Said { synchronous_commit: text("remote_apply"), ..said() }, None),
        ] {
            let judged = said.judge().err().map(|unfit| unfit.to_string());
            match (&judged, refusal) {
                (None, None) => {}
                (Some(said), Some(refusal)) => assert!(said.contains(refusal), "{said}"),
                _ => panic!("{judged:?} instead of {refusal:?}"),
            }
        }
    }

    #[test]
    fn a_location_tells_no_secret() {
        for (url, location) in [
            ("postgres://ann:hunter22@db:6000/twice", "postgres://db:6000/twice"),
            (
                "postgresql://ann@db/twice?password=hunter22&sslmode=require",
                "postgres://db:5432/twice",
            ),
            (
                "postgres:///twice?host=/run/pg&user=ann&password=hunter22",
                "postgres:///run/pg:5432/twice",
            ),
            ("postgres://ann:hunter22@db:6000", "postgres://db:6000/ann"),
        ] {
            let place = place(url, &LedgerOptions::default()).unwrap();
            assert_eq!(place.location, location, "{url}");
            assert_eq!(password(url).as_deref(), Some("hunter22"), "{url}");
        }
        assert_eq!(password("postgres://ann:a%2Bb%40+c%25d@db/twice").as_deref(), Some("a+b@+c%d"));
        for url in
            ["postgres://ann:hunter22@db:port/twice", "postgres://db/twice?passwrod=hunter22"]
        {
            let error = place(url, &LedgerOptions::default()).err().unwrap().to_string();
            assert!(!error.contains("hunter22") && error.contains("postgres://USER"), "{error}");
        }
    }
}
