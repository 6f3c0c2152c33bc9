-- An administrator hands a disk over to another user. A disk that a job has stays with the owner of the job.
CREATE FUNCTION keep_owner_of_used_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- A job that is being submitted with the disk is waited for: it locks the disk's row before it adds its use.
    IF EXISTS (SELECT FROM disk_uses WHERE disk_id = OLD.id) THEN
        RAISE EXCEPTION 'A job has the disk %.', OLD.id
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'disks_owner_of_used', TABLE = 'disks';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER disks_owner_of_used BEFORE UPDATE OF user_id ON disks FOR EACH ROW
    WHEN (OLD.user_id <> NEW.user_id) EXECUTE FUNCTION keep_owner_of_used_disk();
