-- A token is made with another one, reaches no farther than that, and ends with it. What sessions of browsers have been
-- from the beginning holds for all, by the same two triggers. Tokens of sign-ins, and older ones, were made with none.
ALTER TABLE tokens
    ADD COLUMN made_with text REFERENCES tokens (id) ON DELETE CASCADE,
    ADD COLUMN scopes text[] NOT NULL DEFAULT '{read,submit,book,sessions,admin}',
    -- What a browser keeps in its cookie, and good for nothing else.
    ADD COLUMN session boolean NOT NULL DEFAULT false,
    -- Bounded, as a trigger goes down the line of those that end with one: ten tokens, and the sessions of the last.
    ADD COLUMN generation smallint NOT NULL DEFAULT 0,
    ADD CONSTRAINT tokens_scopes_known
        CHECK (scopes <@ '{read,submit,book,sessions,admin}' AND cardinality(scopes) BETWEEN 1 AND 5),
    ADD CONSTRAINT tokens_lines_are_short CHECK (generation BETWEEN 0 AND 11),
    ADD CONSTRAINT tokens_have_one_origin CHECK (made_with IS NULL OR session_from IS NULL);
UPDATE tokens SET session = true WHERE session_from IS NOT NULL OR (method IS NOT NULL AND name = 'browser session');
CREATE INDEX tokens_made_with ON tokens (made_with) WHERE made_with IS NOT NULL;

CREATE FUNCTION end_tokens_made_with() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tokens SET revoked_at = NEW.revoked_at WHERE session_from = NEW.id AND revoked_at IS NULL;
    UPDATE tokens SET revoked_at = NEW.revoked_at WHERE made_with = NEW.id AND revoked_at IS NULL;
    RETURN NULL;
END $$;
DROP TRIGGER tokens_end_their_sessions ON tokens;
CREATE TRIGGER tokens_end_what_they_made AFTER UPDATE OF revoked_at ON tokens
    FOR EACH ROW WHEN (OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL) EXECUTE FUNCTION end_tokens_made_with();
DROP FUNCTION end_sessions_of_token();

-- Whoever revokes the maker at the same moment waits for the token to be there, or the token waits and is revoked.
CREATE FUNCTION token_is_within_its_maker() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    maker tokens;
BEGIN
    SELECT * INTO STRICT maker FROM tokens WHERE id = coalesce(NEW.made_with, NEW.session_from) FOR SHARE;
    IF NEW.expires_at > maker.expires_at OR (NEW.expires_at IS NULL AND maker.expires_at IS NOT NULL)
       OR NOT NEW.scopes <@ maker.scopes THEN
        RAISE EXCEPTION 'a token reaches farther than the one it is made with'
            USING ERRCODE = 'check_violation', CONSTRAINT = 'tokens_within_their_maker', TABLE = 'tokens';
    END IF;
    NEW.generation := maker.generation + 1;
    NEW.session := NEW.session OR NEW.session_from IS NOT NULL;  -- also where an older program has begun it
    NEW.revoked_at := coalesce(NEW.revoked_at, maker.revoked_at);
    RETURN NEW;
END $$;
DROP TRIGGER tokens_begin_as_theirs ON tokens;
CREATE TRIGGER tokens_begin_within BEFORE INSERT ON tokens
    FOR EACH ROW WHEN (NEW.session_from IS NOT NULL OR NEW.made_with IS NOT NULL) EXECUTE FUNCTION token_is_within_its_maker();
DROP FUNCTION session_is_as_its_token();
