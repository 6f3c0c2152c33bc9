-- Disks of users. What is on them is with the cluster, by id. A row is there before that is made and until it is removed,
-- so that a process which is killed in between leaves nothing that no row knows. `made_bytes` is the size that the cluster
-- has given the disk; null: it is not made yet. A disk is given up that could not be made and was deleted. A deleted disk is kept for a while, and then removed. What failed at
-- `failed_at` is tried again later, so that others have their turn. A disk is measured again that was given back since.
CREATE TABLE disks (
    id          text PRIMARY KEY CHECK (id ~ '^disk-[0-9a-z]{1,32}$'),
    user_id     bigint NOT NULL REFERENCES users (id),
    name        text NOT NULL CHECK (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    size_bytes  bigint NOT NULL CHECK (size_bytes BETWEEN 1048576 AND 1125899906842624),
    made_bytes  bigint,
    problem     text CHECK (length(problem) <= 1000),
    failed_at   timestamptz,
    used_bytes  bigint CHECK (used_bytes >= 0),
    measured_at timestamptz,
    given_back_at timestamptz,
    created_at  timestamptz NOT NULL,
    deleted_at  timestamptz,
    removing    boolean NOT NULL DEFAULT false CHECK (NOT removing OR deleted_at IS NOT NULL),
    is_live     boolean NOT NULL GENERATED ALWAYS AS (deleted_at IS NULL) STORED,
    given_up    boolean NOT NULL GENERATED ALWAYS AS (deleted_at IS NOT NULL AND made_bytes IS NULL AND problem IS NOT NULL) STORED,
    UNIQUE (id, is_live)
);
CREATE UNIQUE INDEX disks_named ON disks (user_id, name COLLATE "C") WHERE deleted_at IS NULL;
CREATE INDEX disks_of_user ON disks (user_id, deleted_at);
CREATE INDEX disks_to_make ON disks (id) WHERE deleted_at IS NULL AND (made_bytes IS NULL OR made_bytes <> size_bytes);
CREATE INDEX disks_deleted ON disks (deleted_at) WHERE deleted_at IS NOT NULL;

-- A job has its disks from its submission to its end. One of them writes; a deleted disk has no user, and one that is
-- used can't be deleted: by the second key.
CREATE TABLE disk_uses (
    disk_id        text NOT NULL,
    reservation_id text NOT NULL REFERENCES reservations (id) ON DELETE CASCADE,
    read_only      boolean NOT NULL,
    of_live        boolean NOT NULL DEFAULT true CHECK (of_live),
    PRIMARY KEY (disk_id, reservation_id),
    CONSTRAINT disk_uses_of_live FOREIGN KEY (disk_id, of_live) REFERENCES disks (id, is_live)
);
CREATE UNIQUE INDEX disk_uses_one_writer ON disk_uses (disk_id) WHERE NOT read_only;
CREATE INDEX disk_uses_of_job ON disk_uses (reservation_id);

-- The jobs that have a disk and have not ended: the one that writes, and the first 20 that read.
CREATE FUNCTION jobs_of_disk(asked text) RETURNS jsonb LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_agg(jsonb_build_array(j.reservation_id, j.read_only)), '[]') FROM (
        (SELECT u.reservation_id, u.read_only FROM disk_uses u JOIN reservations r ON r.id = u.reservation_id
         WHERE u.disk_id = asked AND NOT u.read_only AND r.status NOT IN ('succeeded', 'failed', 'cancelled', 'expired'))
        UNION ALL
        (SELECT u.reservation_id, u.read_only FROM disk_uses u JOIN reservations r ON r.id = u.reservation_id
         WHERE u.disk_id = asked AND u.read_only AND r.status NOT IN ('succeeded', 'failed', 'cancelled', 'expired')
         ORDER BY u.reservation_id LIMIT 20)
    ) AS j
$$;

-- A job that has not ended, and so may still have pods, keeps its disks.
CREATE FUNCTION keep_disk_in_use() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM reservations WHERE id = OLD.reservation_id
               AND status NOT IN ('succeeded', 'failed', 'cancelled', 'expired')) THEN
        RAISE EXCEPTION '% still has the disk %.', OLD.reservation_id, OLD.disk_id
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'disk_uses_until_end', TABLE = 'disk_uses';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER disk_uses_until_end BEFORE DELETE ON disk_uses FOR EACH ROW EXECUTE FUNCTION keep_disk_in_use();
