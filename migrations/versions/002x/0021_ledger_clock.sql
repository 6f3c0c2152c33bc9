-- The ledger's time: the database's clock, but for steps of it.
-- A step of the clock (somebody sets it, NTP corrects it, another server takes over) must neither end what runs nor move
-- what was promised. The leader measures a step against the clocks that nobody sets (those that machines count since
-- their boot), and writes it down here: from then on the ledger's time goes on as if there had been none. What the two
-- clocks are apart since is made up for by a thousandth of the time that goes by, faster or slower.

CREATE TABLE ledger_clock (
    singleton    boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    ahead_s      float8 NOT NULL DEFAULT 0,             -- how far the ledger's time was ahead of the database's clock …
    since        timestamptz NOT NULL DEFAULT '-infinity', -- … then, by the database's clock
    stepped_at   timestamptz,                           -- when a step was seen last, by the ledger's time
    stepped_by_s float8                                 -- how far it went
);
INSERT INTO ledger_clock DEFAULT VALUES;

-- What time it is for the ledger. Ask for it once in a statement, `(SELECT ledger_now())`, not once a row.
CREATE FUNCTION ledger_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN c.ahead_s = 0 THEN t.wall
           ELSE t.wall + make_interval(secs => sign(c.ahead_s)
                    * greatest(0, abs(c.ahead_s) - greatest(0, extract(epoch FROM t.wall - c.since)) / 1000)) END
    FROM (SELECT clock_timestamp() AS wall) AS t, ledger_clock c
$$;

-- The same, unless it is not what the caller has counted: then the clock has just stepped, and the caller's time counts.
-- NULL is a caller who counts nothing.
CREATE FUNCTION ledger_time(counted timestamptz) RETURNS timestamptz LANGUAGE sql VOLATILE AS $$
    SELECT CASE WHEN abs(extract(epoch FROM t.at - counted)) >= 1 THEN counted ELSE t.at END
    FROM (SELECT ledger_now() AS at) AS t
$$;

-- Why a promise may have been missed.
CREATE VIEW clock_steps AS
SELECT stepped_at AS at,
       'The database''s clock stepped by ' || round(CAST(stepped_by_s AS numeric)) || ' s at '
           || to_char(stepped_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') || '.' AS because
FROM ledger_clock WHERE stepped_at IS NOT NULL;
