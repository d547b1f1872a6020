-- The ledger, version 1. Times are milliseconds since 1970-01-01 UTC; JSON is canonical text (RFC 8785); states and kinds
-- are the words of the contracts. Statements that read or write these tables are the same for every database.

-- The database's clock. Leases are judged by it and by nothing else.
CREATE VIEW clock AS SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) AS now_ms;

-- Pinned definitions: what a run is interpreted under for as long as it lives.
CREATE TABLE definition (
    digest TEXT NOT NULL PRIMARY KEY CHECK (digest <> ''),
    body   TEXT NOT NULL
) STRICT;

-- Components, by the digest of their bytes.
CREATE TABLE module (
    digest TEXT    NOT NULL PRIMARY KEY CHECK (digest <> ''),
    size   INTEGER NOT NULL CHECK (size >= 0),
    bytes  BLOB    NOT NULL
) STRICT;

-- Which component a name stands for: the row with the highest number.
CREATE TABLE module_name (
    name     TEXT    NOT NULL CHECK (name <> ''),
    number   INTEGER NOT NULL CHECK (number >= 1),
    digest   TEXT    NOT NULL REFERENCES module (digest),
    added_at INTEGER NOT NULL,
    PRIMARY KEY (name, number)
) STRICT;

-- Runs: a projection of their entries, and the lease. `progress` is the checkpoint, which has taken in the entries up to
-- number `progress_seq`; what stands behind it is folded by whoever goes on with the run. `claim_at` is the instant since
-- when a worker may take the run: due time, or end of the lease; NULL when none may.
-- `cancel` says who asked for its cancellation and why, NULL when nobody did. A child is told by the run and the effect that
-- started it.
CREATE TABLE run (
    id          TEXT    NOT NULL PRIMARY KEY CHECK (id <> ''),
    caller_key  TEXT    UNIQUE,
    workflow    TEXT    NOT NULL,
    definition  TEXT    NOT NULL REFERENCES definition (digest),
    input       TEXT    NOT NULL,
    priority    INTEGER NOT NULL CHECK (priority BETWEEN -9 AND 9),
    state       TEXT    NOT NULL CHECK (state IN
                    ('ready', 'running', 'waiting', 'halted', 'completed', 'failed',
                     'cancelled', 'stuck', 'quarantined')),
    progress    TEXT    NOT NULL,
    progress_seq INTEGER NOT NULL CHECK (progress_seq BETWEEN 1 AND head_seq),
    output      TEXT,
    reason      TEXT,
    cancel      TEXT,
    due_at      INTEGER,
    claim_at    INTEGER,
    worker      TEXT,
    fence       INTEGER NOT NULL CHECK (fence >= 0),
    lease_until INTEGER,
    crashes     INTEGER NOT NULL CHECK (crashes >= 0),
    head_seq    INTEGER NOT NULL CHECK (head_seq >= 1),
    head_hash   BLOB    NOT NULL CHECK (length(head_hash) = 32),
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    parent_run  TEXT,
    parent_effect TEXT,
    CHECK ((parent_run IS NULL) = (parent_effect IS NULL)),
    CHECK (state IN ('ready', 'running', 'waiting') OR claim_at IS NULL),
    CHECK (state <> 'running' OR (worker IS NOT NULL AND lease_until IS NOT NULL AND claim_at = lease_until))
) STRICT;
-- What is not over, in the order in which workers take it.
CREATE INDEX run_open ON run (workflow, priority, claim_at, id, state, worker)
    WHERE state IN ('ready', 'running', 'waiting', 'halted', 'stuck', 'quarantined');
CREATE INDEX run_newest ON run (created_at, id);
CREATE INDEX run_child ON run (parent_run) WHERE parent_run IS NOT NULL;

-- Effects: a projection of their entries, for listings. The owner is the run that proposed the effect first. What is
-- `settled_here` is never UNKNOWN: the ledger itself tells what became of it.
CREATE TABLE effect (
    id              TEXT    NOT NULL PRIMARY KEY CHECK (id <> ''),
    run_id          TEXT    NOT NULL REFERENCES run (id),
    node            TEXT    NOT NULL,
    visit           INTEGER NOT NULL CHECK (visit >= 0),
    element         TEXT    CHECK (element <> ''),
    slot            TEXT    NOT NULL,
    operation       TEXT    NOT NULL,
    idempotency_key TEXT    NOT NULL,
    request_hash    TEXT    NOT NULL,
    state           TEXT    NOT NULL CHECK (state IN
                        ('PROPOSED', 'AUTHORIZED', 'REQUESTED', 'CONFIRMED', 'FAILED', 'UNKNOWN')),
    attempts        INTEGER NOT NULL CHECK (attempts >= 0),
    external_id     TEXT,
    held            INTEGER NOT NULL CHECK (held IN (0, 1)),
    undoes          TEXT,
    settled_here    INTEGER NOT NULL CHECK (settled_here IN (0, 1)),
    last_error      TEXT,
    updated_at      INTEGER NOT NULL,
    CHECK (settled_here = 0 OR state <> 'UNKNOWN')
) STRICT;
CREATE INDEX effect_of_step ON effect (run_id, node, visit, element);
CREATE INDEX effect_held ON effect (id) WHERE held = 1;

