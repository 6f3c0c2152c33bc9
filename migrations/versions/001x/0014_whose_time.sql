-- Whose time it was that was given back, beside it: a quota asks for that of one user or project, often and under their
-- lock, and is not to look at everybody's.
ALTER TABLE given_back ADD COLUMN user_id bigint, ADD COLUMN project text;
UPDATE given_back b SET user_id = r.user_id, project = r.project
FROM allocations a JOIN reservations r ON r.id = a.reservation_id WHERE a.id = b.allocation_id;
ALTER TABLE given_back ALTER COLUMN user_id SET NOT NULL;
CREATE INDEX given_back_user ON given_back (user_id);
CREATE INDEX given_back_project ON given_back (project) WHERE project IS NOT NULL;

CREATE OR REPLACE FUNCTION note_given_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO given_back (allocation_id, user_id, project)
    SELECT NEW.id, r.user_id, r.project FROM reservations r WHERE r.id = NEW.reservation_id;
    RETURN NULL;
END $$;
