-- The ledger, version 1. Times are milliseconds since 1970-01-01 UTC; JSON is canonical text (RFC 8785); states and kinds
-- are the words of the contracts. Statements that read or write these tables are the same for every database. Texts are
-- ordered by their bytes, as everywhere else.

-- The database's clock. Leases are judged by it and by nothing else.
CREATE VIEW clock AS SELECT CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT) AS now_ms;

-- What statements cast bytes to, by the name that other databases have for it.
CREATE DOMAIN blob AS BYTEA;

-- Pinned definitions: what a run is interpreted under for as long as it lives.
CREATE TABLE definition (
    digest TEXT COLLATE "C" NOT NULL PRIMARY KEY CHECK (digest <> ''),
    body   TEXT COLLATE "C" NOT NULL
);

-- Components, by the digest of their bytes.
CREATE TABLE module (
    digest TEXT COLLATE "C" NOT NULL PRIMARY KEY CHECK (digest <> ''),
    size   BIGINT NOT NULL CHECK (size >= 0),
    bytes  BYTEA NOT NULL
);

-- Which component a name stands for: the row with the highest number.
CREATE TABLE module_name (
    name     TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
    number   BIGINT NOT NULL CHECK (number >= 1),
    digest   TEXT COLLATE "C" NOT NULL REFERENCES module (digest),
    added_at BIGINT NOT NULL,
    PRIMARY KEY (name, number)
);

-- Runs: a projection of their entries, and the lease. `progress` is the checkpoint, which has taken in the entries up to
-- number `progress_seq`; what stands behind it is folded by whoever goes on with the run. `claim_at` is the instant since
-- when a worker may take the run: due time, or end of the lease; NULL when none may.
-- `cancel` says who asked for its cancellation and why, NULL when nobody did. A child is told by the run and the effect that
-- started it. Rows leave room beside themselves: nearly every write changes one.
CREATE TABLE run (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY CHECK (id <> ''),
    caller_key  TEXT COLLATE "C" UNIQUE,
    workflow    TEXT COLLATE "C" NOT NULL,
    definition  TEXT COLLATE "C" NOT NULL REFERENCES definition (digest),
    input       TEXT COLLATE "C" NOT NULL,
    priority    BIGINT NOT NULL CHECK (priority BETWEEN -9 AND 9),
    state       TEXT COLLATE "C" NOT NULL CHECK (state IN
                    ('ready', 'running', 'waiting', 'halted', 'completed', 'failed',
                     'cancelled', 'stuck', 'quarantined')),
    progress    TEXT COLLATE "C" NOT NULL,
    progress_seq BIGINT NOT NULL CHECK (progress_seq BETWEEN 1 AND head_seq),
    output      TEXT COLLATE "C",
    reason      TEXT COLLATE "C",
    cancel      TEXT COLLATE "C",
    due_at      BIGINT,
    claim_at    BIGINT,
    worker      TEXT COLLATE "C",
    fence       BIGINT NOT NULL CHECK (fence >= 0),
    lease_until BIGINT,
    crashes     BIGINT NOT NULL CHECK (crashes >= 0),
    head_seq    BIGINT NOT NULL CHECK (head_seq >= 1),
    head_hash   BYTEA NOT NULL CHECK (length(head_hash) = 32),
    created_at  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    parent_run  TEXT COLLATE "C",
    parent_effect TEXT COLLATE "C",
    CHECK ((parent_run IS NULL) = (parent_effect IS NULL)),
    CHECK (state IN ('ready', 'running', 'waiting') OR claim_at IS NULL),
    CHECK (state <> 'running' OR (worker IS NOT NULL AND lease_until IS NOT NULL AND claim_at = lease_until))
) WITH (fillfactor = 70);
-- What is not over, in the order in which workers take it.
CREATE INDEX run_open ON run (workflow, priority, claim_at, id, state, worker)
    WHERE state IN ('ready', 'running', 'waiting', 'halted', 'stuck', 'quarantined');
CREATE INDEX run_newest ON run (created_at, id);
CREATE INDEX run_child ON run (parent_run) WHERE parent_run IS NOT NULL;

