-- What ends with a token is ended in one statement: so a user has a bounded number of tokens that were made with others.
-- Those that are over for longer than the ledger's clock is ever set back count no more, and need not be ended.
CREATE OR REPLACE FUNCTION token_is_one_of_few() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM users WHERE id = NEW.user_id FOR NO KEY UPDATE;  -- one after the other, or each would be the last
    IF (
        SELECT count(*) FROM tokens
        WHERE user_id = NEW.user_id AND revoked_at IS NULL AND coalesce(made_with, session_from) IS NOT NULL
          AND coalesce(expires_at, 'infinity') > NEW.created_at - interval '10 minutes'
    ) >= 1000 THEN
        RAISE EXCEPTION 'a user has 1000 tokens at most'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'tokens_are_few', TABLE = 'tokens';
    END IF;
    RETURN NEW;
END $$;
-- Triggers fire in the order of their names: the user's row is locked before the maker's, as whoever disables them does it.
DROP TRIGGER IF EXISTS tokens_are_few ON tokens;
CREATE TRIGGER tokens_are_few BEFORE INSERT ON tokens
    FOR EACH ROW WHEN (NEW.session_from IS NOT NULL OR NEW.made_with IS NOT NULL) EXECUTE FUNCTION token_is_one_of_few();

CREATE OR REPLACE FUNCTION end_tokens_made_with() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tokens SET revoked_at = NEW.revoked_at
    WHERE session_from = NEW.id AND revoked_at IS NULL
      AND coalesce(expires_at, 'infinity') > NEW.revoked_at - interval '10 minutes';
    UPDATE tokens SET revoked_at = NEW.revoked_at
    WHERE made_with = NEW.id AND revoked_at IS NULL
      AND coalesce(expires_at, 'infinity') > NEW.revoked_at - interval '10 minutes';
    RETURN NULL;
END $$;
