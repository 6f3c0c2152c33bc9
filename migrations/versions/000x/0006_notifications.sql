-- Being told: who wants to hear of what, and by which way. Everything hangs on `events`: whoever records one need not
-- know that anybody listens.

-- What one can be told of, and whether one is unless one says otherwise.
CREATE TABLE notice_kinds (
    kind       text PRIMARY KEY CHECK (kind ~ '^[a-z_]{1,32}$'),
    by_default boolean NOT NULL
);
INSERT INTO notice_kinds (kind, by_default) VALUES
    ('confirmed', true), ('moved', true), ('cancelled', true), ('waitlisted', true), ('offered', true),
    ('offer_expired', true), ('starting_soon', true), ('started', false), ('ending_soon', true), ('ended', true),
    ('no_show', true), ('released', true), ('failed', true), ('promise_missed', true), ('maintenance', true);

-- Which events mean that.
CREATE TABLE notice_events (
    event text PRIMARY KEY,
    kind  text NOT NULL REFERENCES notice_kinds (kind)
);
INSERT INTO notice_events (event, kind) VALUES
    ('booking_confirmed', 'confirmed'), ('booking_moved', 'moved'), ('booking_cancelled', 'cancelled'),
    ('booking_waitlisted', 'waitlisted'), ('booking_offered', 'offered'), ('booking_offer_expired', 'offer_expired'),
    ('booking_wait_expired', 'offer_expired'),
    ('booking_starting_soon', 'starting_soon'), ('booking_started', 'started'),
    ('booking_ending_soon', 'ending_soon'), ('booking_ended', 'ended'),
    ('no_show_warning', 'no_show'), ('booking_released', 'released'),
    ('start_promise_missed', 'promise_missed'), ('maintenance_affects', 'maintenance'),
    ('started', 'started'), ('end_warning', 'ending_soon'), ('succeeded', 'ended'), ('expired', 'ended'), ('booking_over', 'ended'),
    ('failed', 'failed'), ('cancelled', 'cancelled');

-- Where people are told. What is secret in it (a webhook's address and signing secret, a code that was mailed) is needed
-- as it is to be of use; it goes when the target is removed. `lost` counts notices in a row that could not be delivered:
-- whoever lost 20 is not told until a test reaches them.
CREATE TABLE notice_targets (
    id           text PRIMARY KEY CHECK (id ~ '^ntg-[0-9a-z]{1,32}$'),
    user_id      bigint NOT NULL REFERENCES users (id),
    channel      text NOT NULL CHECK (channel IN ('email', 'slack', 'webhook')),
    name         text CHECK (length(name) BETWEEN 1 AND 200),
    address      text CHECK (length(address) BETWEEN 3 AND 2000),
    secret       text CHECK (length(secret) BETWEEN 16 AND 200),
    code         text CHECK (length(code) BETWEEN 6 AND 64),
    created_at   timestamptz NOT NULL,
    verified_at  timestamptz,
    tested_at    timestamptz,
    removed_at   timestamptz,
    delivered_at timestamptz,
    failed_at    timestamptz,
    failure      text CHECK (length(failure) BETWEEN 1 AND 500),
    lost         integer NOT NULL DEFAULT 0 CHECK (lost >= 0),
    told         boolean GENERATED ALWAYS AS (verified_at IS NOT NULL AND removed_at IS NULL AND lost < 20) STORED,
    CHECK ((removed_at IS NULL) = (address IS NOT NULL)),
    CHECK ((channel = 'webhook' AND removed_at IS NULL) = (secret IS NOT NULL)),
    CHECK ((channel = 'email' AND removed_at IS NULL AND verified_at IS NULL) = (code IS NOT NULL)),
    CHECK ((failed_at IS NULL) = (failure IS NULL))
) WITH (fillfactor = 70);
CREATE INDEX notice_targets_user ON notice_targets (user_id, id);
CREATE INDEX notice_targets_told ON notice_targets (user_id) WHERE told;

-- Only what somebody has said otherwise.
CREATE TABLE notice_preferences (
    user_id bigint NOT NULL REFERENCES users (id),
    kind    text NOT NULL REFERENCES notice_kinds (kind),
    channel text NOT NULL CHECK (channel IN ('email', 'slack', 'webhook')),
    wanted  boolean NOT NULL,
    PRIMARY KEY (user_id, kind, channel)
);

-- One message for each event and target, in the transaction of the event. The events that come in batches of hundreds
-- while people wait (submitted, allocated) tell nobody anything: the trigger does not even begin for them. A trigger for
-- each statement would have to copy all of them aside first, which costs a tenth of writing them. For the others, who
-- listens at all is asked first.
CREATE FUNCTION notify_of_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM notice_targets WHERE told) THEN
        RETURN NULL;
    END IF;
    PERFORM pgmq.send('notifications', jsonb_build_object('v', 1, 'kind', 'event', 'event', NEW.id, 'target', t.id))
    FROM notice_events n
    JOIN notice_kinds k ON k.kind = n.kind
    JOIN reservations r ON r.id = NEW.reservation_id
    JOIN users u ON u.id = r.user_id
    JOIN notice_targets t ON t.user_id = r.user_id
    LEFT JOIN notice_preferences p ON p.user_id = r.user_id AND p.kind = n.kind AND p.channel = t.channel
    WHERE n.event = NEW.kind
      -- The job of a booking that is over: what ran ends with an event of its own.
      AND NOT (NEW.kind = 'booking_over' AND NEW.after = 'ending')
      AND t.told AND u.disabled_at IS NULL AND coalesce(p.wanted, k.by_default);
    RETURN NULL;
END $$;
CREATE TRIGGER events_notify AFTER INSERT ON events
    FOR EACH ROW WHEN (NEW.reservation_id IS NOT NULL AND NEW.kind NOT IN ('submitted', 'allocated'))
    EXECUTE FUNCTION notify_of_event();
