-- name: end_silent_sessions
-- End the sessions of this account that have locked or written something and wait for their client within a statement.
-- What is copied, by those who restore a backup, goes at the client's pace.
SELECT pid, application_name AS application, pg_terminate_backend(pid) AS ended
FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()
  AND backend_xid IS NOT NULL AND state = 'active' AND wait_event_type = 'Client'
  AND state_change < clock_timestamp() - make_interval(secs => :silent_s) AND ltrim(query) NOT ILIKE 'copy%';