-- Effects: a projection of their entries, for listings. The owner is the run that proposed the effect first. What is
-- `settled_here` is never UNKNOWN: the ledger itself tells what became of it. Nothing that
-- changes with an effect's state is in an index, so that such a change finds room beside the row.
CREATE TABLE effect (
    id              TEXT COLLATE "C" NOT NULL PRIMARY KEY CHECK (id <> ''),
    run_id          TEXT COLLATE "C" NOT NULL REFERENCES run (id),
    node            TEXT COLLATE "C" NOT NULL,
    visit           BIGINT NOT NULL CHECK (visit >= 0),
    element         TEXT COLLATE "C" CHECK (element <> ''),
    slot            TEXT COLLATE "C" NOT NULL,
    operation       TEXT COLLATE "C" NOT NULL,
    idempotency_key TEXT COLLATE "C" NOT NULL,
    request_hash    TEXT COLLATE "C" NOT NULL,
    state           TEXT COLLATE "C" NOT NULL CHECK (state IN
                        ('PROPOSED', 'AUTHORIZED', 'REQUESTED', 'CONFIRMED', 'FAILED', 'UNKNOWN')),
    attempts        BIGINT NOT NULL CHECK (attempts >= 0),
    external_id     TEXT COLLATE "C",
    held            BIGINT NOT NULL CHECK (held IN (0, 1)),
    undoes          TEXT COLLATE "C",
    settled_here    BIGINT NOT NULL CHECK (settled_here IN (0, 1)),
    last_error      TEXT COLLATE "C",
    updated_at      BIGINT NOT NULL,
    CHECK (settled_here = 0 OR state <> 'UNKNOWN')
) WITH (fillfactor = 70);
CREATE INDEX effect_of_step ON effect (run_id, node, visit, element);
CREATE INDEX effect_held ON effect (id) WHERE held = 1;

-- Which run has a business object to itself. A row goes with the run's end; one whose `expires_at` is over may be taken by
-- another run. How it came about is in the entries of the run that has it.
CREATE TABLE object_lock (
    name       TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
    object     TEXT COLLATE "C" NOT NULL CHECK (object <> ''),
    run_id     TEXT COLLATE "C" NOT NULL REFERENCES run (id),
    taken_at   BIGINT NOT NULL,
    expires_at BIGINT,
    PRIMARY KEY (name, object)
);
CREATE INDEX object_lock_of_run ON object_lock (run_id);

-- Which run waits for which lock: so that runs that wait for each other are found. A row counts while its run has not been
-- taken up since without asking again, which `fence` tells.
CREATE TABLE object_lock_wait (
    run_id TEXT COLLATE "C" NOT NULL REFERENCES run (id),
    name   TEXT COLLATE "C" NOT NULL CHECK (name <> ''),
    object TEXT COLLATE "C" NOT NULL CHECK (object <> ''),
    fence  BIGINT NOT NULL CHECK (fence >= 0),
    since  BIGINT NOT NULL,
    PRIMARY KEY (run_id, name, object)
);
CREATE INDEX object_lock_wait_for ON object_lock_wait (name, object);

-- The transition table of effects, mirrored: an entry whose move is not a row here cannot be written. NONE is the state
-- before the first entry.
CREATE TABLE effect_transition (
    from_state TEXT COLLATE "C" NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL,
    to_state   TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (from_state, kind, to_state)
);
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
    run_id     TEXT COLLATE "C" NOT NULL,
    seq        BIGINT NOT NULL CHECK (seq >= 1),
    fence      BIGINT NOT NULL CHECK (fence >= 0),
    made_at    BIGINT NOT NULL,
    effect_id  TEXT COLLATE "C",
    kind       TEXT COLLATE "C" NOT NULL CHECK (kind <> ''),
    body       TEXT COLLATE "C" NOT NULL,
    prev_hash  BYTEA NOT NULL CHECK (length(prev_hash) = 32),
    hash       BYTEA NOT NULL CHECK (length(hash) = 32),
    from_state TEXT COLLATE "C",
    to_state   TEXT COLLATE "C",
    UNIQUE (run_id, seq),
    CHECK ((effect_id IS NULL) = (from_state IS NULL) AND (effect_id IS NULL) = (to_state IS NULL))
);
CREATE INDEX ledger_entry_of_effect ON ledger_entry (effect_id, seq) WHERE effect_id IS NOT NULL;

-- Append-only. These triggers fire for statements, also for those that would meet no row: whoever tries is told.
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'restrict_violation';
END $$;