-- Which run has a business object to itself. A row goes with the run's end; one whose `expires_at` is over may be taken by
-- another run. How it came about is in the entries of the run that has it.
CREATE TABLE object_lock (
    name       TEXT NOT NULL CHECK (name <> ''),
    object     TEXT NOT NULL CHECK (object <> ''),
    run_id     TEXT NOT NULL REFERENCES run (id),
    taken_at   INTEGER NOT NULL,
    expires_at INTEGER,
    PRIMARY KEY (name, object)
) STRICT;
CREATE INDEX object_lock_of_run ON object_lock (run_id);

-- Which run waits for which lock: so that runs that wait for each other are found. A row counts while its run has not been
-- taken up since without asking again, which `fence` tells.
CREATE TABLE object_lock_wait (
    run_id TEXT NOT NULL REFERENCES run (id),
    name   TEXT NOT NULL CHECK (name <> ''),
    object TEXT NOT NULL CHECK (object <> ''),
    fence  INTEGER NOT NULL CHECK (fence >= 0),
    since  INTEGER NOT NULL,
    PRIMARY KEY (run_id, name, object)
) STRICT;
CREATE INDEX object_lock_wait_for ON object_lock_wait (name, object);

-- The transition table of effects, mirrored: an entry whose move is not a row here cannot be written. NONE is the state
-- before the first entry.
CREATE TABLE effect_transition (
    from_state TEXT NOT NULL,
    kind       TEXT NOT NULL,
    to_state   TEXT NOT NULL,
    PRIMARY KEY (from_state, kind, to_state)
) STRICT;
INSERT INTO effect_transition (from_state, kind, to_state) VALUES
    ('NONE',       'proposed',         'PROPOSED'),
    ('PROPOSED',   'proposed',         'PROPOSED'),
    ('PROPOSED',   'authorized',       'AUTHORIZED'),
    ('PROPOSED',   'failed',           'FAILED'),
    ('AUTHORIZED', 'proposed',         'PROPOSED'),
    ('AUTHORIZED', 'requested',        'REQUESTED'),
    ('AUTHORIZED', 'failed',           'FAILED'),
    ('AUTHORIZED', 'observed',         'AUTHORIZED'),
    ('REQUESTED',  'confirmed',        'CONFIRMED'),
    ('REQUESTED',  'failed',           'FAILED'),
    ('REQUESTED',  'deferred',         'AUTHORIZED'),
    ('REQUESTED',  'unknown',          'UNKNOWN'),
    ('REQUESTED',  'observed',         'REQUESTED'),
    ('REQUESTED',  'conflicted',       'REQUESTED'),
    ('REQUESTED',  'conflict_decided', 'REQUESTED'),
    ('CONFIRMED',  'observed',         'CONFIRMED'),
    ('CONFIRMED',  'conflicted',       'CONFIRMED'),
    ('CONFIRMED',  'conflict_decided', 'CONFIRMED'),
    ('FAILED',     'observed',         'FAILED'),
    ('FAILED',     'conflicted',       'FAILED'),
    ('FAILED',     'conflict_decided', 'FAILED'),
    ('UNKNOWN',    'requested',        'REQUESTED'),
    ('UNKNOWN',    'confirmed',        'CONFIRMED'),
    ('UNKNOWN',    'failed',           'FAILED'),
    ('UNKNOWN',    'probed',           'UNKNOWN'),
    ('UNKNOWN',    'observed',         'UNKNOWN'),
    ('UNKNOWN',    'conflicted',       'UNKNOWN'),
    ('UNKNOWN',    'conflict_decided', 'UNKNOWN');

-- The truth. A receipt is the body of its `confirmed` entry; the entry's hash is the receipt's integrity hash.
CREATE TABLE ledger_entry (
    run_id     TEXT    NOT NULL REFERENCES run (id),
    seq        INTEGER NOT NULL CHECK (seq >= 1),
    fence      INTEGER NOT NULL CHECK (fence >= 0),
    made_at    INTEGER NOT NULL,
    effect_id  TEXT    REFERENCES effect (id),
    kind       TEXT    NOT NULL CHECK (kind <> ''),
    body       TEXT    NOT NULL,
    prev_hash  BLOB    NOT NULL CHECK (length(prev_hash) = 32),
    hash       BLOB    NOT NULL CHECK (length(hash) = 32),
    from_state TEXT,
    to_state   TEXT,
    UNIQUE (run_id, seq),
    FOREIGN KEY (from_state, kind, to_state) REFERENCES effect_transition (from_state, kind, to_state),
    CHECK ((effect_id IS NULL) = (from_state IS NULL) AND (effect_id IS NULL) = (to_state IS NULL))
) STRICT;
CREATE INDEX ledger_entry_of_effect ON ledger_entry (effect_id, seq) WHERE effect_id IS NOT NULL;

