//! Statements about locks on business objects: who has one, and who waits for it.

/// Whether a wait still counts: since it was written, its run has not been taken up, or has and may not have asked yet.
macro_rules! still_waits {
    () => {
        "(r.fence = w.fence OR (r.state = 'running' AND r.fence = w.fence + 1))"
    };
}

pub(crate) const OBJECT_LOCK: &str =
    "SELECT run_id, expires_at FROM object_lock WHERE name = $1 AND object = $2";
/// Writes nothing while another run has it whose time is not over.
pub(crate) const PUT_OBJECT_LOCK: &str = "INSERT INTO object_lock (name, object, run_id, taken_at, expires_at) \
     VALUES ($1, $2, $3, $4, $5) ON CONFLICT (name, object) DO UPDATE SET run_id = excluded.run_id, \
     taken_at = CASE WHEN object_lock.run_id = excluded.run_id THEN object_lock.taken_at ELSE excluded.taken_at END, \
     expires_at = excluded.expires_at \
     WHERE object_lock.run_id = excluded.run_id OR object_lock.expires_at <= excluded.taken_at";
pub(crate) const DELETE_OBJECT_LOCK: &str =
    "DELETE FROM object_lock WHERE name = $1 AND object = $2 AND run_id = $3";

pub(crate) const WAIT: &str = "SELECT w.fence, w.since FROM object_lock_wait w WHERE w.run_id = $1 AND w.name = $2 AND w.object = $3";
pub(crate) const PUT_WAIT: &str = "INSERT INTO object_lock_wait (run_id, name, object, fence, since) VALUES ($1, $2, $3, $4, $5) \
     ON CONFLICT (run_id, name, object) DO UPDATE SET fence = excluded.fence, since = excluded.since";
pub(crate) const DELETE_WAIT: &str =
    "DELETE FROM object_lock_wait WHERE run_id = $1 AND name = $2 AND object = $3";
/// What a run waits for, and who has it.
pub(crate) const WAITS_OF_RUN: &str = concat!(
    "SELECT w.run_id, w.name, w.object, w.since, l.run_id FROM object_lock_wait w JOIN run r ON r.id = w.run_id \
     JOIN object_lock l ON l.name = w.name AND l.object = w.object \
     WHERE w.run_id = $1 AND l.run_id <> w.run_id AND (l.expires_at IS NULL OR l.expires_at > $2) AND ",
    still_waits!(),
    " ORDER BY w.name, w.object"
);

/// A page of locks, each with who waits for it, one row for each of them.
pub(crate) const OBJECT_LOCKS: &str = concat!(
    "SELECT page.name, page.object, page.run_id, page.state, page.taken_at, page.expires_at, w.run_id, w.since FROM \
     (SELECT k.name, k.object, k.run_id, h.state, k.taken_at, k.expires_at FROM object_lock k JOIN run h ON h.id = k.run_id \
     WHERE (CAST($1 AS TEXT) IS NULL OR k.run_id = $1) AND (CAST($2 AS TEXT) IS NULL OR k.object = $2) \
     AND (k.name, k.object) > ($3, $4) ORDER BY k.name, k.object LIMIT $5) AS page \
     LEFT JOIN object_lock_wait w ON w.name = page.name AND w.object = page.object \
     AND EXISTS (SELECT 1 FROM run r WHERE r.id = w.run_id AND ",
    still_waits!(),
    ") ORDER BY page.name, page.object, w.since, w.run_id"
);
