-- Budgets of tokens: how much GPU time may be asked for with a token and with those made with it. All amounts are GPUs times
-- microseconds. A counter says what is charged, so that no question reads what a token ever made.

-- A lock that is not had at once would keep everybody waiting who comes later: it is tried for a moment at a time.
DO $$
BEGIN
    FOR try IN 1..600 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
            LOCK TABLE reservations IN SHARE ROW EXCLUSIVE MODE;
            LOCK TABLE tokens IN ACCESS EXCLUSIVE MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            IF try = 600 THEN
                RAISE;
            END IF;
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    SET LOCAL lock_timeout = 0;
END $$;

CREATE TABLE token_budgets (
    id         text PRIMARY KEY REFERENCES tokens (id) ON DELETE CASCADE,
    gpu_us     bigint NOT NULL CHECK (gpu_us > 0),
    until      timestamptz,
    charged_us bigint NOT NULL DEFAULT 0,
    CONSTRAINT token_budgets_suffice CHECK (charged_us BETWEEN 0 AND gpu_us)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);

-- What each budget pays of a reservation that is not over: of its GPU time, counted from its beginning, the part [from, to).
-- Time that was added by an extension is a part of its own, of the token that extended.
CREATE TABLE token_charges (
    reservation_id text NOT NULL REFERENCES reservations (id) ON DELETE CASCADE,
    budget_id      text NOT NULL REFERENCES token_budgets (id) ON DELETE CASCADE,
    from_us        bigint NOT NULL CHECK (from_us >= 0),
    to_us          bigint NOT NULL CHECK (to_us > from_us),
    PRIMARY KEY (reservation_id, budget_id, from_us)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX token_charges_budget ON token_charges (budget_id);

-- What was not used after all. It is noted here without a lock on the budget, so that what ends reservations waits for nobody
-- who submits, and is taken off the counter by the next charge or by the summing up.
CREATE TABLE token_refunds (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    budget_id text NOT NULL REFERENCES token_budgets (id) ON DELETE CASCADE,
    gpu_us    bigint NOT NULL CHECK (gpu_us > 0)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX token_refunds_budget ON token_refunds (budget_id);

CREATE VIEW token_budgets_now AS
SELECT b.id, b.gpu_us, b.until,
       CAST(b.charged_us - coalesce((SELECT sum(f.gpu_us) FROM token_refunds f WHERE f.budget_id = b.id), 0) AS bigint) AS charged_us
FROM token_budgets b;

-- == Which budget a token is held to: its own, or that of the nearest token before it that has one ==
ALTER TABLE tokens ADD COLUMN budget_id text;

CREATE FUNCTION token_is_on_its_makers_budget() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.budget_id IS DISTINCT FROM NEW.id THEN
        SELECT budget_id INTO STRICT NEW.budget_id FROM tokens WHERE id = coalesce(NEW.made_with, NEW.session_from);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER tokens_inherit_budget BEFORE INSERT ON tokens
    FOR EACH ROW WHEN (NEW.session_from IS NOT NULL OR NEW.made_with IS NOT NULL) EXECUTE FUNCTION token_is_on_its_makers_budget();

-- == What is given back ==
-- When a reservation is over, the budgets pay for what it held by the ledger, and never for more than was asked. When it is
-- shortened they pay for what is left. In both cases what was asked for last is given back first. Deferred: the ledger's
-- rows are closed in the same transaction, after the reservation's.
CREATE FUNCTION give_back_to_budgets() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    kept numeric;
BEGIN
    IF NOT EXISTS (SELECT FROM token_charges WHERE reservation_id = NEW.id) THEN
        RETURN NULL;
    END IF;
    IF NEW.finished_at IS NULL THEN
        kept := round(1000000 * extract(epoch FROM NEW.duration) * NEW.gpus * NEW.nodes);
    ELSE
        SELECT coalesce(round(1000000 * sum(extract(epoch FROM upper(a.during) - lower(a.during)))), 0) INTO kept
        FROM allocations a WHERE a.reservation_id = NEW.id AND NOT a.planned;
    END IF;
    INSERT INTO token_refunds (budget_id, gpu_us)
    SELECT budget_id, sum(to_us - greatest(from_us, kept)) FROM token_charges
    WHERE reservation_id = NEW.id AND to_us > kept GROUP BY budget_id ORDER BY budget_id;
    DELETE FROM token_charges WHERE reservation_id = NEW.id AND (NEW.finished_at IS NOT NULL OR from_us >= kept);
    UPDATE token_charges SET to_us = kept WHERE reservation_id = NEW.id AND to_us > kept;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER reservations_give_back_to_budgets AFTER UPDATE ON reservations
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN ((OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL) OR NEW.duration < OLD.duration)
    EXECUTE FUNCTION give_back_to_budgets();
