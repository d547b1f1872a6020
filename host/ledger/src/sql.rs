//! Every statement, in the subset that all our databases share: each can be pasted into any of their shells.
//!
//! What differs hides behind names of the schema (the view `clock`, the type `blob`) or in `dialect`. `$1` of a statement that judges
//! leases is the instant to judge by, NULL for the database's clock.

use std::sync::LazyLock;

mod locks;
mod retention;
pub(crate) use locks::*;
pub(crate) use retention::*;

/// How many rows or ids the prepared forms of a [`Bulk`] statement take. Few sizes, so that they stay prepared; none
/// larger, because SQLite looks each numbered placeholder up by walking over all before it.
pub(crate) const SIZES: [usize; 6] = [32, 16, 8, 4, 2, 1];

macro_rules! now {
    () => {
        "COALESCE(CAST($1 AS BIGINT), (SELECT now_ms FROM clock))"
    };
}

macro_rules! select_run {
    ($($rest:expr),+) => {
        concat!(
            "SELECT r.id, r.workflow, r.definition, r.input, r.priority, r.state, r.progress, r.progress_seq, r.output, r.reason, r.cancel, r.due_at, \
             r.worker, r.fence, r.lease_until, r.crashes, r.head_seq, r.head_hash, r.created_at, r.updated_at, \
             r.parent_run, r.parent_effect, \
             CASE WHEN r.state = 'running' AND r.lease_until > ", now!(), " THEN 1 ELSE 0 END \
             FROM run r ", $($rest),+
        )
    };
}

/// Runs that are not over: they are in an index of their own, which is all that workers look at.
macro_rules! open {
    () => {
        "r.state IN ('ready', 'running', 'waiting', 'halted', 'stuck', 'quarantined')"
    };
}

/// `place`: each workflow with each priority that an open run of it has, found by leaping from one to the next, so that
/// it costs as many looks as there are places, however many runs stand at each. The `+` lets SQLite use both columns of the
/// index: without it, it would compare another type of number than the index is sorted by, and walk.
macro_rules! with_places {
    ($($rest:expr),+) => {
        concat!(
            "WITH RECURSIVE place (workflow, priority) AS (SELECT first.workflow, first.priority FROM \
             (SELECT r.workflow, r.priority FROM run r WHERE ", open!(), " ORDER BY r.workflow, r.priority LIMIT 1) AS first \
             UNION ALL SELECT n.workflow, n.priority FROM place JOIN run n ON n.id = (SELECT r.id FROM run r WHERE ",
            open!(), " AND (r.workflow, r.priority) > (place.workflow, +place.priority) ORDER BY r.workflow, r.priority LIMIT 1)) ",
            $($rest),+
        )
    };
}

macro_rules! select_entry {
    ($($rest:expr),+) => {
        concat!(
            "SELECT e.run_id, e.seq, e.fence, e.made_at, e.effect_id, e.kind, e.body, e.prev_hash, e.hash ",
            $($rest),+
        )
    };
}

/// REQUESTED under a lease that is not held any more is UNKNOWN (I5), before any worker looks at it, unless the ledger itself
/// settles it.
macro_rules! select_effect {
    ($narrow:literal) => {
        concat!(
            "SELECT l.id, l.run_id, l.node, l.visit, l.element, l.slot, l.operation, l.idempotency_key, l.request_hash, l.shown, \
             l.attempts, l.external_id, l.held, l.undoes, l.approves, l.last_error, l.updated_at FROM (SELECT f.*, \
             CASE WHEN f.state = 'REQUESTED' AND f.settled_here = 0 AND NOT (r.state = 'running' AND r.lease_until > ", now!(), ") \
             THEN 'UNKNOWN' ELSE f.state END AS shown FROM effect f JOIN run r ON r.id = f.run_id WHERE ", $narrow,
            ") AS l WHERE (CAST($2 AS TEXT) IS NULL OR l.run_id = $2) \
             AND (CAST($3 AS TEXT) IS NULL OR l.shown = $3) AND (CAST($4 AS BIGINT) = 0 OR l.held = 1) \
             AND (CAST($5 AS BIGINT) = 0 OR l.shown NOT IN ('CONFIRMED', 'FAILED')) \
             AND (CAST($8 AS BIGINT) = 0 OR l.approves IS NOT NULL) AND l.id > $6 ORDER BY l.id LIMIT $7"
        )
    };
}

