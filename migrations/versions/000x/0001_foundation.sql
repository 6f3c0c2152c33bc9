-- The whole foundation: people, inventory, reservations, the ledger, the record, and the planner's lease.
-- Times are timestamptz; ranges are half-open [start, end).

CREATE EXTENSION IF NOT EXISTS btree_gist;

CREATE TABLE users (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9]([a-z0-9._@-]{0,61}[a-z0-9])?$'),
    role        text NOT NULL CHECK (role IN ('user', 'admin')),
    created_at  timestamptz NOT NULL,
    disabled_at timestamptz
);

CREATE TABLE tokens (
    id           text PRIMARY KEY CHECK (id ~ '^tok-[0-9a-z]{1,32}$'),
    user_id      bigint NOT NULL REFERENCES users (id),
    name         text CHECK (length(name) BETWEEN 1 AND 200),
    digest       bytea NOT NULL UNIQUE CHECK (length(digest) = 32),
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz CHECK (expires_at > created_at),
    revoked_at   timestamptz,
    last_used_at timestamptz
);
CREATE INDEX tokens_user ON tokens (user_id, id);

CREATE TABLE nodes (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name         text NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 253),
    ready        boolean NOT NULL,
    schedulable  boolean NOT NULL,
    detail       text,
    labels       jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(labels) = 'object'),
    last_seen_at timestamptz NOT NULL,
    removed_at   timestamptz
);

