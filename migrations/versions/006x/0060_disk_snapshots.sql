-- Snapshots of disks. As with disks, a row is there before the cluster makes anything for it, and until all of it is
-- removed; so a disk's row outlives those of its snapshots. A snapshot counts with the size that its disk had.
CREATE TABLE disk_snapshots (
    id          text PRIMARY KEY CHECK (id ~ '^snap-[0-9a-z]{1,32}$'),
    disk_id     text NOT NULL REFERENCES disks (id),
    name        text NOT NULL CHECK (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    size_bytes  bigint NOT NULL CHECK (size_bytes BETWEEN 1048576 AND 1125899906842624),
    created_at  timestamptz NOT NULL,
    made        boolean NOT NULL DEFAULT false,
    problem     text CHECK (length(problem) <= 1000),
    failed_at   timestamptz,
    removing    boolean NOT NULL DEFAULT false,
    is_live     boolean NOT NULL GENERATED ALWAYS AS (NOT removing) STORED,
    UNIQUE (id, disk_id, is_live)
);
CREATE UNIQUE INDEX disk_snapshots_named ON disk_snapshots (disk_id, name COLLATE "C") WHERE NOT removing;
CREATE INDEX disk_snapshots_of_disk ON disk_snapshots (disk_id);
CREATE INDEX disk_snapshots_to_remove ON disk_snapshots (id) WHERE removing;

-- Copies that are not made yet: of a disk, or of one of its snapshots, into a clone or a snapshot. What is copied is
-- neither deleted nor removed meanwhile: by the second keys. While a disk is copied that must be still, no job writes to
-- it, and no job has its clone.
CREATE TABLE disk_copies (
    clone_id         text UNIQUE REFERENCES disks (id) ON DELETE CASCADE,
    into_snapshot_id text UNIQUE REFERENCES disk_snapshots (id) ON DELETE CASCADE,
    disk_id          text NOT NULL,
    snapshot_id      text,
    is_still         boolean NOT NULL,
    of_live          boolean NOT NULL DEFAULT true CHECK (of_live),
    CONSTRAINT disk_copies_into_one CHECK (num_nonnulls(clone_id, into_snapshot_id) = 1),
    CONSTRAINT disk_copies_of_another CHECK (clone_id <> disk_id),
    CONSTRAINT disk_copies_of_live FOREIGN KEY (disk_id, of_live) REFERENCES disks (id, is_live),
    CONSTRAINT disk_copies_of_live_snapshot FOREIGN KEY (snapshot_id, disk_id, of_live)
        REFERENCES disk_snapshots (id, disk_id, is_live)
);
CREATE INDEX disk_copies_of_disk ON disk_copies (disk_id);
CREATE INDEX disk_copies_of_snapshot ON disk_copies (snapshot_id);

-- A disk's snapshots by name.
CREATE FUNCTION snapshots_of_disk(asked text) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(
        jsonb_build_object('id', s.id, 'name', s.name, 'size_bytes', s.size_bytes, 'created_at', s.created_at,
                           'is_made', s.made, 'problem', s.problem) ORDER BY s.name COLLATE "C"), '[]')
    FROM disk_snapshots s WHERE s.disk_id = asked AND NOT s.removing
$$;

-- The disk's row is locked as a copy of it is asked for: a job that is being submitted with the disk is waited for, or
-- waits (see `disk_uses_of_owner`, which locks it before `disk_uses_while_copied` looks).
CREATE FUNCTION copy_still_disks() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM disks WHERE id = NEW.disk_id FOR NO KEY UPDATE;
    IF NEW.is_still AND NEW.snapshot_id IS NULL
       AND EXISTS (SELECT FROM disk_uses WHERE disk_id = NEW.disk_id AND NOT read_only) THEN
        RAISE EXCEPTION 'A job writes to the disk %.', NEW.disk_id
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'disk_copies_still', TABLE = 'disk_copies';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER disk_copies_still BEFORE INSERT OR UPDATE ON disk_copies FOR EACH ROW EXECUTE FUNCTION copy_still_disks();

CREATE FUNCTION keep_copied_disk_still() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM disk_copies WHERE is_still AND (clone_id = NEW.disk_id
               OR (disk_id = NEW.disk_id AND snapshot_id IS NULL AND NOT NEW.read_only))) THEN
        RAISE EXCEPTION 'The disk % is being copied.', NEW.disk_id
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'disk_uses_while_copied', TABLE = 'disk_uses';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER disk_uses_while_copied BEFORE INSERT OR UPDATE ON disk_uses
    FOR EACH ROW EXECUTE FUNCTION keep_copied_disk_still();

-- A clone is not made before it is copied, also where a process that knows no clones makes it: what that makes is empty.
CREATE FUNCTION keep_disk_unmade_until_copied() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM disk_copies WHERE clone_id = NEW.id) THEN
        RAISE EXCEPTION 'The disk % is not copied yet.', NEW.id
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'disks_made_after_copy', TABLE = 'disks';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER disks_made_after_copy BEFORE UPDATE OF made_bytes ON disks FOR EACH ROW
    WHEN (NEW.made_bytes IS NOT NULL) EXECUTE FUNCTION keep_disk_unmade_until_copied();