pub(crate) const NOW: &str = concat!("SELECT ", now!());

pub(crate) const RUN: &str = select_run!("WHERE r.id = $2");
pub(crate) const RUN_BY_CALLER_KEY: &str = "SELECT id FROM run WHERE caller_key = $1";
/// Where runs are due.
pub(crate) const PLACES_DUE: &str = with_places!(
    "SELECT place.workflow, place.priority FROM place WHERE EXISTS (SELECT 1 FROM run r WHERE ",
    open!(),
    " AND r.workflow = place.workflow AND r.priority = place.priority AND r.claim_at <= ",
    now!(),
    ")"
);
pub(crate) const RUNS_DUE: &str = concat!(
    "SELECT r.id FROM run r WHERE ",
    open!(),
    " AND r.workflow = $2 AND r.priority = $3 AND r.claim_at <= ",
    now!(),
    " ORDER BY r.claim_at, r.id LIMIT $4"
);
macro_rules! select_runs {
    ($narrow:literal) => {
        select_run!(
            "WHERE (CAST($2 AS TEXT) IS NULL OR r.state = $2) AND (CAST($3 AS TEXT) IS NULL OR r.workflow = $3) \
             AND (CAST($5 AS BIGINT) = 0 OR ",
            open!(),
            ")",
            $narrow,
            " ORDER BY r.created_at DESC, r.id DESC LIMIT $4"
        )
    };
}

pub(crate) const RUNS: &str = select_runs!("");
/// Runs that are over and have been for long enough, in the order of their ids.
pub(crate) const RUNS_OVER: &str = select_run!(
    "WHERE r.state IN ('completed', 'failed', 'cancelled') AND (CAST($2 AS TEXT) IS NULL OR r.state = $2) AND r.updated_at <= ",
    now!(),
    " - $3 AND r.id > $4 ORDER BY r.id LIMIT $5"
);
pub(crate) const RUNS_BEFORE: &str = select_runs!(
    " AND (r.created_at, r.id) < (SELECT b.created_at, b.id FROM run b WHERE b.id = $6)"
);
/// The children of a run.
pub(crate) const CHILDREN: &str = select_runs!(" AND r.parent_run = $6");
pub(crate) const CHILDREN_BEFORE: &str = select_runs!(
    " AND r.parent_run = $6 AND (r.created_at, r.id) < (SELECT b.created_at, b.id FROM run b WHERE b.id = $7)"
);
/// Whether the run that started a run may still ask what became of it; one that failed may be ordered to be tried again.
pub(crate) const PARENT_ASKS: &str = "SELECT 1 FROM run c JOIN run r ON r.id = c.parent_run WHERE c.id = $1 AND r.state <> 'completed'";
pub(crate) const NEXT_DUE: &str = with_places!(
    "SELECT MIN(due.claim_at) - ",
    now!(),
    " FROM (SELECT (SELECT r.claim_at FROM run r WHERE ",
    open!(),
    " AND r.workflow = place.workflow AND r.priority = place.priority AND r.claim_at > ",
    now!(),
    " ORDER BY r.claim_at, r.id LIMIT 1) AS claim_at FROM place) AS due"
);
/// How many runs of each workflow stand how; what is claimable counts as ready, whatever it waited for.
pub(crate) const LOADS: &str = concat!(
    "SELECT load.workflow, load.standing, COUNT(*), ",
    now!(),
    " - MIN(load.claim_at) FROM (SELECT r.workflow, r.claim_at, CASE WHEN r.claim_at <= ",
    now!(),
    " THEN 'ready' WHEN r.state = 'ready' THEN 'waiting' ELSE r.state END AS standing FROM run r WHERE ",
    open!(),
    ") AS load GROUP BY load.workflow, load.standing ORDER BY load.workflow, load.standing"
);
pub(crate) const WORKERS: &str = concat!(
    "SELECT r.worker, COUNT(*) FROM run r WHERE ",
    open!(),
    " AND r.state = 'running' AND r.claim_at > ",
    now!(),
    " GROUP BY r.worker ORDER BY r.worker"
);
pub(crate) const HEAD: &str = "SELECT head_seq, head_hash FROM run WHERE id = $1";

