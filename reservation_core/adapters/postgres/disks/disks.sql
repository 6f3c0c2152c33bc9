-- Disks of users, and the jobs that use them.

-- name: lock_users_of_disks
-- Serialise changes of these users' disks: the next statement's snapshot is newer than the locks.
SELECT id FROM users WHERE id = ANY(CAST(:user_ids AS bigint[])) ORDER BY id FOR NO KEY UPDATE;

-- name: disk_totals_of
-- What a user's disks are together, their snapshots counted, without one of them and without those that were given up.
SELECT count(*) AS disks, CAST(coalesce(sum(d.size_bytes + (
           SELECT coalesce(sum(s.size_bytes), 0) FROM disk_snapshots s WHERE s.disk_id = d.id)), 0) AS bigint) AS bytes
FROM disks d WHERE d.user_id = :user_id AND d.id <> :but AND NOT d.given_up;

-- name: lock_room_for_disks
-- Let what adds to the size of all disks come one after the other: the next statement's snapshot is newer than the lock.
SELECT pg_advisory_xact_lock(hashtextextended('room for disks', 0));

-- name: disk_bytes_in_all
-- What all users' disks are together, their snapshots counted, without one of them and without those that were given up.
SELECT CAST(coalesce((SELECT sum(size_bytes) FROM disks WHERE id <> :but AND NOT given_up), 0)
          + coalesce((SELECT sum(size_bytes) FROM disk_snapshots WHERE disk_id <> :but), 0) AS bigint) AS bytes;

-- name: add_disk
-- Store a disk that is to be made.
INSERT INTO disks (id, user_id, name, size_bytes, created_at) VALUES (:id, :user_id, :name, :size_bytes, :now)
ON CONFLICT (user_id, name COLLATE "C") WHERE deleted_at IS NULL DO NOTHING
RETURNING *, CAST('[]' AS jsonb) AS uses, CAST('[]' AS jsonb) AS snapshots;

-- name: disks_of
-- One user's disks after a name and an id, in order, with the jobs that have them: those that are not deleted, or those.
SELECT d.*, jobs_of_disk(d.id) AS uses, snapshots_of_disk(d.id) AS snapshots FROM disks d
WHERE d.user_id = :user_id AND (d.deleted_at IS NOT NULL) = :deleted
  AND (d.name COLLATE "C" > :name OR (d.name COLLATE "C" = :name AND d.id > :id))
ORDER BY d.name COLLATE "C", d.id LIMIT :limit;

-- name: lock_disks_named
-- Lock one user's disks of these names until the transaction ends: the next statement's snapshot is newer than the locks.
SELECT id FROM disks WHERE user_id = :user_id AND name COLLATE "C" = ANY(CAST(:names AS text[]))
ORDER BY id FOR NO KEY UPDATE;

-- name: disk_named
-- One user's disk of a name, or the last deleted one, with the jobs that have it.
SELECT d.*, jobs_of_disk(d.id) AS uses, snapshots_of_disk(d.id) AS snapshots FROM disks d
WHERE d.user_id = :user_id AND d.name COLLATE "C" = :name AND (d.deleted_at IS NOT NULL) = :deleted
ORDER BY d.deleted_at DESC NULLS LAST, d.id LIMIT 1;

-- name: disks_named
-- One user's disks of these names that are not deleted, with the jobs that have them.
SELECT d.*, jobs_of_disk(d.id) AS uses, snapshots_of_disk(d.id) AS snapshots FROM disks d
WHERE d.user_id = :user_id AND d.deleted_at IS NULL AND d.name COLLATE "C" = ANY(CAST(:names AS text[]))
ORDER BY d.id;

-- name: change_disk
-- Give a disk that is locked an owner, a name, a size, and whether it is deleted.
UPDATE disks SET user_id = :user_id, name = :name, size_bytes = :size_bytes, deleted_at = :deleted_at,
       problem = CASE WHEN size_bytes = :size_bytes THEN problem END, failed_at = NULL
WHERE id = :id RETURNING id;

-- name: end_uses_of_disks
-- Jobs that have ended have none of these disks, which are locked, any more.
WITH ended AS (
    DELETE FROM disk_uses u USING reservations r
    WHERE u.disk_id = ANY(CAST(:ids AS text[])) AND r.id = u.reservation_id
      AND r.status IN ('succeeded', 'failed', 'cancelled', 'expired')
    RETURNING u.disk_id
)
UPDATE disks d SET given_back_at = :now WHERE d.id IN (SELECT disk_id FROM ended);

