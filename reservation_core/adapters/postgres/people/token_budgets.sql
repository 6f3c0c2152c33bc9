-- Budgets of tokens (see migration 0030). A charge locks the budgets of a token and its predecessors, the oldest first,
-- as the last locks of the transaction, so that there are no deadlocks.

-- name: add_budget
-- Store the budget of a new token.
INSERT INTO token_budgets (id, gpu_us, until) VALUES (:id, :gpu_us, CAST(:until AS timestamptz));

-- name: hold_budgets
-- Lock a budget and those of the token's predecessors.
WITH RECURSIVE line (id, maker, generation) AS (
    SELECT id, coalesce(made_with, session_from), generation FROM tokens WHERE id = :id
    UNION ALL
    SELECT t.id, coalesce(t.made_with, t.session_from), t.generation FROM line l JOIN tokens t ON t.id = l.maker
)
SELECT b.id FROM line l JOIN token_budgets b ON b.id = l.id ORDER BY l.generation FOR NO KEY UPDATE OF b;

-- name: settle_budgets
-- Subtract refunds from locked budgets, and return their balances.
WITH back AS (
    DELETE FROM token_refunds WHERE budget_id = ANY(CAST(:ids AS text[])) RETURNING budget_id, gpu_us
), sums AS (
    SELECT budget_id, CAST(sum(gpu_us) AS bigint) AS gpu_us FROM back GROUP BY budget_id
), settled AS (
    UPDATE token_budgets b SET charged_us = b.charged_us - s.gpu_us FROM sums s WHERE b.id = s.budget_id
)
SELECT b.id, b.gpu_us, b.until, b.charged_us - coalesce(s.gpu_us, 0) AS charged_us
FROM token_budgets b JOIN tokens t ON t.id = b.id LEFT JOIN sums s ON s.budget_id = b.id
WHERE b.id = ANY(CAST(:ids AS text[])) ORDER BY t.generation;

-- name: charge_budgets
-- Charge locked budgets, and store the reservations.
WITH asked AS (
    SELECT * FROM unnest(CAST(:reservations AS text[]), CAST(:froms AS bigint[]), CAST(:tos AS bigint[]))
        AS a (reservation_id, from_us, to_us)
    WHERE to_us > from_us
), charged AS (
    UPDATE token_budgets b SET charged_us = b.charged_us + (SELECT CAST(sum(to_us - from_us) AS bigint) FROM asked)
    WHERE b.id = ANY(CAST(:ids AS text[])) AND EXISTS (SELECT FROM asked)
    RETURNING b.id
)
INSERT INTO token_charges (reservation_id, budget_id, from_us, to_us)
SELECT a.reservation_id, c.id, a.from_us, a.to_us FROM asked a CROSS JOIN charged c;

-- name: view_budgets
-- The balances of a budget and those of the token's predecessors, as if `without` were cancelled before it goes on: what
-- it held stays charged, as in the trigger give_back_to_budgets.
WITH RECURSIVE line (id, maker, generation) AS (
    SELECT id, coalesce(made_with, session_from), generation FROM tokens WHERE id = :id
    UNION ALL
    SELECT t.id, coalesce(t.made_with, t.session_from), t.generation FROM line l JOIN tokens t ON t.id = l.maker
)
SELECT b.id, b.gpu_us, b.until,
       b.charged_us - coalesce((
           SELECT CAST(sum(c.to_us - greatest(c.from_us, h.us)) AS bigint)
           FROM token_charges c CROSS JOIN (
               SELECT CAST(coalesce(round(1000000 * sum(extract(epoch FROM upper(during) - lower(during)))), 0) AS bigint)
               FROM allocations WHERE reservation_id = CAST(:without AS text) AND NOT planned
           ) AS h (us)
           WHERE c.reservation_id = CAST(:without AS text) AND c.budget_id = b.id AND c.to_us > h.us
       ), 0) AS charged_us
FROM line l JOIN token_budgets_now b ON b.id = l.id
ORDER BY l.generation;

-- name: sum_up_refunds
-- Subtract refunds from budgets; locked budgets are left to the next time, so that nobody waits.
WITH due AS (
    SELECT id, budget_id, gpu_us FROM token_refunds ORDER BY id LIMIT :limit
), held AS (
    SELECT id FROM token_budgets WHERE id IN (SELECT budget_id FROM due) FOR NO KEY UPDATE SKIP LOCKED
), moved AS (
    DELETE FROM token_refunds f USING due d JOIN held h ON h.id = d.budget_id WHERE f.id = d.id
    RETURNING f.budget_id, f.gpu_us
), settled AS (
    UPDATE token_budgets b SET charged_us = b.charged_us - s.gpu_us
    FROM (SELECT budget_id, CAST(sum(gpu_us) AS bigint) AS gpu_us FROM moved GROUP BY budget_id) s WHERE b.id = s.budget_id
)
SELECT count(*) AS rows FROM moved;