pub(crate) const HISTORY: &str =
    select_entry!("FROM ledger_entry e WHERE e.run_id = $1 AND e.seq > $2 ORDER BY e.seq LIMIT $3");
pub(crate) const ENTRIES_OF_EFFECT: &str = select_entry!(
    "FROM effect f JOIN ledger_entry e ON e.effect_id = f.id AND e.run_id = f.run_id \
     WHERE f.id = $1 ORDER BY e.seq"
);
pub(crate) const ENTRIES_OF_STEP: &str = select_entry!(
    "FROM effect f JOIN ledger_entry e ON e.effect_id = f.id AND e.run_id = f.run_id \
     WHERE f.run_id = $1 AND f.node = $2 AND f.visit = $3 AND f.element IS NULL ORDER BY e.seq"
);
pub(crate) const ENTRIES_OF_ELEMENT: &str = select_entry!(
    "FROM effect f JOIN ledger_entry e ON e.effect_id = f.id AND e.run_id = f.run_id \
     WHERE f.run_id = $1 AND f.node = $2 AND f.visit = $3 AND f.element = $4 ORDER BY e.seq"
);

pub(crate) const EFFECTS: &str = select_effect!("1 = 1");
pub(crate) const EFFECTS_OF_RUN: &str = select_effect!("f.run_id = $2");
/// No run is over while an effect of it is open; so these are found by way of the runs, and a write of an effect keeps no
/// index of them.
pub(crate) const EFFECTS_OPEN: &str = select_effect!(
    "f.run_id IN (SELECT o.id FROM run o WHERE o.state IN ('ready', 'running', 'waiting', 'halted', 'stuck', 'quarantined')) \
     AND f.state IN ('PROPOSED', 'AUTHORIZED', 'REQUESTED', 'UNKNOWN')"
);
pub(crate) const EFFECTS_HELD: &str = select_effect!("f.held = 1");
pub(crate) const EFFECTS_APPROVING: &str = select_effect!("f.approves IS NOT NULL");
/// The first request to cancel a run stands.
pub(crate) const CANCEL: &str = "UPDATE run SET cancel = $2 WHERE id = $1 AND cancel IS NULL";
pub(crate) const TOUCH_EFFECT: &str = "UPDATE effect SET updated_at = $2 WHERE id = $1";

pub(crate) const DEFINITION: &str = "SELECT body FROM definition WHERE digest = $1";
pub(crate) const DEFINITION_EXISTS: &str = "SELECT 1 FROM definition WHERE digest = $1";
pub(crate) const PUT_DEFINITION: &str =
    "INSERT INTO definition (digest, body) VALUES ($1, $2) ON CONFLICT (digest) DO NOTHING";

macro_rules! select_module {
    ($($rest:expr),+) => {
        concat!(
            "SELECT n.name, n.digest, m.size, n.added_at, n.number FROM module_name n \
             JOIN module m ON m.digest = n.digest WHERE n.number = \
             (SELECT MAX(l.number) FROM module_name l WHERE l.name = n.name)", $($rest),+
        )
    };
}

pub(crate) const MODULE: &str = select_module!(" AND n.name = $1");
pub(crate) const MODULES: &str = select_module!(" ORDER BY n.name");
pub(crate) const MODULE_BYTES: &str = "SELECT bytes FROM module WHERE digest = $1";
pub(crate) const PUT_MODULE: &str =
    "INSERT INTO module (digest, size, bytes) VALUES ($1, $2, $3) ON CONFLICT (digest) DO NOTHING";
pub(crate) const PUT_MODULE_NAME: &str =
    "INSERT INTO module_name (name, number, digest, added_at) VALUES ($1, $2, $3, $4)";

pub(crate) const CREATE_MIGRATIONS: &str = "CREATE TABLE IF NOT EXISTS schema_migration \
     (version BIGINT NOT NULL PRIMARY KEY, name TEXT NOT NULL, digest TEXT NOT NULL)";
