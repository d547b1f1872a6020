CREATE TABLE IF NOT EXISTS effect (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL UNIQUE,
    operation  TEXT NOT NULL,
    object     TEXT NOT NULL,
    reference  TEXT,
    key        TEXT,
    body       TEXT NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS effect_by_reference ON effect (operation, reference);
CREATE INDEX IF NOT EXISTS effect_by_key ON effect (operation, key);
CREATE INDEX IF NOT EXISTS effect_by_object ON effect (operation, object);

CREATE TABLE IF NOT EXISTS idempotency (
    key         TEXT PRIMARY KEY,
    fingerprint TEXT NOT NULL,
    status      INTEGER NOT NULL,
    body        TEXT NOT NULL,
    effect_id   TEXT,
    created_ms  INTEGER NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS request (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms      INTEGER NOT NULL,
    operation  TEXT NOT NULL,
    method     TEXT NOT NULL,
    path       TEXT NOT NULL,
    query      TEXT NOT NULL,
    headers    TEXT NOT NULL,
    key        TEXT,
    body_hash  TEXT NOT NULL,
    body_bytes INTEGER NOT NULL,
    outcome    TEXT,
    status     INTEGER
) STRICT;

-- Counters are kept apart from the log, which is cut to length.
CREATE TABLE IF NOT EXISTS received (
    operation TEXT NOT NULL,
    key       TEXT NOT NULL,
    requests  INTEGER NOT NULL,
    PRIMARY KEY (operation, key)
) STRICT;

CREATE TABLE IF NOT EXISTS outcome (
    operation TEXT NOT NULL,
    outcome   TEXT NOT NULL,
    requests  INTEGER NOT NULL,
    PRIMARY KEY (operation, outcome)
) STRICT;

CREATE TABLE IF NOT EXISTS switch (
    ordinal INTEGER PRIMARY KEY,
    state   TEXT NOT NULL
) STRICT;

CREATE TABLE IF NOT EXISTS setting (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
