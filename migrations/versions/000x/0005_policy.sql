-- Rules, quotas and usage: policy as data.

-- == Rules ==
-- One row a scope: a user or a project or everybody, on one type of GPU or on all. A null field says nothing; one that is
-- named in `lifted` is without limit whatever a less specific scope says. Users and projects are named and not referred
-- to: a rule may be there before whom it is for.
CREATE TABLE policies (
    id                     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_name              text CHECK (user_name ~ '^[a-z0-9]([a-z0-9._@-]{0,61}[a-z0-9])?$'),
    project                text CHECK (project ~ '^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$'),
    gpu_type               text CHECK (gpu_type ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
    max_gpus               integer CHECK (max_gpus BETWEEN 0 AND 1048576),
    max_gpu_hours_per_week double precision CHECK (max_gpu_hours_per_week BETWEEN 0 AND 1e9),
    max_duration           interval CHECK (max_duration BETWEEN interval '1 second' AND interval '400 days'),
    max_advance            interval CHECK (max_advance BETWEEN interval '0' AND interval '400 days'),
    min_notice             interval CHECK (min_notice BETWEEN interval '0' AND interval '400 days'),
    max_open_bookings      integer CHECK (max_open_bookings BETWEEN 0 AND 100000),
    cooldown               interval CHECK (cooldown BETWEEN interval '0' AND interval '400 days'),
    priority               integer CHECK (priority BETWEEN -1000 AND 1000),
    no_show_grace          interval CHECK (no_show_grace BETWEEN interval '1 minute' AND interval '400 days'),
    booking_required       boolean,
    -- [{"starts_within_s": …, "lifts": […]}, …]
    relaxed                jsonb CHECK (jsonb_typeof(relaxed) = 'array' AND jsonb_array_length(relaxed) <= 20),
    lifted                 text[] NOT NULL DEFAULT '{}' CHECK (lifted <@ ARRAY['max_gpus', 'max_gpu_hours_per_week',
                               'max_duration', 'max_advance', 'min_notice', 'max_open_bookings', 'cooldown', 'priority',
                               'no_show_grace']),
    from_file              boolean NOT NULL DEFAULT false,
    version                integer NOT NULL DEFAULT 1 CHECK (version >= 1),
    changed_at             timestamptz NOT NULL,
    changed_by             text NOT NULL,
    CHECK (user_name IS NULL OR project IS NULL),
    UNIQUE NULLS NOT DISTINCT (user_name, project, gpu_type)
);

-- Counted up by every change of the rules or of who is in which project: who keeps them in memory sees that they are old.
CREATE TABLE policy_state (
    singleton   boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    revision    bigint NOT NULL DEFAULT 0,
    file_digest bytea CHECK (length(file_digest) = 32)
);
INSERT INTO policy_state DEFAULT VALUES;

CREATE FUNCTION count_policy_up() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE policy_state SET revision = revision + 1;
    RETURN NULL;
END $$;
CREATE TRIGGER policies_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON policies
    FOR EACH STATEMENT EXECUTE FUNCTION count_policy_up();

-- == Projects ==
CREATE TABLE projects (
    name       text PRIMARY KEY CHECK (name ~ '^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$'),
    title      text CHECK (length(title) BETWEEN 1 AND 200),
    created_at timestamptz NOT NULL
);

CREATE TABLE project_members (
    project text NOT NULL REFERENCES projects (name) ON DELETE CASCADE,
    user_id bigint NOT NULL REFERENCES users (id),
    PRIMARY KEY (project, user_id)
);
CREATE INDEX project_members_user ON project_members (user_id);
CREATE TRIGGER project_members_changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON project_members
    FOR EACH STATEMENT EXECUTE FUNCTION count_policy_up();

-- == Fair share ==
-- What each user has been given, in GPU-seconds as of `as_of`: each counts for less the longer ago it was.
CREATE TABLE fair_shares (
    user_id bigint PRIMARY KEY REFERENCES users (id),
    usage   double precision NOT NULL CHECK (usage >= 0)
);
CREATE TABLE fair_share_state (
    singleton   boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    as_of       timestamptz NOT NULL DEFAULT '-infinity',
    half_life_s double precision
);
INSERT INTO fair_share_state DEFAULT VALUES;
-- What was closed lately, without a price for each row that is written: rows are closed about in the order they came. Of
-- closed rows only: to those that are open it would look like a way, and be a long one.
CREATE INDEX allocations_released ON allocations USING brin (released_at)
    WITH (pages_per_range = 16, autosummarize = on) WHERE released_at IS NOT NULL;

-- == Services ==
-- A service asks on behalf of others whether they may use GPUs; it may do nothing else.
ALTER TABLE users
    DROP CONSTRAINT users_role_check,
    ADD CONSTRAINT users_role_check CHECK (role IN ('user', 'admin', 'service'));

-- What a project holds, of the few that are for one.
CREATE INDEX reservations_project ON reservations (project, seq) WHERE project IS NOT NULL;