pub(crate) const MIGRATIONS: &str =
    "SELECT version, name, digest FROM schema_migration ORDER BY version";
pub(crate) const PUT_MIGRATION: &str =
    "INSERT INTO schema_migration (version, name, digest) VALUES ($1, $2, $3)";

/// A statement about many rows, in the prepared forms of [`SIZES`].
pub(crate) struct Bulk {
    forms: [&'static str; SIZES.len()],
}

impl Bulk {
    /// `head`, then one list of `width` placeholders per row, then `tail`.
    fn rows(head: &str, width: usize, tail: &str) -> Self {
        Self::build(head, tail, |row| {
            let columns: Vec<_> = (1..=width).map(|n| format!("${}", row * width + n)).collect();
            format!("({})", columns.join(", "))
        })
    }

    /// The same where nothing else tells the columns' types: the first row does.
    fn typed_rows(head: &str, types: &[&str], tail: &str) -> Self {
        let width = types.len();
        Self::build(head, tail, |row| {
            let columns: Vec<_> = (1..)
                .zip(types)
                .map(|(n, kind)| match row {
                    0 => format!("CAST(${n} AS {kind})"),
                    _ => format!("${}", row * width + n),
                })
                .collect();
            format!("({})", columns.join(", "))
        })
    }

    /// `head`, then one placeholder per id, then `tail`.
    fn ids(head: &str, tail: &str) -> Self {
        Self::build(head, tail, |row| format!("${}", row + 1))
    }

    /// The texts live as long as the program: there are few of each statement.
    fn build(head: &str, tail: &str, item: impl Fn(usize) -> String) -> Self {
        let forms = SIZES.map(|size| {
            let items: Vec<_> = (0..size).map(&item).collect();
            &*format!("{head}{}{tail}", items.join(", ")).leak()
        });
        Self { forms }
    }

    /// The form for the most rows that are not more than `rows`, and how many it takes.
    pub(crate) fn at_most(&self, rows: usize) -> (&'static str, usize) {
        let index = SIZES.iter().position(|size| *size <= rows).unwrap_or(SIZES.len() - 1);
        (self.forms[index], SIZES[index])
    }

    /// The form for the fewest ids that are not less than `ids`, and how many it takes; the largest when there is none.
    pub(crate) fn at_least(&self, ids: usize) -> (&'static str, usize) {
        let index = SIZES.iter().rposition(|size| *size >= ids).unwrap_or(0);
        (self.forms[index], SIZES[index])
    }
}

/// What a write needs to know of a run; in one order, so that two processes which lock the same runs do not wait for each
/// other.
pub(crate) static LOCK_RUNS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::ids(
        "SELECT id, state, head_seq, head_hash, fence, lease_until, due_at, claim_at, worker, reason, crashes, \
         updated_at, CASE WHEN cancel IS NULL THEN 0 ELSE 1 END FROM run WHERE id IN (",
        ") ORDER BY id",
    )
});

/// What a write needs to know of an effect.
pub(crate) static LOCK_EFFECTS: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::ids("SELECT id, run_id, state FROM effect WHERE id IN (", ")"));

pub(crate) static INSERT_RUNS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::rows(
        "INSERT INTO run (id, caller_key, workflow, definition, input, priority, created_at, parent_run, \
         parent_effect, state, progress, progress_seq, output, reason, due_at, claim_at, worker, fence, lease_until, crashes, \
         head_seq, head_hash, updated_at) VALUES ",
        23,
        "",
    )
});

