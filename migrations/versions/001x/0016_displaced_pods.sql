-- A pod that people made and that has to go before its time: for a booking of others, or for older pods in its own. Of
-- a booking its owner is told as of everything else; a pod without one has an owner by name alone.
INSERT INTO notice_events (event, kind) VALUES ('pod_displaced', 'ended');

CREATE FUNCTION notify_of_displaced_pod() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pgmq.send('notifications', jsonb_build_object('v', 1, 'kind', 'event', 'event', NEW.id, 'target', t.id))
    FROM notice_events n
    JOIN notice_kinds k ON k.kind = n.kind
    JOIN users u ON u.name = NEW.data ->> 'owner'
    JOIN notice_targets t ON t.user_id = u.id
    LEFT JOIN notice_preferences p ON p.user_id = u.id AND p.kind = n.kind AND p.channel = t.channel
    WHERE n.event = NEW.kind AND t.told AND u.disabled_at IS NULL AND coalesce(p.wanted, k.by_default);
    RETURN NULL;
END $$;
CREATE TRIGGER events_notify_displaced AFTER INSERT ON events
    FOR EACH ROW WHEN (NEW.reservation_id IS NULL AND NEW.kind = 'pod_displaced')
    EXECUTE FUNCTION notify_of_displaced_pod();