-- Append-only. REPLACE deletes without firing a delete trigger, hence the insert triggers: an entry goes only to the end
-- of its chain, and a row that exists is never written again.
CREATE TRIGGER ledger_entry_no_update BEFORE UPDATE ON ledger_entry
BEGIN SELECT RAISE(ABORT, 'ledger entries are never updated'); END;
CREATE TRIGGER ledger_entry_no_delete BEFORE DELETE ON ledger_entry
BEGIN SELECT RAISE(ABORT, 'ledger entries are never deleted'); END;
CREATE TRIGGER ledger_entry_only_appended BEFORE INSERT ON ledger_entry
WHEN CASE WHEN NEW.seq = 1 THEN EXISTS (SELECT 1 FROM ledger_entry WHERE run_id = NEW.run_id)
          ELSE (NEW.seq - 1, NEW.prev_hash) IS NOT
               (SELECT seq, hash FROM ledger_entry WHERE run_id = NEW.run_id ORDER BY seq DESC LIMIT 1) END
  OR EXISTS (SELECT 1 FROM ledger_entry WHERE rowid = NEW.rowid)
BEGIN SELECT RAISE(ABORT, 'a ledger entry must continue its chain'); END;

CREATE TRIGGER definition_no_update BEFORE UPDATE ON definition
BEGIN SELECT RAISE(ABORT, 'definitions are never updated'); END;
CREATE TRIGGER definition_no_delete BEFORE DELETE ON definition
BEGIN SELECT RAISE(ABORT, 'definitions are never deleted'); END;
CREATE TRIGGER definition_no_replace BEFORE INSERT ON definition
WHEN EXISTS (SELECT 1 FROM definition WHERE digest = NEW.digest OR rowid = NEW.rowid)
BEGIN SELECT RAISE(IGNORE); END;

CREATE TRIGGER module_no_update BEFORE UPDATE ON module
BEGIN SELECT RAISE(ABORT, 'modules are never updated'); END;
CREATE TRIGGER module_no_delete BEFORE DELETE ON module
BEGIN SELECT RAISE(ABORT, 'modules are never deleted'); END;
CREATE TRIGGER module_no_replace BEFORE INSERT ON module
WHEN EXISTS (SELECT 1 FROM module WHERE digest = NEW.digest OR rowid = NEW.rowid)
BEGIN SELECT RAISE(IGNORE); END;

CREATE TRIGGER module_name_no_update BEFORE UPDATE ON module_name
BEGIN SELECT RAISE(ABORT, 'module names are never updated'); END;
CREATE TRIGGER module_name_no_delete BEFORE DELETE ON module_name
BEGIN SELECT RAISE(ABORT, 'module names are never deleted'); END;
CREATE TRIGGER module_name_no_replace BEFORE INSERT ON module_name
WHEN EXISTS (SELECT 1 FROM module_name WHERE (name = NEW.name AND number = NEW.number) OR rowid = NEW.rowid)
BEGIN SELECT RAISE(ABORT, 'module names are never replaced'); END;

CREATE TRIGGER effect_transition_no_update BEFORE UPDATE ON effect_transition
BEGIN SELECT RAISE(ABORT, 'the transition table is fixed'); END;
CREATE TRIGGER effect_transition_no_delete BEFORE DELETE ON effect_transition
BEGIN SELECT RAISE(ABORT, 'the transition table is fixed'); END;

-- What may change in the projections, and what may not.
CREATE TRIGGER run_no_delete BEFORE DELETE ON run
BEGIN SELECT RAISE(ABORT, 'runs are never deleted'); END;
CREATE TRIGGER run_fixed BEFORE UPDATE ON run
WHEN NEW.id <> OLD.id OR NEW.caller_key IS NOT OLD.caller_key OR NEW.workflow <> OLD.workflow
  OR NEW.definition <> OLD.definition OR NEW.input <> OLD.input OR NEW.priority <> OLD.priority
  OR NEW.created_at <> OLD.created_at OR NEW.parent_run IS NOT OLD.parent_run
  OR NEW.parent_effect IS NOT OLD.parent_effect
BEGIN SELECT RAISE(ABORT, 'what a run was started with is never changed'); END;
CREATE TRIGGER run_cancel_stays BEFORE UPDATE ON run
WHEN OLD.cancel IS NOT NULL AND NEW.cancel IS NOT OLD.cancel
BEGIN SELECT RAISE(ABORT, 'that a run is to be cancelled is never taken back'); END;
CREATE TRIGGER run_fence_rises BEFORE UPDATE ON run
WHEN NEW.fence < OLD.fence OR NEW.head_seq < OLD.head_seq
BEGIN SELECT RAISE(ABORT, 'fencing tokens and chains never go back'); END;
CREATE TRIGGER effect_no_delete BEFORE DELETE ON effect
BEGIN SELECT RAISE(ABORT, 'effects are never deleted'); END;
CREATE TRIGGER effect_owner_fixed BEFORE UPDATE ON effect
WHEN NEW.id <> OLD.id OR NEW.run_id <> OLD.run_id
BEGIN SELECT RAISE(ABORT, 'the owner of an effect is never changed'); END;
