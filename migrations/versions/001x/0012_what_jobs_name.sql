-- What a job names, a booking or a project, is looked at by a function: few jobs name any, and a statement that only calls
-- it is planned and begun as if there were nothing to look at.

-- A booking must be the owner's, have its cards, be large enough and be for the same project; a project that is named
-- without a booking must be one that the owner is in.
CREATE FUNCTION may_name(owner bigint, named_booking text, named_project text, wanted_gpus integer, wanted_nodes integer,
                         wanted_type text)
RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    IF named_booking IS NULL THEN
        RETURN named_project IS NULL OR EXISTS (
            SELECT FROM project_members m WHERE m.project = named_project AND m.user_id = owner);
    END IF;
    RETURN EXISTS (
        SELECT FROM reservations b JOIN bookings k ON k.id = b.id
        WHERE b.id = named_booking AND b.user_id = owner AND b.status IN ('confirmed', 'active')
          AND k.ends_at > clock_timestamp() AND b.project IS NOT DISTINCT FROM named_project
          AND (SELECT count(*) FROM (
                   SELECT FROM allocations a JOIN gpus g ON g.id = a.gpu_id
                   WHERE a.reservation_id = b.id AND a.released_at IS NULL
                     AND (wanted_type IS NULL OR g.gpu_type = wanted_type)
                   GROUP BY g.node_id, g.gpu_type HAVING count(*) >= wanted_gpus) AS able) >= wanted_nodes);
END $$;