-- A card's `condition` is what is known of it apart from its holders; whether it is held is in the ledger.
CREATE TABLE gpus (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    node_id      bigint NOT NULL REFERENCES nodes (id),
    index        integer NOT NULL CHECK (index BETWEEN 0 AND 1023),
    gpu_type     text NOT NULL CHECK (gpu_type ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
    uuid         text CHECK (length(uuid) BETWEEN 1 AND 128),
    memory_bytes bigint CHECK (memory_bytes >= 0),
    condition    text NOT NULL DEFAULT 'usable'
                 CHECK (condition IN ('usable', 'quarantined', 'foreign', 'lost', 'maintenance')),
    updated_at   timestamptz NOT NULL,
    UNIQUE (node_id, index)
);

CREATE TABLE reservations (
    seq          bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    id           text PRIMARY KEY CHECK (id ~ '^(job|bkg)-[0-9a-z]{1,32}$'),
    kind         text NOT NULL CHECK (kind IN ('job', 'booking')),
    user_id      bigint NOT NULL REFERENCES users (id),
    name         text CHECK (length(name) BETWEEN 1 AND 200),
    status       text NOT NULL CHECK (status IN
                 ('queued', 'starting', 'running', 'ending', 'succeeded', 'failed', 'cancelled', 'expired')),
    reason_code  text NOT NULL CHECK (length(reason_code) BETWEEN 1 AND 64),
    reason       text NOT NULL,
    gpus         integer NOT NULL CHECK (gpus BETWEEN 1 AND 1024),
    gpu_type     text CHECK (gpu_type ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
    nodes        integer NOT NULL CHECK (nodes BETWEEN 1 AND 4096),
    duration     interval NOT NULL CHECK (duration >= interval '1 second' AND duration <= interval '400 days'),
    priority     integer NOT NULL CHECK (priority BETWEEN -1000 AND 1000),
    workload     jsonb NOT NULL CHECK (jsonb_typeof(workload) = 'object'),
    created_at   timestamptz NOT NULL,
    version      integer NOT NULL DEFAULT 1 CHECK (version >= 1),
    attempt      integer NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    outcome      text CHECK (outcome IN ('succeeded', 'failed', 'cancelled', 'expired')),
    changed_at   timestamptz NOT NULL, -- when the status last changed
    range_end    timestamptz,
    started_at   timestamptz,
    ends_at      timestamptz,
    finished_at  timestamptz,
    exit_code    integer,
    warned_s     integer CHECK (warned_s >= 0),
    -- The key of the waiting line: requested type ('' is any), then priority, then arrival.
    line_type     text GENERATED ALWAYS AS (coalesce(gpu_type, '')) STORED,
    line_priority integer GENERATED ALWAYS AS (-priority) STORED,
    CHECK ((status = 'ending') = (outcome IS NOT NULL)),
    CHECK ((status IN ('succeeded', 'failed', 'cancelled', 'expired')) = (finished_at IS NOT NULL)),
    CHECK (status <> 'running' OR (started_at IS NOT NULL AND ends_at IS NOT NULL)),
    CHECK (status NOT IN ('starting', 'running') OR attempt >= 1)
) WITH (
    -- Every row changes a handful of times and is then kept: vacuum and analyze by count, so that the line's index
    -- stays short and its statistics true however long the history is.
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000,
    autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 5000
);

-- The line of each requested type, in order. Everything the planner asks of waiting jobs is answered by it.
CREATE INDEX reservations_line ON reservations (line_type, line_priority, seq) INCLUDE (gpus, nodes, duration)
    WHERE status = 'queued';
-- What may have pods, oldest change first: the resync and the expiry look here.
CREATE INDEX reservations_live ON reservations (status, changed_at) WHERE status IN ('starting', 'running', 'ending');
CREATE INDEX reservations_ends ON reservations (ends_at) WHERE status = 'running';
CREATE INDEX reservations_user ON reservations (user_id, seq);

-- The ledger. Two constraints guard every GPU, because plans and pods end at different times:
-- the calendar (no two ranges of one GPU overlap) and the hold (at most one row per GPU whose pod may still exist).
CREATE TABLE allocations (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    reservation_id text NOT NULL REFERENCES reservations (id),
    attempt        integer NOT NULL CHECK (attempt >= 0),
    gpu_id         bigint NOT NULL REFERENCES gpus (id),
    rank           integer NOT NULL CHECK (rank >= 0),
    during         tstzrange NOT NULL CHECK (NOT isempty(during) AND NOT lower_inf(during) AND NOT upper_inf(during)
                                             AND lower_inc(during) AND NOT upper_inc(during)),
    held           boolean NOT NULL,
    created_at     timestamptz NOT NULL,
    released_at    timestamptz,
    CHECK (NOT (held AND released_at IS NOT NULL)),
    CONSTRAINT allocations_calendar EXCLUDE USING gist (gpu_id WITH =, during WITH &&)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX allocations_hold ON allocations (gpu_id) WHERE held;
CREATE INDEX allocations_reservation ON allocations (reservation_id);
CREATE INDEX allocations_open ON allocations (gpu_id) WHERE released_at IS NULL;

-- What waiting jobs are told. Rewritten by the planner; kept apart so that the reservations themselves stay still.
CREATE TABLE wait_estimates (
    reservation_id     text PRIMARY KEY REFERENCES reservations (id) ON DELETE CASCADE,
    position           integer NOT NULL CHECK (position >= 1),
    reason_code        text NOT NULL,
    reason             text NOT NULL,
    estimated_start_at timestamptz,
    planned_at         timestamptz NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000);

-- Who, what, before, after, why. Append-only: the database refuses anything else.
CREATE TABLE events (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    reservation_id text REFERENCES reservations (id),
    subject        text,
    at             timestamptz NOT NULL,
    actor          text NOT NULL,
    kind           text NOT NULL CHECK (length(kind) BETWEEN 1 AND 64),
    before         text,
    after          text,
    reason_code    text,
    reason         text,
    data           jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX events_reservation ON events (reservation_id, id) WHERE reservation_id IS NOT NULL;

CREATE FUNCTION events_are_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'events are append-only' USING HINT = 'Record a new event that says what is true now.';
END $$;
CREATE TRIGGER events_append_only BEFORE UPDATE OR DELETE ON events
    FOR EACH ROW EXECUTE FUNCTION events_are_append_only();
CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON events
    FOR EACH STATEMENT EXECUTE FUNCTION events_are_append_only();

CREATE TABLE idempotency_keys (
    user_id      bigint NOT NULL REFERENCES users (id),
    key          text NOT NULL CHECK (length(key) BETWEEN 1 AND 255),
    request_hash bytea NOT NULL CHECK (length(request_hash) = 32),
    status       integer,
    answer       bytea,
    created_at   timestamptz NOT NULL,
    PRIMARY KEY (user_id, key)
);
CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

-- One planner at a time. Whoever takes the lease counts the epoch up; every write of a plan checks it.
CREATE TABLE planner_lease (
    singleton  boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    epoch      bigint NOT NULL,
    holder     text,
    expires_at timestamptz NOT NULL
);
INSERT INTO planner_lease (epoch, holder, expires_at) VALUES (0, NULL, '-infinity');
