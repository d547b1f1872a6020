-- Retention, version 2. A run that is over may be exported and then removed; what stays of it is a tombstone. Nothing else is
-- ever removed.

-- Holds nothing: what refers to it cannot be committed.
CREATE TABLE never (
    id TEXT NOT NULL PRIMARY KEY CHECK (id = '' AND id <> '')
) STRICT;

-- What stays of a run that was removed: that it was, who it was by, how its chain ended, and where its entries went.
-- While `pruning` is set, what is the run's may be deleted; it has to be cleared before the transaction can commit, and
-- it can be cleared only when the run is gone.
CREATE TABLE tombstone (
    run_id        TEXT    NOT NULL PRIMARY KEY CHECK (run_id <> ''),
    caller_key    TEXT    UNIQUE,
    workflow      TEXT    NOT NULL,
    definition    TEXT    NOT NULL,
    input_hash    BLOB    NOT NULL CHECK (length(input_hash) = 32),
    state         TEXT    NOT NULL CHECK (state IN ('completed', 'failed', 'cancelled')),
    head_seq      INTEGER NOT NULL CHECK (head_seq >= 1),
    head_hash     BLOB    NOT NULL CHECK (length(head_hash) = 32),
    created_at    INTEGER NOT NULL,
    ended_at      INTEGER NOT NULL,
    pruned_at     INTEGER NOT NULL,
    pruned_by     TEXT    NOT NULL,
    export        TEXT    NOT NULL,
    export_digest TEXT    NOT NULL CHECK (export_digest <> ''),
    pruning       TEXT    REFERENCES never (id) DEFERRABLE INITIALLY DEFERRED
) STRICT;

CREATE TRIGGER tombstone_true BEFORE INSERT ON tombstone
WHEN NEW.pruning IS NULL OR NOT EXISTS (SELECT 1 FROM run r WHERE r.id = NEW.run_id AND r.state = NEW.state
        AND r.head_seq = NEW.head_seq AND r.head_hash = NEW.head_hash)
BEGIN SELECT RAISE(ABORT, 'a tombstone is of a run that is over, with the head of its chain'); END;
CREATE TRIGGER tombstone_fixed BEFORE UPDATE ON tombstone
WHEN OLD.pruning IS NULL OR NEW.pruning IS NOT NULL OR EXISTS (SELECT 1 FROM run r WHERE r.id = OLD.run_id)
  OR NEW.run_id <> OLD.run_id OR NEW.caller_key IS NOT OLD.caller_key OR NEW.workflow <> OLD.workflow
  OR NEW.definition <> OLD.definition OR NEW.input_hash <> OLD.input_hash OR NEW.state <> OLD.state
  OR NEW.head_seq <> OLD.head_seq OR NEW.head_hash <> OLD.head_hash OR NEW.created_at <> OLD.created_at
  OR NEW.ended_at <> OLD.ended_at OR NEW.pruned_at <> OLD.pruned_at OR NEW.pruned_by <> OLD.pruned_by
  OR NEW.export <> OLD.export OR NEW.export_digest <> OLD.export_digest
BEGIN SELECT RAISE(ABORT, 'tombstones are never updated'); END;
CREATE TRIGGER tombstone_no_delete BEFORE DELETE ON tombstone
BEGIN SELECT RAISE(ABORT, 'tombstones are never deleted'); END;

DROP TRIGGER ledger_entry_no_delete;
CREATE TRIGGER ledger_entry_no_delete BEFORE DELETE ON ledger_entry
WHEN NOT EXISTS (SELECT 1 FROM tombstone t WHERE t.run_id = OLD.run_id AND t.pruning IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'ledger entries are never deleted'); END;
DROP TRIGGER effect_no_delete;
CREATE TRIGGER effect_no_delete BEFORE DELETE ON effect
WHEN NOT EXISTS (SELECT 1 FROM tombstone t WHERE t.run_id = OLD.run_id AND t.pruning IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'effects are never deleted'); END;
DROP TRIGGER run_no_delete;
CREATE TRIGGER run_no_delete BEFORE DELETE ON run
WHEN NOT EXISTS (SELECT 1 FROM tombstone t WHERE t.run_id = OLD.id AND t.pruning IS NOT NULL)
BEGIN SELECT RAISE(ABORT, 'runs are never deleted'); END;
