-- Columns that may be null: no table is rewritten.
ALTER TABLE policies
    ADD COLUMN idle_below  float8 CHECK (idle_below > 0 AND idle_below <= 1),
    ADD COLUMN idle_window interval CHECK (idle_window > interval '0' AND idle_window <= interval '1 day'),
    ADD COLUMN idle_grace  interval CHECK (idle_grace > interval '0' AND idle_grace <= interval '1 day'),
    ADD COLUMN idle_then   text CHECK (idle_then IN ('warn', 'release')),
    ADD CONSTRAINT policies_idle_whole CHECK (num_nulls(idle_below, idle_window, idle_grace, idle_then) IN (0, 4));
ALTER TABLE policies DROP CONSTRAINT policies_lifted_check;
ALTER TABLE policies ADD CONSTRAINT policies_lifted_check CHECK (lifted <@ ARRAY['max_gpus', 'max_gpu_hours_per_week',
    'max_duration', 'max_advance', 'min_notice', 'max_open_bookings', 'cooldown', 'priority', 'no_show_grace',
    'inactivity', 'idle']);

-- The warning of a running job whose GPUs are idle, and since when that counts if not since its start. No job is released without
-- a warning: the process that ends it reads these.
ALTER TABLE reservations
    ADD COLUMN idle_since      timestamptz,
    ADD COLUMN idle_warned_at  timestamptz,
    ADD COLUMN idle_release_at timestamptz,
    ADD COLUMN idle_from       timestamptz;

INSERT INTO notice_kinds (kind, by_default) VALUES ('idle', true);
INSERT INTO notice_events (event, kind) VALUES ('idle_warning', 'idle');
