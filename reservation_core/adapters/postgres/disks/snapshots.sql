-- Snapshots of disks, and copies that are not made yet.

-- name: add_snapshot
-- Store a snapshot of a locked disk that is to be taken. None where the disk has one of that name.
INSERT INTO disk_snapshots (id, disk_id, name, size_bytes, created_at)
VALUES (:id, :disk_id, :name, :size_bytes, :now)
ON CONFLICT (disk_id, name COLLATE "C") WHERE NOT removing DO NOTHING RETURNING id;

-- name: add_disk_copy
-- Let a clone or a snapshot be made of a disk, or of its snapshot.
INSERT INTO disk_copies (clone_id, into_snapshot_id, disk_id, snapshot_id, is_still)
VALUES (:clone_id, :into_snapshot_id, :disk_id, :snapshot_id, :is_still);

-- name: copies_of_disks
-- Copies that are not made yet: of these disks, of their snapshots, or into them.
SELECT c.*, coalesce(d.size_bytes, s.size_bytes) AS size_bytes, d.name AS clone, s.name AS snapshot, d.deleted_at
FROM disk_copies c LEFT JOIN disks d ON d.id = c.clone_id LEFT JOIN disk_snapshots s ON s.id = c.into_snapshot_id
WHERE c.disk_id = ANY(CAST(:ids AS text[])) OR c.clone_id = ANY(CAST(:ids AS text[]))
ORDER BY coalesce(c.clone_id, c.into_snapshot_id);

-- name: copies_to_make
-- Copies that the cluster has to make, or that were deleted and may be there; those that failed, or took long, not before
-- a while has gone by.
SELECT c.*, coalesce(d.size_bytes, s.size_bytes) AS size_bytes, d.name AS clone, s.name AS snapshot, d.deleted_at
FROM disk_copies c LEFT JOIN disks d ON d.id = c.clone_id LEFT JOIN disk_snapshots s ON s.id = c.into_snapshot_id
WHERE d.given_up IS NOT TRUE AND d.removing IS NOT TRUE AND s.removing IS NOT TRUE
  AND (coalesce(d.failed_at, s.failed_at) IS NULL OR coalesce(d.failed_at, s.failed_at) < :failed_before)
ORDER BY coalesce(d.failed_at, s.failed_at) NULLS FIRST, coalesce(d.created_at, s.created_at) LIMIT :limit;

-- name: end_disk_copy
-- A copy is made: what was copied may be changed and removed again.
DELETE FROM disk_copies WHERE clone_id = :id OR into_snapshot_id = :id RETURNING clone_id, into_snapshot_id;

-- name: note_snapshot_made
-- The cluster has taken a snapshot.
UPDATE disk_snapshots SET made = true, problem = NULL, failed_at = NULL WHERE id = :id;

-- name: note_snapshot_failure
-- The cluster could not take or remove a snapshot; the text, if there is one, tells its owner why.
UPDATE disk_snapshots SET failed_at = :now, problem = coalesce(left(:problem, 1000), problem) WHERE id = :id;

-- name: note_snapshot_begun
-- The cluster takes a snapshot, and is asked again later: what was refused before is over.
UPDATE disk_snapshots SET failed_at = :now, problem = NULL WHERE id = :id;

-- name: note_clone_begun
-- The cluster makes a clone, and is asked again later. One that was deleted meanwhile stays given up.
UPDATE disks SET failed_at = :now, problem = NULL WHERE id = :id AND deleted_at IS NULL;

-- name: note_clone_failure
-- The cluster could not make a clone; the text, if there is one, tells its owner why. The jobs that have it. One that was deleted before that is
-- given up with it, and one that was deleted since is looked at again: its volume may have come with a job's pod.
UPDATE disks SET problem = coalesce(left(CAST(:problem AS text), 1000), problem),
       failed_at = CASE WHEN deleted_at IS NULL OR CAST(:problem AS text) IS NULL THEN CAST(:now AS timestamptz) END
WHERE id = :id AND deleted_at IS NOT DISTINCT FROM CAST(:deleted_at AS timestamptz)
RETURNING jobs_of_disk(id) AS uses;

-- name: begin_snapshot_removal
-- From now on nobody has this snapshot of a locked disk.
UPDATE disk_snapshots SET removing = true, failed_at = NULL WHERE id = :id;

-- name: begin_removal_of_snapshots
-- From now on nobody has any snapshot of a disk that is being removed; all that are left of it.
UPDATE disk_snapshots s SET removing = true WHERE s.disk_id = :disk_id
  AND EXISTS (SELECT FROM disks d WHERE d.id = s.disk_id AND d.removing) RETURNING s.id;

-- name: snapshots_to_remove
-- Snapshots that the cluster has to remove; where that failed, not before a while has gone by.
SELECT id FROM disk_snapshots WHERE removing AND (failed_at IS NULL OR failed_at < :failed_before)
ORDER BY failed_at NULLS FIRST, id LIMIT :limit;

-- name: remove_snapshot
-- Remove the row of a snapshot that the cluster has removed.
DELETE FROM disk_snapshots WHERE id = :id AND removing;
