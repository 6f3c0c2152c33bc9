-- A browser's session is a token of its own, made from one that its owner showed. It never outlives that one: it is
-- made to expire with it, is revoked with it, and is deleted with it.
ALTER TABLE tokens ADD COLUMN session_from text REFERENCES tokens (id) ON DELETE CASCADE,
    ADD CONSTRAINT tokens_of_sessions_expire CHECK (session_from IS NULL OR expires_at IS NOT NULL);
CREATE INDEX tokens_sessions ON tokens (session_from) WHERE session_from IS NOT NULL;

CREATE FUNCTION end_sessions_of_token() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tokens SET revoked_at = NEW.revoked_at WHERE session_from = NEW.id AND revoked_at IS NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER tokens_end_their_sessions AFTER UPDATE OF revoked_at ON tokens
    FOR EACH ROW WHEN (OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL) EXECUTE FUNCTION end_sessions_of_token();

-- Whoever revokes the token at the same moment waits for the session to be there, or the session waits and is revoked.
CREATE FUNCTION session_is_as_its_token() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT revoked_at INTO NEW.revoked_at FROM tokens WHERE id = NEW.session_from FOR SHARE;
    RETURN NEW;
END $$;
CREATE TRIGGER tokens_begin_as_theirs BEFORE INSERT ON tokens
    FOR EACH ROW WHEN (NEW.session_from IS NOT NULL) EXECUTE FUNCTION session_is_as_its_token();
