-- The chain of digests over the audit log. Whoever leads appends to it what is committed, in the order of ids, and never
-- changes it. What is hashed: reservation_core/domain/history/audit_chain.py.

-- `position` has no holes: two that would append at the same place exclude each other. `content` is the digest of the event,
-- `digest` that of this link with the one before. A link may outlive its event, whose time it keeps.
CREATE TABLE event_chain (
    position   bigint PRIMARY KEY CHECK (position >= 0),
    event_id   bigint NOT NULL,
    at         timestamptz NOT NULL,
    chained_at timestamptz NOT NULL,
    content    bytea NOT NULL CHECK (length(content) = 32),
    digest     bytea NOT NULL CHECK (length(digest) = 32)
);
CREATE INDEX event_chain_time ON event_chain (chained_at, position);
-- What the first event follows.
INSERT INTO event_chain (position, event_id, at, chained_at, content, digest)
SELECT 0, 0, 'epoch', 'epoch', none, none FROM decode(repeat('00', 32), 'hex') AS none;

-- One row. Whoever appends locks it, and whoever drops a partition. What the retention removed: events up to an id whose
-- time is before another.
CREATE TABLE event_chain_state (
    one             boolean PRIMARY KEY DEFAULT true CHECK (one),
    removed_before  timestamptz NOT NULL DEFAULT 'epoch',
    removed_through bigint NOT NULL DEFAULT 0
);
INSERT INTO event_chain_state DEFAULT VALUES;

-- Links are not changed, and go only by the retention, after their events.
CREATE FUNCTION event_chain_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('gpu_dev.retention', true) = 'on' THEN
        IF EXISTS (SELECT FROM event_chain_state WHERE OLD.at < removed_before AND OLD.event_id <= removed_through) THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION 'the chain of the audit log is append-only'
        USING HINT = 'Links are removed by the retention alone, after their events.';
END $$;
CREATE TRIGGER event_chain_append_only BEFORE UPDATE OR DELETE ON event_chain
    FOR EACH ROW EXECUTE FUNCTION event_chain_stays();
CREATE TRIGGER event_chain_no_truncate BEFORE TRUNCATE ON event_chain
    FOR EACH STATEMENT EXECUTE FUNCTION event_chain_stays();

-- As before, but a partition stays until all of it is chained, and what went is remembered.
CREATE OR REPLACE FUNCTION drop_event_partition(moment timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    chosen    record;
    rows      bigint;
    newest_id bigint;
    newest_at timestamptz;
BEGIN
    -- In the order of whoever appends: the state, and then events.
    PERFORM FROM event_chain_state FOR UPDATE;
    -- What is being written into the default partition is not seen before it is committed.
    LOCK TABLE events IN ACCESS EXCLUSIVE MODE;
    SELECT oid, name, ends_at INTO chosen FROM event_partitions WHERE ends_at <= moment ORDER BY ends_at LIMIT 1;
    IF NOT FOUND THEN
        SELECT oid, name, ends_at INTO chosen FROM event_partitions
        WHERE ends_at IS NULL AND EXISTS (SELECT FROM events_default)
          AND NOT EXISTS (SELECT FROM events_default WHERE at >= moment);
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    EXECUTE format('SELECT max(id), max(at) FROM %I', chosen.name) INTO newest_id, newest_at;
    IF newest_id > (SELECT event_id FROM event_chain ORDER BY position DESC LIMIT 1) THEN
        RAISE EXCEPTION '% has events that are not chained yet', chosen.name USING ERRCODE = 'object_in_use';
    END IF;
    SELECT CAST(greatest(reltuples, 0) AS bigint) INTO rows FROM pg_class WHERE oid = chosen.oid;
    IF rows < 100000 THEN
        EXECUTE format('SELECT count(*) FROM (SELECT FROM %I LIMIT 100000) AS counted', chosen.name) INTO rows;
    END IF;
    EXECUTE format('ALTER TABLE events DETACH PARTITION %I', chosen.name);
    EXECUTE format('DROP TABLE %I', chosen.name);
    IF chosen.ends_at IS NULL THEN
        PERFORM make_event_partition('events_default', 'DEFAULT');
    END IF;
    UPDATE event_chain_state
    SET removed_before = greatest(removed_before, newest_at + interval '1 microsecond'),
        removed_through = greatest(removed_through, newest_id);
    RETURN rows;
END $$;
