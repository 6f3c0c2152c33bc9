"""Tokens have scopes, and end with the token that they were made with."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0027_token_scopes"
down_revision = "0026_estimates"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Tokens that do not reach everything are revoked: nothing would hold them back any more."""
    execute_script(op.get_bind(), _BEFORE)


_BEFORE = """
UPDATE tokens SET revoked_at = coalesce(revoked_at, clock_timestamp())
WHERE NOT scopes @> '{read,submit,book,sessions,admin}' OR made_with IS NOT NULL;
DROP TRIGGER tokens_begin_within ON tokens;
DROP TRIGGER tokens_end_what_they_made ON tokens;
DROP FUNCTION token_is_within_its_maker(), end_tokens_made_with();
ALTER TABLE tokens DROP COLUMN made_with, DROP COLUMN scopes, DROP COLUMN session, DROP COLUMN generation;
CREATE FUNCTION end_sessions_of_token() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tokens SET revoked_at = NEW.revoked_at WHERE session_from = NEW.id AND revoked_at IS NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER tokens_end_their_sessions AFTER UPDATE OF revoked_at ON tokens
    FOR EACH ROW WHEN (OLD.revoked_at IS NULL AND NEW.revoked_at IS NOT NULL) EXECUTE FUNCTION end_sessions_of_token();
CREATE FUNCTION session_is_as_its_token() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT revoked_at INTO NEW.revoked_at FROM tokens WHERE id = NEW.session_from FOR SHARE;
    RETURN NEW;
END $$;
CREATE TRIGGER tokens_begin_as_theirs BEFORE INSERT ON tokens
    FOR EACH ROW WHEN (NEW.session_from IS NOT NULL) EXECUTE FUNCTION session_is_as_its_token();
"""
