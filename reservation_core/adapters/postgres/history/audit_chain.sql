-- The chain of digests over the audit log. Every statement looks at no more than `limit` rows, by an index.

-- name: take_turn_at_chain
-- Nobody else appends until the end of this transaction; nothing where somebody does.
SELECT true FROM event_chain_state FOR UPDATE SKIP LOCKED;

-- name: chain_head
-- The newest link.
SELECT position, event_id, at, content, digest, chained_at FROM event_chain ORDER BY position DESC LIMIT 1;

-- name: chain_start
-- The oldest link: what follows it can be checked.
SELECT position FROM event_chain ORDER BY position LIMIT 1;

-- name: events_ahead
-- How far the next events go, and how far they go without a missing id.
SELECT max(id) AS through, max(id) FILTER (WHERE id - CAST(:after AS bigint) = n) AS unbroken
FROM (
    SELECT id, row_number() OVER (ORDER BY id) AS n
    FROM (SELECT id FROM events WHERE id > CAST(:after AS bigint) ORDER BY id LIMIT :limit) AS next
) AS numbered;

-- name: event_writers
-- The transactions that may have recorded something and are not over: each holds this lock from before it draws its first
-- id until it is over.
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
-- New links.
INSERT INTO event_chain (position, event_id, at, chained_at, content, digest)
SELECT position, event_id, at, CAST(:chained_at AS timestamptz), content, digest
FROM unnest(CAST(:positions AS bigint[]), CAST(:event_ids AS bigint[]), CAST(:ats AS timestamptz[]),
            CAST(:contents AS bytea[]), CAST(:digests AS bytea[])) AS links (position, event_id, at, content, digest);

-- name: chain_links
-- Links from a position on.
SELECT position, event_id, at, content, digest FROM event_chain
WHERE position >= CAST(:start AS bigint) ORDER BY position LIMIT :limit;

-- name: first_chained_since
-- The first link that was made at a time or later.
SELECT position FROM event_chain WHERE chained_at >= CAST(:at AS timestamptz) ORDER BY chained_at, position LIMIT 1;

-- name: chain_removals
-- What the retention removed.
SELECT removed_before, removed_through FROM event_chain_state;

-- name: oldest_unchained
-- When the next event to be chained was recorded.
SELECT at FROM events WHERE id > CAST(:after AS bigint) ORDER BY id LIMIT 1;

-- name: trim_chain
-- Remove the oldest links whose events are gone, but for the last of these: the first event that is kept follows it.
WITH oldest AS (
    SELECT position, event_id, at, lead(event_id) OVER (ORDER BY position) AS next_id
    FROM (SELECT position, event_id, at FROM event_chain ORDER BY position LIMIT :limit) AS links
)
DELETE FROM event_chain WHERE position = ANY(ARRAY(
    SELECT o.position FROM oldest o, event_chain_state s
    WHERE o.next_id < coalesce((SELECT min(id) FROM events), 9223372036854775807)
      AND o.at < s.removed_before AND o.event_id <= s.removed_through
));
