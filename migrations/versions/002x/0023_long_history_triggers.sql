-- What keeps usage sums true. In one transaction: from its end on, nothing is closed or corrected unseen.

-- Rows of a booking's jobs are looked at only when all of them are closed (see the statement `settled_usage`).
CREATE OR REPLACE TRIGGER allocations_reopen_usage BEFORE UPDATE OF released_at ON allocations
    FOR EACH ROW WHEN (OLD.released_at IS NULL AND NEW.released_at IS NOT NULL AND NEW.booking_id IS NULL)
    EXECUTE FUNCTION reopen_usage_of_row();
CREATE OR REPLACE TRIGGER allocations_added_reopen_usage BEFORE INSERT ON allocations
    FOR EACH ROW WHEN (NEW.released_at IS NOT NULL) EXECUTE FUNCTION reopen_usage_of_row();
CREATE OR REPLACE TRIGGER reservations_reopen_usage BEFORE UPDATE ON reservations
    FOR EACH ROW WHEN (OLD.finished_at IS NOT NULL
        AND (OLD.finished_at, OLD.started_at, OLD.attempt, OLD.status, OLD.project, OLD.user_id)
            IS DISTINCT FROM (NEW.finished_at, NEW.started_at, NEW.attempt, NEW.status, NEW.project, NEW.user_id))
    EXECUTE FUNCTION reopen_usage_of_reservation();
CREATE OR REPLACE TRIGGER reservations_added_reopen_usage BEFORE INSERT ON reservations
    FOR EACH ROW WHEN (NEW.booking_id IS NOT NULL AND NEW.started_at IS NOT NULL)
    EXECUTE FUNCTION reopen_usage_of_reservation();
CREATE OR REPLACE TRIGGER bookings_reopen_usage BEFORE UPDATE OF used_at ON bookings
    FOR EACH ROW WHEN (OLD.used_at IS DISTINCT FROM NEW.used_at) EXECUTE FUNCTION reopen_usage_of_booking();
CREATE OR REPLACE TRIGGER admissions_reopen_usage BEFORE INSERT OR UPDATE ON admissions
    FOR EACH ROW EXECUTE FUNCTION reopen_usage_of_admission();
-- What was closed before the triggers were there is pending; most of it has been noted without them (see the module).
INSERT INTO usage_pending (reservation_id)
SELECT DISTINCT reservation_id FROM allocations
WHERE released_at > clock_timestamp() - interval '1 day' AND booking_id IS NULL
ON CONFLICT DO NOTHING;
