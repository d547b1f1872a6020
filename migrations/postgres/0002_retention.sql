-- Retention, version 2. A run that is over may be exported and then removed; what stays of it is a tombstone. Nothing else is
-- ever removed.

-- Holds nothing: what refers to it cannot be committed.
CREATE TABLE never (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY CHECK (id = '' AND id <> '')
);

-- What stays of a run that was removed: that it was, who it was by, how its chain ended, and where its entries went.
-- While `pruning` is set, what is the run's may be deleted; it has to be cleared before the transaction can commit, and
-- it can be cleared only when the run is gone.
CREATE TABLE tombstone (
    run_id        TEXT COLLATE "C" NOT NULL PRIMARY KEY CHECK (run_id <> ''),
    caller_key    TEXT COLLATE "C" UNIQUE,
    workflow      TEXT COLLATE "C" NOT NULL,
    definition    TEXT COLLATE "C" NOT NULL,
    input_hash    BYTEA NOT NULL CHECK (length(input_hash) = 32),
    state         TEXT COLLATE "C" NOT NULL CHECK (state IN ('completed', 'failed', 'cancelled')),
    head_seq      BIGINT NOT NULL CHECK (head_seq >= 1),
    head_hash     BYTEA NOT NULL CHECK (length(head_hash) = 32),
    created_at    BIGINT NOT NULL,
    ended_at      BIGINT NOT NULL,
    pruned_at     BIGINT NOT NULL,
    pruned_by     TEXT COLLATE "C" NOT NULL,
    export        TEXT COLLATE "C" NOT NULL,
    export_digest TEXT COLLATE "C" NOT NULL CHECK (export_digest <> ''),
    pruning       TEXT COLLATE "C" REFERENCES never (id) DEFERRABLE INITIALLY DEFERRED
);

CREATE FUNCTION tombstone_tells_the_truth() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.pruning IS NULL OR NOT EXISTS (SELECT 1 FROM run r WHERE r.id = NEW.run_id AND r.state = NEW.state
            AND r.head_seq = NEW.head_seq AND r.head_hash = NEW.head_hash) THEN
        RAISE EXCEPTION 'a tombstone is of a run that is over, with the head of its chain'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER tombstone_true BEFORE INSERT ON tombstone
    FOR EACH ROW EXECUTE FUNCTION tombstone_tells_the_truth();

CREATE FUNCTION tombstone_closes() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    closed tombstone := OLD;
BEGIN
    closed.pruning := NULL;
    IF OLD.pruning IS NULL OR NEW IS DISTINCT FROM closed OR EXISTS (SELECT 1 FROM run r WHERE r.id = OLD.run_id) THEN
        RAISE EXCEPTION 'tombstones are never updated' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER tombstone_fixed BEFORE UPDATE ON tombstone
    FOR EACH ROW EXECUTE FUNCTION tombstone_closes();
CREATE TRIGGER tombstone_no_delete BEFORE DELETE OR TRUNCATE ON tombstone
    EXECUTE FUNCTION refuse('tombstones are never deleted');

-- What is deleted must be of a run whose tombstone this very transaction writes. Checked once for all rows of a statement.
CREATE FUNCTION refuse_unless_pruning() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM gone g LEFT JOIN tombstone t ON t.run_id = g.run_id AND t.pruning IS NOT NULL
               WHERE t.run_id IS NULL) THEN
        RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION refuse_run_unless_pruning() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM gone g LEFT JOIN tombstone t ON t.run_id = g.id AND t.pruning IS NOT NULL
               WHERE t.run_id IS NULL) THEN
        RAISE EXCEPTION '%', TG_ARGV[0] USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;

DROP TRIGGER ledger_entry_no_delete ON ledger_entry;
CREATE TRIGGER ledger_entry_no_truncate BEFORE TRUNCATE ON ledger_entry
    EXECUTE FUNCTION refuse('ledger entries are never deleted');
CREATE TRIGGER ledger_entry_no_delete AFTER DELETE ON ledger_entry REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_unless_pruning('ledger entries are never deleted');
DROP TRIGGER effect_no_delete ON effect;
CREATE TRIGGER effect_no_truncate BEFORE TRUNCATE ON effect
    EXECUTE FUNCTION refuse('effects are never deleted');
CREATE TRIGGER effect_no_delete AFTER DELETE ON effect REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_unless_pruning('effects are never deleted');
DROP TRIGGER run_no_delete ON run;
CREATE TRIGGER run_no_truncate BEFORE TRUNCATE ON run
    EXECUTE FUNCTION refuse('runs are never deleted');
CREATE TRIGGER run_no_delete AFTER DELETE ON run REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_run_unless_pruning('runs are never deleted');
