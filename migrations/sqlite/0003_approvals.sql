-- Approvals, version 3. A person's approval of an effect is an effect of its own, found by what it approves.
ALTER TABLE effect ADD COLUMN approves TEXT;
CREATE INDEX effect_approval ON effect (id) WHERE approves IS NOT NULL;
