-- Files that users send for their jobs, and that come back from them. Everything is kept by user: a digest alone gives
-- nobody the content of another user. `bytes` is what a row takes; the sum is kept by triggers.

CREATE TABLE sent_bytes (
    user_id bigint PRIMARY KEY REFERENCES users (id),
    bytes   bigint NOT NULL CHECK (bytes >= 0)
);

CREATE TABLE sent_chunks (
    user_id bigint NOT NULL REFERENCES users (id),
    digest  bytea NOT NULL CHECK (octet_length(digest) = 32),
    data    bytea NOT NULL CHECK (octet_length(data) BETWEEN 1 AND 4194304),
    bytes   integer NOT NULL GENERATED ALWAYS AS (octet_length(data)) STORED,
    used_at timestamptz NOT NULL,
    PRIMARY KEY (user_id, digest)
);
ALTER TABLE sent_chunks ALTER COLUMN data SET STORAGE EXTERNAL;
CREATE INDEX sent_chunks_used ON sent_chunks (used_at);

-- What is in a folder, as JSON, by the SHA-256 of that. A folder was used later than its chunks by an hour at most.
CREATE TABLE sent_folders (
    user_id bigint NOT NULL REFERENCES users (id),
    digest  bytea NOT NULL CHECK (octet_length(digest) = 32),
    content bytea NOT NULL,
    bytes   integer NOT NULL GENERATED ALWAYS AS (octet_length(content)) STORED,
    used_at timestamptz NOT NULL,
    PRIMARY KEY (user_id, digest)
);
CREATE INDEX sent_folders_used ON sent_folders (used_at);

CREATE TABLE job_results (
    reservation_id text PRIMARY KEY REFERENCES reservations (id) ON DELETE CASCADE,
    attempt        integer NOT NULL,
    user_id        bigint NOT NULL,
    digest         bytea NOT NULL,
    FOREIGN KEY (user_id, digest) REFERENCES sent_folders (user_id, digest) ON DELETE CASCADE
);
CREATE INDEX job_results_folder ON job_results (user_id, digest);

CREATE FUNCTION count_sent_bytes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO sent_bytes (user_id, bytes) SELECT user_id, sum(bytes) FROM changed GROUP BY user_id ORDER BY user_id
        ON CONFLICT (user_id) DO UPDATE SET bytes = sent_bytes.bytes + excluded.bytes;
    ELSE
        UPDATE sent_bytes s SET bytes = s.bytes - c.bytes
        FROM (SELECT user_id, sum(bytes) AS bytes FROM changed GROUP BY user_id) c WHERE s.user_id = c.user_id;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER sent_chunks_added AFTER INSERT ON sent_chunks REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION count_sent_bytes();
CREATE TRIGGER sent_chunks_removed AFTER DELETE ON sent_chunks REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION count_sent_bytes();
CREATE TRIGGER sent_folders_added AFTER INSERT ON sent_folders REFERENCING NEW TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION count_sent_bytes();
CREATE TRIGGER sent_folders_removed AFTER DELETE ON sent_folders REFERENCING OLD TABLE AS changed
    FOR EACH STATEMENT EXECUTE FUNCTION count_sent_bytes();
