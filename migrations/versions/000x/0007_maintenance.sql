-- Maintenance windows, the waitlist and what is released unused.

-- == The life of bookings ==
-- Warnings are due at moments; those that were due until then have been given. `no_show_warned_at`: when its owner was
-- told that it will be given up.
ALTER TABLE bookings
    ADD COLUMN start_warned_at   timestamptz,
    ADD COLUMN end_warned_at     timestamptz,
    ADD COLUMN no_show_warned_at timestamptz;

-- Jobs that wait or run within bookings: those whose booking is over are looked for all the time.
CREATE INDEX reservations_unended_in_bookings ON reservations (booking_id)
    WHERE booking_id IS NOT NULL AND status IN ('queued', 'starting', 'running');

-- == Maintenance ==
-- What a reservation of kind maintenance has beyond others. Its cards are in the ledger like a booking's while it is
-- ahead or open; `gpu_ids` are they for ever. `affected` is what it did to jobs and bookings. Cards that join one of
-- `whole_nodes` join the window, too.
CREATE TABLE maintenance_windows (
    id        text PRIMARY KEY REFERENCES reservations (id) CHECK (id LIKE 'mnt-%'),
    gpu_ids   bigint[] NOT NULL CHECK (cardinality(gpu_ids) >= 1),
    starts_at timestamptz NOT NULL,
    ends_at   timestamptz NOT NULL,
    reason    text NOT NULL CHECK (length(reason) BETWEEN 1 AND 1000),
    affected  jsonb NOT NULL CHECK (jsonb_typeof(affected) = 'array'),
    whole_nodes text[] NOT NULL DEFAULT '{}',
    CHECK (ends_at > starts_at)
);

-- A card in its window shows that, whatever else is known of it: machines under maintenance come and go. A pod that is
-- still there goes first, for the card is not free for anybody yet.
CREATE OR REPLACE VIEW gpu_status AS
SELECT n.name                                                  AS node,
       g.index,
       g.gpu_type,
       CASE WHEN h.kind = 'maintenance' THEN 'maintenance'
            WHEN c.condition <> 'usable' THEN c.condition
            WHEN h.id IS NULL THEN 'free' ELSE 'held' END      AS state,
       h.id                                                    AS holder,
       h.user_name,
       h.since,
       h.free_at,
       CASE WHEN n.removed_at IS NOT NULL THEN 'removed'
            WHEN n.fenced_at IS NOT NULL THEN 'fenced'
            WHEN NOT n.ready THEN 'not ready'
            WHEN NOT n.schedulable THEN 'not schedulable'
            ELSE 'ready' END                                   AS node_state,
       s.detail                                                AS node_detail,
       g.uuid
FROM gpus g
JOIN nodes n ON n.id = g.node_id
JOIN card_conditions c ON c.gpu_id = g.id
JOIN node_conditions s ON s.node_id = n.id
LEFT JOIN LATERAL (
    SELECT r.id, r.kind, u.name AS user_name, lower(a.during) AS since, upper(a.during) AS free_at
    FROM allocations a
    JOIN reservations r ON r.id = a.reservation_id
    JOIN users u ON u.id = r.user_id
    WHERE a.gpu_id = g.id AND a.released_at IS NULL AND (a.held OR a.during @> statement_timestamp())
    ORDER BY a.held DESC, a.booking_id IS NULL
    LIMIT 1
) h ON true
ORDER BY n.name, g.index;
