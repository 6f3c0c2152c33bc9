-- The chain of digests over the audit log. Every statement reads at most `limit` rows, by an index.

-- name: take_turn_at_chain
-- Lock the chain until the end of the transaction; no row if another transaction holds the lock.
SELECT true FROM event_chain_state FOR UPDATE SKIP LOCKED;

-- name: chain_head
-- The newest link.
SELECT position, event_id, at, content, digest, chained_at FROM event_chain ORDER BY position DESC LIMIT 1;

-- name: chain_start
-- The oldest link; later links can be verified.
SELECT position FROM event_chain ORDER BY position LIMIT 1;

-- name: events_ahead
-- The last id of the next events, and the last one before a gap.
SELECT max(id) AS through, max(id) FILTER (WHERE id - CAST(:after AS bigint) = n) AS unbroken
FROM (
    SELECT id, row_number() OVER (ORDER BY id) AS n
    FROM (SELECT id FROM events WHERE id > CAST(:after AS bigint) ORDER BY id LIMIT :limit) AS next
) AS numbered;

-- name: event_writers
-- Open transactions that may have recorded events: they hold this lock from before their first id until their end.
SELECT DISTINCT virtualtransaction AS writer FROM pg_locks
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock'
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (relation = CAST('events' AS regclass)
       OR relation IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = CAST('events' AS regclass)));

-- name: events_between
-- Events by their ids, in order; the columns are in the order of AuditedEvent.
SELECT id, at, actor, kind, reservation_id, subject, before, after, reason_code, reason, data
FROM events WHERE id > CAST(:after AS bigint) AND id <= CAST(:through AS bigint) ORDER BY id LIMIT :limit;

-- name: append_to_chain
-- Append links.
INSERT INTO event_chain (position, event_id, at, chained_at, content, digest)
SELECT position, event_id, at, CAST(:chained_at AS timestamptz), content, digest
FROM unnest(CAST(:positions AS bigint[]), CAST(:event_ids AS bigint[]), CAST(:ats AS timestamptz[]),
            CAST(:contents AS bytea[]), CAST(:digests AS bytea[])) AS links (position, event_id, at, content, digest);

-- name: chain_links
-- Links from a position on.
SELECT position, event_id, at, content, digest FROM event_chain
WHERE position >= CAST(:start AS bigint) ORDER BY position LIMIT :limit;

-- name: first_chained_since
-- The first link that was appended at a time or later.
SELECT position FROM event_chain WHERE chained_at >= CAST(:at AS timestamptz) ORDER BY chained_at, position LIMIT 1;

-- name: chain_removals
-- The end of the removed events.
SELECT removed_before, removed_through FROM event_chain_state;

-- name: oldest_unchained
-- The time of the oldest unchained event.
SELECT at FROM events WHERE id > CAST(:after AS bigint) ORDER BY id LIMIT 1;

-- name: trim_chain
-- Remove the oldest links without events, except the last one, which the first kept event follows.
WITH oldest AS (
    SELECT position, event_id, at, lead(event_id) OVER (ORDER BY position) AS next_id
    FROM (SELECT position, event_id, at FROM event_chain ORDER BY position LIMIT :limit) AS links
)
DELETE FROM event_chain WHERE position = ANY(ARRAY(
    SELECT o.position FROM oldest o, event_chain_state s
    WHERE o.next_id < coalesce((SELECT min(id) FROM events), 9223372036854775807)
      AND o.at < s.removed_before AND o.event_id <= s.removed_through
));
