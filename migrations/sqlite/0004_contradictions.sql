-- Contradictions, version 4. An attempt that was taken for one that did nothing is in doubt again when something says that it
-- happened.
INSERT INTO effect_transition (from_state, kind, to_state) VALUES ('AUTHORIZED', 'unknown', 'UNKNOWN');
