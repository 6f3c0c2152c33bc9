-- Tickets to apps of jobs, and what browsers get for them. A ticket is good once: the row then has the digest of the
-- browser's cookie. Both are random secrets, of which only SHA-256 is stored.
CREATE TABLE app_passes (
    digest         bytea PRIMARY KEY CHECK (octet_length(digest) = 32),
    reservation_id text NOT NULL REFERENCES reservations (id) ON DELETE CASCADE,
    user_id        bigint NOT NULL REFERENCES users (id),
    token_id       text NOT NULL REFERENCES tokens (id) ON DELETE CASCADE,
    port           integer NOT NULL CHECK (port BETWEEN 1 AND 65535),
    expires_at     timestamptz NOT NULL,
    used_at        timestamptz
);
CREATE INDEX app_passes_reservation ON app_passes (reservation_id);
CREATE INDEX app_passes_user ON app_passes (user_id);
CREATE INDEX app_passes_token ON app_passes (token_id);
CREATE INDEX app_passes_expires ON app_passes (expires_at);