-- name: add_disk_uses
-- Let a job have disks from now on.
INSERT INTO disk_uses (disk_id, reservation_id, read_only)
SELECT i.id, :reservation_id, i.read_only FROM unnest(CAST(:ids AS text[]), CAST(:read_onlys AS boolean[])) AS i (id, read_only)
ORDER BY i.id;

-- name: disk_was_used
-- Whether a job has, or has had, a locked disk.
SELECT d.given_back_at IS NOT NULL OR EXISTS (SELECT FROM disk_uses u WHERE u.disk_id = d.id) AS was_used
FROM disks d WHERE d.id = :id;

-- name: end_disk_uses
-- Jobs that have ended have no disks any more; these are to be measured again. Disks that are being changed have their turn
-- the next time.
WITH locked AS MATERIALIZED (
    SELECT id FROM disks
    WHERE id IN (SELECT u.disk_id FROM disk_uses u JOIN reservations r ON r.id = u.reservation_id
                 WHERE r.status IN ('succeeded', 'failed', 'cancelled', 'expired'))
    ORDER BY id LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED
), ended AS (
    DELETE FROM disk_uses u USING reservations r
    WHERE u.disk_id IN (SELECT id FROM locked) AND r.id = u.reservation_id
      AND r.status IN ('succeeded', 'failed', 'cancelled', 'expired')
    RETURNING u.disk_id
)
UPDATE disks d SET given_back_at = :now WHERE d.id IN (SELECT disk_id FROM ended);

-- name: disks_to_settle
-- Disks that the cluster has to make, not by a copy, or to give another size, and those to remove: deleted so long ago, or given up. Where
-- that failed, not before a while has gone by.
(SELECT *, CAST('[]' AS jsonb) AS uses, CAST('[]' AS jsonb) AS snapshots FROM disks
 WHERE deleted_at IS NULL AND (made_bytes IS NULL OR made_bytes <> size_bytes)
   AND (made_bytes IS NOT NULL OR NOT EXISTS (SELECT FROM disk_copies c WHERE c.clone_id = disks.id))
   AND (failed_at IS NULL OR failed_at < :failed_before)
 ORDER BY failed_at NULLS FIRST, id LIMIT :limit)
UNION ALL
(SELECT *, CAST('[]' AS jsonb) AS uses, CAST('[]' AS jsonb) AS snapshots FROM disks
 WHERE (deleted_at <= :deleted_before OR given_up)
   AND (failed_at IS NULL OR failed_at < :failed_before)
 ORDER BY failed_at NULLS FIRST, deleted_at LIMIT :limit);

-- name: begin_disk_removal
-- From now on nobody can restore a disk that was deleted so long ago, or given up.
UPDATE disks SET removing = true
WHERE id = :id AND (deleted_at <= :deleted_before OR given_up)
RETURNING id;

-- name: note_disk_made
-- The cluster has made a disk of this size. One that was given up meanwhile is nobody's, does not count, and is removed.
UPDATE disks SET made_bytes = :size_bytes, problem = NULL, failed_at = NULL WHERE id = :id AND NOT given_up;

-- name: note_disk_failure
-- The cluster could not make, resize or remove a disk; the text, if there is one, tells its owner why.
UPDATE disks SET failed_at = :now, problem = coalesce(left(:problem, 1000), problem) WHERE id = :id;

-- name: remove_disk
-- Remove the row of a disk that the cluster has removed; its owner's name.
DELETE FROM disks d USING users u WHERE d.id = :id AND d.removing AND u.id = d.user_id RETURNING u.name AS user_name;

-- name: disks_to_measure
-- Disks that are made and were not measured since a job gave them back, or are used and were not measured for a while.
SELECT d.id, d.made_bytes FROM disks d
WHERE d.made_bytes IS NOT NULL AND d.deleted_at IS NULL
  AND (d.measured_at IS NULL OR d.given_back_at >= d.measured_at
       OR (d.measured_at < :measured_before AND EXISTS (SELECT FROM disk_uses u WHERE u.disk_id = d.id AND NOT u.read_only)))
ORDER BY d.measured_at NULLS FIRST LIMIT :limit;

-- name: note_disk_use
-- How much was on a disk when the measurement began, at least.
UPDATE disks SET used_bytes = :used_bytes, measured_at = :now WHERE id = :id;
