//! Brings a database up to the schema of this build, or refuses it.

use twice_core::identity::{hash_text, tagged_sha256};

use crate::dialect::{Connection, Dialect, Migration, Trouble};
use crate::rows::Fields;
use crate::value::Row;
use crate::{BEGIN_TRIES, LedgerError, sql};

/// Applies what is missing, in one transaction: two processes that open a new database at once make one schema.
pub(crate) async fn run(
    dialect: &dyn Dialect,
    connection: &mut dyn Connection,
) -> Result<(), LedgerError> {
    let open = |problem: String| LedgerError::Open { url: dialect.location().to_owned(), problem };
    let migrations = dialect.migrations();
    // A ledger that is up to date is opened without waiting for anyone, and by a role that may not change the schema. Where
    // the table cannot be read, what follows says why.
    if let Ok(rows) = connection.fetch(sql::MIGRATIONS, Vec::new()).await
        && compare(rows, migrations).map_err(open)? == migrations.len()
    {
        return Ok(());
    }
    let database = |error: sqlx::Error| open(dialect.explain(&error));
    let mut tried = 1;
    while let Err(error) = connection.begin_alone().await {
        if tried >= BEGIN_TRIES || dialect.judge(&error) != Trouble::InTheWay {
            return Err(database(error));
        }
        tried += 1;
    }
    let applied = apply(connection, migrations).await;
    match applied {
        Ok(()) => connection.commit(false).await.map_err(database),
        Err(problem) => {
            // The reason to refuse matters, not that nothing was left to undo.
            drop(connection.rollback().await);
            Err(open(problem))
        }
    }
}

/// How many migrations were applied; an error when they are not the first ones of these.
fn compare(rows: Vec<Row>, migrations: &[Migration]) -> Result<usize, String> {
    let mut done = 0;
    for row in rows {
        let mut fields = Fields::of("schema_migration", row);
        let read = |error: LedgerError| error.to_string();
        let version = fields.int("version").map_err(read)?;
        let name = fields.text("name").map_err(read)?;
        let digest = fields.text("digest").map_err(read)?;
        let Some(known) = migrations.get(done) else {
            return Err(format!(
                "it has schema version {version} (`{name}`), newer than the {} of this build; use the newer build that wrote it",
                migrations.len()
            ));
        };
        if known.version != version || digest_of(known) != digest {
            return Err(format!(
                "its schema version {version} (`{name}`) was made from another text than this build's `{}`; use the build that made it",
                known.name
            ));
        }
        done += 1;
    }
    Ok(done)
}

async fn apply(
    connection: &mut dyn Connection,
    migrations: &'static [Migration],
) -> Result<(), String> {
    let words = |error: sqlx::Error| {
        format!("its schema cannot be brought up to date: {error}; open it once as its owner")
    };
    connection.execute(sql::CREATE_MIGRATIONS, Vec::new()).await.map_err(words)?;
    let rows = connection.fetch(sql::MIGRATIONS, Vec::new()).await.map_err(words)?;
    let done = compare(rows, migrations)?;
    for migration in &migrations[done..] {
        connection.script(migration.text).await.map_err(|error| {
            format!("schema version {} cannot be applied: {error}", migration.version)
        })?;
        let args =
            vec![migration.version.into(), migration.name.into(), digest_of(migration).into()];
        connection.execute(sql::PUT_MIGRATION, args).await.map_err(words)?;
    }
    Ok(())
}

fn digest_of(migration: &Migration) -> String {
    hash_text(&tagged_sha256("twice/migration/v1", migration.text.as_bytes()))
}
