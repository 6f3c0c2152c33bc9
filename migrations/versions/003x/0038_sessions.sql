-- Ways into running jobs: keys of people, the server's own SSH keys, shares, and open connections.

-- One key may be several people's, as public keys are public: the job that is entered decides who is meant.
CREATE TABLE ssh_keys (
    id           text PRIMARY KEY CHECK (id ~ '^key-[0-9a-z]{1,32}$'),
    user_id      bigint NOT NULL REFERENCES users (id),
    name         text CHECK (length(name) BETWEEN 1 AND 200),
    fingerprint  bytea NOT NULL CHECK (length(fingerprint) = 32), -- SHA-256 of the key, as OpenSSH makes it
    public_key   text NOT NULL CHECK (length(public_key) BETWEEN 1 AND 16384),
    created_at   timestamptz NOT NULL,
    last_used_at timestamptz,
    UNIQUE (user_id, fingerprint)
);
CREATE INDEX ssh_keys_fingerprint ON ssh_keys (fingerprint);

-- The gateways' host key, and the keys that sign certificates of people and tokens of jobs; sealed where the server has a sealing key.
CREATE TABLE ssh_server_keys (
    purpose     text PRIMARY KEY CHECK (purpose IN ('host', 'certificates', 'job_tokens')),
    private_key text NOT NULL CHECK (length(private_key) BETWEEN 1 AND 65536),
    created_at  timestamptz NOT NULL
);

CREATE TABLE job_shares (
    reservation_id text NOT NULL REFERENCES reservations (id) ON DELETE CASCADE,
    user_id        bigint NOT NULL REFERENCES users (id),
    created_at     timestamptz NOT NULL,
    PRIMARY KEY (reservation_id, user_id)
);
CREATE INDEX job_shares_user ON job_shares (user_id, created_at, reservation_id);

-- Open connections, refreshed by the process that holds each; a row that is not refreshed is of a process that ended.
CREATE TABLE connections (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    reservation_id text NOT NULL REFERENCES reservations (id) ON DELETE CASCADE,
    user_id        bigint NOT NULL REFERENCES users (id),
    token_id       text CHECK (length(token_id) BETWEEN 1 AND 64),
    way            text NOT NULL CHECK (way IN ('exec', 'attach', 'forward', 'ssh', 'terminal', 'app')),
    address        text CHECK (length(address) BETWEEN 1 AND 64),
    opened_at      timestamptz NOT NULL,
    last_byte_at   timestamptz NOT NULL CHECK (last_byte_at >= opened_at),
    refreshed_at   timestamptz NOT NULL
) WITH (fillfactor = 80);
CREATE INDEX connections_reservation ON connections (reservation_id);
CREATE INDEX connections_user ON connections (user_id);
CREATE INDEX connections_refreshed ON connections (refreshed_at);

-- Sessions end when nobody was connected for so long. The last connection's end is kept beside the session.
ALTER TABLE reservations ADD COLUMN inactivity interval
    CHECK (inactivity BETWEEN interval '1 minute' AND interval '400 days');
CREATE INDEX reservations_inactivity ON reservations (id) WHERE status = 'running' AND inactivity IS NOT NULL;
CREATE TABLE session_activity (
    reservation_id    text PRIMARY KEY REFERENCES reservations (id) ON DELETE CASCADE,
    last_connected_at timestamptz NOT NULL
);
ALTER TABLE policies ADD COLUMN inactivity interval
    CHECK (inactivity BETWEEN interval '1 minute' AND interval '400 days');
ALTER TABLE policies DROP CONSTRAINT policies_lifted_check;
ALTER TABLE policies ADD CONSTRAINT policies_lifted_check CHECK (lifted <@ ARRAY['max_gpus', 'max_gpu_hours_per_week',
    'max_duration', 'max_advance', 'min_notice', 'max_open_bookings', 'cooldown', 'priority', 'no_show_grace',
    'inactivity']);
