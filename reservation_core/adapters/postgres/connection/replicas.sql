-- How far servers are: one that writes, by what is on its disk; one that follows, by what it shows.

-- name: server_progress
-- What this server is and how far, in bytes of its log. The timeline of one that follows is that of its last restart point.
SELECT in_recovery AS follows,
       CAST(CASE WHEN in_recovery THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END
            - CAST('0/0' AS pg_lsn) AS bigint) AS position,
       system.system_identifier AS system,
       CASE WHEN in_recovery THEN lpad(upper(to_hex(checkpoint.timeline_id)), 8, '0')
            ELSE substr(pg_walfile_name(pg_current_wal_flush_lsn()), 1, 8) END AS timeline,
       ledger_now() AS at
FROM (SELECT pg_is_in_recovery() AS in_recovery) AS role,
     pg_control_system() AS system,
     pg_control_checkpoint() AS checkpoint;