-- An entry goes only to the end of its chain, belongs to a run and an effect that are there, and is a move that the
-- transition table knows. Checked once for all rows of a statement: as foreign keys and row by row, this would cost more
-- than everything else about an entry. What is referred to is never deleted, so that one look is enough.
CREATE FUNCTION ledger_entry_continues() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM fresh n LEFT JOIN ledger_entry p ON p.run_id = n.run_id AND p.seq = n.seq - 1
               WHERE n.seq > 1 AND n.prev_hash IS DISTINCT FROM p.hash) THEN
        RAISE EXCEPTION 'a ledger entry must continue its chain' USING ERRCODE = 'restrict_violation';
    END IF;
    IF EXISTS (SELECT 1 FROM fresh n LEFT JOIN run r ON r.id = n.run_id WHERE n.seq = 1 AND r.id IS NULL) THEN
        RAISE EXCEPTION 'a ledger entry must belong to a run' USING ERRCODE = 'foreign_key_violation';
    END IF;
    IF EXISTS (SELECT 1 FROM fresh n LEFT JOIN effect f ON f.id = n.effect_id
               WHERE n.effect_id IS NOT NULL AND f.id IS NULL) THEN
        RAISE EXCEPTION 'a ledger entry must belong to an effect' USING ERRCODE = 'foreign_key_violation';
    END IF;
    IF EXISTS (SELECT 1 FROM fresh n LEFT JOIN effect_transition t
                   ON t.from_state = n.from_state AND t.kind = n.kind AND t.to_state = n.to_state
               WHERE n.effect_id IS NOT NULL AND t.kind IS NULL) THEN
        RAISE EXCEPTION 'a ledger entry must be a move that effects can make' USING ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER ledger_entry_no_update BEFORE UPDATE ON ledger_entry
    EXECUTE FUNCTION refuse('ledger entries are never updated');
CREATE TRIGGER ledger_entry_no_delete BEFORE DELETE OR TRUNCATE ON ledger_entry
    EXECUTE FUNCTION refuse('ledger entries are never deleted');
CREATE TRIGGER ledger_entry_only_appended AFTER INSERT ON ledger_entry
    REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION ledger_entry_continues();

CREATE TRIGGER definition_no_update BEFORE UPDATE ON definition
    EXECUTE FUNCTION refuse('definitions are never updated');
CREATE TRIGGER definition_no_delete BEFORE DELETE OR TRUNCATE ON definition
    EXECUTE FUNCTION refuse('definitions are never deleted');

CREATE TRIGGER module_no_update BEFORE UPDATE ON module
    EXECUTE FUNCTION refuse('modules are never updated');
CREATE TRIGGER module_no_delete BEFORE DELETE OR TRUNCATE ON module
    EXECUTE FUNCTION refuse('modules are never deleted');

CREATE TRIGGER module_name_no_update BEFORE UPDATE ON module_name
    EXECUTE FUNCTION refuse('module names are never updated');
CREATE TRIGGER module_name_no_delete BEFORE DELETE OR TRUNCATE ON module_name
    EXECUTE FUNCTION refuse('module names are never deleted');

CREATE TRIGGER effect_transition_no_update BEFORE UPDATE ON effect_transition
    EXECUTE FUNCTION refuse('the transition table is fixed');
CREATE TRIGGER effect_transition_no_delete BEFORE DELETE OR TRUNCATE ON effect_transition
    EXECUTE FUNCTION refuse('the transition table is fixed');

-- What may change in the projections, and what may not.
CREATE TRIGGER run_no_delete BEFORE DELETE OR TRUNCATE ON run
    EXECUTE FUNCTION refuse('runs are never deleted');
CREATE TRIGGER run_fixed BEFORE UPDATE OF id, caller_key, workflow, definition, input, priority, created_at, parent_run,
    parent_effect ON run
    FOR EACH ROW
    WHEN (NEW.id <> OLD.id OR NEW.caller_key IS DISTINCT FROM OLD.caller_key OR NEW.workflow <> OLD.workflow
        OR NEW.definition <> OLD.definition OR NEW.input <> OLD.input OR NEW.priority <> OLD.priority
        OR NEW.created_at <> OLD.created_at OR NEW.parent_run IS DISTINCT FROM OLD.parent_run
        OR NEW.parent_effect IS DISTINCT FROM OLD.parent_effect)
    EXECUTE FUNCTION refuse('what a run was started with is never changed');
CREATE TRIGGER run_cancel_stays BEFORE UPDATE OF cancel ON run
    FOR EACH ROW WHEN (OLD.cancel IS NOT NULL AND NEW.cancel IS DISTINCT FROM OLD.cancel)
    EXECUTE FUNCTION refuse('that a run is to be cancelled is never taken back');
CREATE TRIGGER run_fence_rises BEFORE UPDATE ON run
    FOR EACH ROW WHEN (NEW.fence < OLD.fence OR NEW.head_seq < OLD.head_seq)
    EXECUTE FUNCTION refuse('fencing tokens and chains never go back');
CREATE TRIGGER effect_no_delete BEFORE DELETE OR TRUNCATE ON effect
    EXECUTE FUNCTION refuse('effects are never deleted');
CREATE TRIGGER effect_owner_fixed BEFORE UPDATE ON effect
    FOR EACH ROW WHEN (NEW.id <> OLD.id OR NEW.run_id <> OLD.run_id)
    EXECUTE FUNCTION refuse('the owner of an effect is never changed');