/// Writes a run only if fence and head are still what they were read as (I7); absent texts stay as they are.
pub(crate) static UPDATE_RUNS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::typed_rows(
        "WITH v (id, fence_read, seq_read, state, progress, progress_seq, output, reason, due_at, claim_at, worker, \
         fence, lease_until, crashes, head_seq, head_hash, updated_at) AS (VALUES ",
        &[
            "TEXT", "BIGINT", "BIGINT", "TEXT", "TEXT", "BIGINT", "TEXT", "TEXT", "BIGINT",
            "BIGINT", "TEXT", "BIGINT", "BIGINT", "BIGINT", "BIGINT", "BLOB", "BIGINT",
        ],
        ") UPDATE run SET state = v.state, progress = COALESCE(v.progress, run.progress), \
         progress_seq = COALESCE(v.progress_seq, run.progress_seq), \
         output = COALESCE(v.output, run.output), reason = v.reason, due_at = v.due_at, claim_at = v.claim_at, \
         worker = v.worker, fence = v.fence, lease_until = v.lease_until, crashes = v.crashes, \
         head_seq = v.head_seq, head_hash = v.head_hash, updated_at = v.updated_at \
         FROM v WHERE run.id = v.id AND run.fence = v.fence_read AND run.head_seq = v.seq_read",
    )
});

pub(crate) static PUT_EFFECTS: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::rows(
        "INSERT INTO effect (id, run_id, node, visit, element, slot, operation, idempotency_key, request_hash, state, \
         attempts, external_id, held, undoes, approves, settled_here, last_error, updated_at) VALUES ",
        18,
        " ON CONFLICT (id) DO UPDATE SET node = excluded.node, visit = excluded.visit, element = excluded.element, slot = excluded.slot, \
         operation = excluded.operation, idempotency_key = excluded.idempotency_key, \
         request_hash = excluded.request_hash, state = excluded.state, attempts = excluded.attempts, \
         external_id = excluded.external_id, held = excluded.held, undoes = excluded.undoes, approves = excluded.approves, \
         settled_here = excluded.settled_here, last_error = excluded.last_error, \
         updated_at = excluded.updated_at WHERE effect.run_id = excluded.run_id",
    )
});

pub(crate) static INSERT_ENTRIES: LazyLock<Bulk> = LazyLock::new(|| {
    Bulk::rows(
        "INSERT INTO ledger_entry (run_id, seq, fence, made_at, effect_id, kind, body, prev_hash, hash, from_state, \
         to_state) VALUES ",
        11,
        "",
    )
});

/// Lets go of what runs have locked that are over.
pub(crate) static DELETE_LOCKS_OF_RUNS: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::ids("DELETE FROM object_lock WHERE run_id IN (", ")"));
pub(crate) static DELETE_WAITS_OF_RUNS: LazyLock<Bulk> =
    LazyLock::new(|| Bulk::ids("DELETE FROM object_lock_wait WHERE run_id IN (", ")"));

