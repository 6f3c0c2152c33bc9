-- All that predictions of starts have learnt from waits: one row.

-- name: learnt_waits
-- All that is stored of it.
SELECT p50_quantile, p90_quantile, below_minute, below_hour, longer FROM learnt_waits;

-- name: store_learnt_waits
-- Replace what predictions have learnt from waits, unless another planner has taken the lease.
INSERT INTO learnt_waits (p50_quantile, p90_quantile, below_minute, below_hour, longer)
SELECT CAST(:p50 AS float8), CAST(:p90 AS float8), CAST(:below_minute AS float8[]), CAST(:below_hour AS float8[]),
       CAST(:longer AS float8[])
FROM planner_lease WHERE epoch = :epoch
ON CONFLICT (id) DO UPDATE SET
    p50_quantile = excluded.p50_quantile, p90_quantile = excluded.p90_quantile,
    below_minute = excluded.below_minute, below_hour = excluded.below_hour, longer = excluded.longer;
