//! Statements about runs that are over: which may be removed, and removing one.

macro_rules! select_tombstone {
    ($($rest:expr),+) => {
        concat!(
            "SELECT t.run_id, t.caller_key, t.workflow, t.definition, t.input_hash, t.state, t.head_seq, t.head_hash, \
             t.created_at, t.ended_at, t.pruned_at, t.pruned_by, t.export, t.export_digest FROM tombstone t ", $($rest),+
        )
    };
}

pub(crate) const TOMBSTONE: &str = select_tombstone!("WHERE t.run_id = $1");
/// By the id or the caller's key of a start that may repeat it.
pub(crate) const TOMBSTONES_OF_START: &str =
    select_tombstone!("WHERE t.run_id = $1 OR t.caller_key = CAST($2 AS TEXT)");
/// What the effects of a run were proposed as.
pub(crate) const PROPOSALS: &str =
    "SELECT e.body FROM ledger_entry e WHERE e.run_id = $1 AND e.kind = 'proposed'";
pub(crate) const PUT_TOMBSTONE: &str = "INSERT INTO tombstone (run_id, caller_key, workflow, definition, input_hash, state, \
     head_seq, head_hash, created_at, ended_at, pruned_at, pruned_by, export, export_digest, pruning) \
     SELECT r.id, r.caller_key, r.workflow, r.definition, CAST($2 AS BLOB), r.state, r.head_seq, r.head_hash, \
     r.created_at, r.updated_at, CAST($3 AS BIGINT), CAST($4 AS TEXT), CAST($5 AS TEXT), CAST($6 AS TEXT), 'now' \
     FROM run r WHERE r.id = $1";
pub(crate) const DELETE_ENTRIES: &str = "DELETE FROM ledger_entry WHERE run_id = $1";
pub(crate) const DELETE_EFFECTS: &str = "DELETE FROM effect WHERE run_id = $1";
pub(crate) const DELETE_RUN: &str = "DELETE FROM run WHERE id = $1";
pub(crate) const CLOSE_TOMBSTONE: &str = "UPDATE tombstone SET pruning = NULL WHERE run_id = $1";