/// Every statement, for the test that each can be prepared.
#[cfg(test)]
fn all() -> Vec<&'static str> {
    let mut all = vec![
        NOW,
        RUN,
        RUN_BY_CALLER_KEY,
        PLACES_DUE,
        RUNS_DUE,
        RUNS,
        RUNS_BEFORE,
        CHILDREN,
        CHILDREN_BEFORE,
        PARENT_ASKS,
        RUNS_OVER,
        TOMBSTONE,
        TOMBSTONES_OF_START,
        PROPOSALS,
        PUT_TOMBSTONE,
        CANCEL,
        DELETE_ENTRIES,
        DELETE_EFFECTS,
        DELETE_RUN,
        CLOSE_TOMBSTONE,
        NEXT_DUE,
        LOADS,
        WORKERS,
        HEAD,
        HISTORY,
        ENTRIES_OF_EFFECT,
        ENTRIES_OF_STEP,
        ENTRIES_OF_ELEMENT,
        EFFECTS,
        EFFECTS_OF_RUN,
        EFFECTS_OPEN,
        EFFECTS_HELD,
        EFFECTS_APPROVING,
        TOUCH_EFFECT,
        DEFINITION,
        DEFINITION_EXISTS,
        PUT_DEFINITION,
        OBJECT_LOCK,
        PUT_OBJECT_LOCK,
        DELETE_OBJECT_LOCK,
        WAIT,
        PUT_WAIT,
        DELETE_WAIT,
        WAITS_OF_RUN,
        OBJECT_LOCKS,
        MODULE,
        MODULES,
        MODULE_BYTES,
        PUT_MODULE,
        PUT_MODULE_NAME,
        CREATE_MIGRATIONS,
        MIGRATIONS,
        PUT_MIGRATION,
    ];
    for bulk in [
        &LOCK_RUNS,
        &LOCK_EFFECTS,
        &INSERT_RUNS,
        &UPDATE_RUNS,
        &PUT_EFFECTS,
        &INSERT_ENTRIES,
        &DELETE_LOCKS_OF_RUNS,
        &DELETE_WAITS_OF_RUNS,
    ] {
        all.extend(bulk.forms);
    }
    all
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection, Executor, PgConnection, Row, SqlSafeStr, SqliteConnection};
    use twice_test_postgres::Cluster;

    use super::*;

    const POSTGRES: &str = concat!(
        include_str!("../../../migrations/postgres/0001_initial.sql"),
        include_str!("../../../migrations/postgres/0002_retention.sql"),
        include_str!("../../../migrations/postgres/0003_approvals.sql"),
        include_str!("../../../migrations/postgres/0004_contradictions.sql")
    );
    const SQLITE: &str = concat!(
        include_str!("../../../migrations/sqlite/0001_initial.sql"),
        include_str!("../../../migrations/sqlite/0002_retention.sql"),
        include_str!("../../../migrations/sqlite/0003_approvals.sql"),
        include_str!("../../../migrations/sqlite/0004_contradictions.sql")
    );

    async fn sqlite() -> SqliteConnection {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.unwrap();
        sqlx::raw_sql(CREATE_MIGRATIONS).execute(&mut connection).await.unwrap();
        sqlx::raw_sql(SQLITE).execute(&mut connection).await.unwrap();
        connection
    }

    async fn postgres() -> PgConnection {
        let database = Cluster::shared().database();
        let mut connection = PgConnection::connect(&database.url()).await.unwrap();
        sqlx::raw_sql(CREATE_MIGRATIONS).execute(&mut connection).await.unwrap();
        sqlx::raw_sql(POSTGRES).execute(&mut connection).await.unwrap();
        connection
    }

    #[tokio::test]
    async fn every_statement_prepares() {
        let mut sqlite = sqlite().await;
        for statement in all() {
            let prepared = (&mut sqlite).prepare(statement.into_sql_str()).await;
            assert!(prepared.is_ok(), "{statement}\n{:?}", prepared.err());
        }
        if twice_test_postgres::is_missing() {
            return;
        }
        let mut postgres = postgres().await;
        for statement in all() {
            // No types are told: each statement must be clear by itself.
            let prepared = (&mut postgres).prepare(statement.into_sql_str()).await;
            assert!(prepared.is_ok(), "{statement}\n{:?}", prepared.err());
        }
    }

    /// A ledger grows for ever; what reads it must not.
    #[tokio::test]
    async fn no_statement_walks_a_table_without_an_index() {
        let mut connection = sqlite().await;
        // The plan of an INSERT also holds the look for rows that refer to the new one, which is made only when a
        // constraint was broken before.
        for statement in all().into_iter().filter(|statement| !statement.starts_with("INSERT")) {
            let explain = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
            let plan = sqlx::query(explain).fetch_all(&mut connection).await.unwrap();
            for step in plan.iter().map(|row| row.get::<String, _>("detail")) {
                let walks = step.starts_with("SCAN ") && !step.contains("INDEX");
                // Constant rows, values that were handed in, and the few migrations.
                let small = ["CONSTANT ROW", " v", "VALUES", "clock", "schema_migration"];
                let few = ["SCAN first", "SCAN place", "SCAN due", "SCAN page"];
                let small = small.iter().any(|name| step.contains(name)) || few.contains(&&*step);
                // From place to place at one leap, not along the runs that stand at one.
                let step_by_step = step.contains("run_open (workflow>");
                assert!(!step_by_step, "{step}\n{statement}");
                assert!(!walks || small, "{step}\n{statement}");
            }
        }
    }

    /// The same on Postgres, where a plan is made for the parameters to come and an index need only be possible.
    #[tokio::test]
    async fn no_statement_walks_a_table_of_postgres_without_an_index() {
        if twice_test_postgres::is_missing() {
            return;
        }
        let mut connection = postgres().await;
        let setup = "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan";
        sqlx::raw_sql(setup).execute(&mut connection).await.unwrap();
        for statement in all().into_iter().filter(|statement| !statement.starts_with("CREATE")) {
            let explain = sqlx::AssertSqlSafe(format!(
                "DEALLOCATE ALL; PREPARE it AS {statement}; EXPLAIN EXECUTE it{}",
                nulls(statement)
            ));
            let plan = sqlx::raw_sql(explain).fetch_all(&mut connection).await.unwrap();
            for step in plan.iter().map(|row| row.get::<String, _>(0)) {
                let walks = step.contains("Seq Scan") && !step.contains("schema_migration");
                assert!(!walks, "{step}\n{statement}");
            }
        }
    }

    /// As many NULLs as the statement has parameters.
    fn nulls(statement: &str) -> String {
        let numbers = statement.split('$').skip(1).map(|rest| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<usize>().unwrap()
        });
        match numbers.max() {
            Some(count) => format!("({})", vec!["NULL"; count].join(", ")),
            None => String::new(),
        }
    }

    /// Tables and columns by name, whether a column may be NULL, and what is unique. Types and triggers may differ, and
    /// whether triggers or foreign keys hold what an entry refers to.
    #[tokio::test]
    async fn both_schemas_have_the_same_shape() {
        if twice_test_postgres::is_missing() {
            return;
        }
        let of_sqlite = sqlx::query_scalar::<_, String>(
            "SELECT t.name || '.' || c.name || CASE WHEN c.\"notnull\" THEN ' NOT NULL' ELSE '' END \
             FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table' \
             UNION ALL SELECT t.name || ' INDEX ' || group_concat(k.name) FROM sqlite_schema t \
             JOIN pragma_index_list(t.name) i JOIN pragma_index_info(i.name) k WHERE t.type = 'table' \
             GROUP BY t.name, i.name \
             UNION ALL SELECT t.name || ' REFERENCES ' || f.\"table\" FROM sqlite_schema t \
             JOIN pragma_foreign_key_list(t.name) f WHERE t.type = 'table' AND f.seq = 0 AND t.name <> 'ledger_entry'",
        )
        .fetch_all(&mut sqlite().await)
        .await;
        let of_postgres = sqlx::query_scalar::<_, String>(
            "SELECT t.relname || '.' || a.attname || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END \
             FROM pg_class t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum > 0 \
             WHERE t.relkind = 'r' AND t.relnamespace = 'public'::regnamespace \
             UNION ALL SELECT t.relname || ' INDEX ' || (SELECT string_agg(a.attname, ',' ORDER BY k.place) \
             FROM unnest(i.indkey) WITH ORDINALITY AS k (number, place) \
             JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.number) \
             FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid WHERE t.relnamespace = 'public'::regnamespace \
             UNION ALL SELECT c.conrelid::regclass::text || ' REFERENCES ' || c.confrelid::regclass::text \
             FROM pg_constraint c WHERE c.contype = 'f' AND c.conrelid <> 'ledger_entry'::regclass",
        )
        .fetch_all(&mut postgres().await)
        .await;
        let (mut of_sqlite, mut of_postgres) = (of_sqlite.unwrap(), of_postgres.unwrap());
        of_sqlite.sort();
        of_postgres.sort();
        assert!(of_sqlite.len() > 70, "{of_sqlite:?}");
        assert_eq!(of_sqlite, of_postgres);
    }

    #[test]
    fn all_statements_are_listed() {
        let source = concat!(
            include_str!("sql.rs"),
            include_str!("sql/locks.rs"),
            include_str!("sql/retention.rs")
        );
        let declared = source.matches("pub(crate) const ").count() - 1
            + source.matches("pub(crate) static ").count() * SIZES.len();
        // These two lines hold the patterns as well.
        assert_eq!(all().len(), declared - 1 - SIZES.len());
    }

    #[test]
    fn forms_fit() {
        let bulk = Bulk::ids("(", ")");
        for (rows, most, least) in
            [(1, 1, 1), (2, 2, 2), (3, 2, 4), (8, 8, 8), (9, 8, 16), (32, 32, 32), (33, 32, 32)]
        {
            assert_eq!((bulk.at_most(rows).1, bulk.at_least(rows).1), (most, least), "{rows}");
        }
    }
}
