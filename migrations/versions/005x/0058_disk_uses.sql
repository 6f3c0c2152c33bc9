-- A job has disks of its own user alone. The disk's row is locked as its use is added: a hand-over at the same time waits
-- for that and finds the use, or is waited for, and then the disk is somebody else's.
CREATE FUNCTION keep_disks_with_owner() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    owner bigint;
BEGIN
    SELECT user_id INTO owner FROM disks WHERE id = NEW.disk_id FOR SHARE;
    IF owner IS DISTINCT FROM (SELECT user_id FROM reservations WHERE id = NEW.reservation_id) THEN
        RAISE EXCEPTION 'The disk % is not of the user of %.', NEW.disk_id, NEW.reservation_id
            USING ERRCODE = 'integrity_constraint_violation', CONSTRAINT = 'disk_uses_of_owner', TABLE = 'disk_uses';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER disk_uses_of_owner BEFORE INSERT OR UPDATE OF disk_id, reservation_id ON disk_uses
    FOR EACH ROW EXECUTE FUNCTION keep_disks_with_owner();
