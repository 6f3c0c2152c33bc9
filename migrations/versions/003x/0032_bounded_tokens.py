"""A user has a bounded number of tokens that were made with others, so that ending them is a bounded piece of work.

Runs beside the service: see `outside_transaction`. Every step may have been done before.
"""

from pathlib import Path

from alembic import op

from migrations.scripts import build_index, execute_outside, execute_script

revision = "0032_bounded_tokens"
down_revision = "0031_application_role"
branch_labels = None
depends_on = None

outside_transaction = True
_INDEXES = {
    "tokens_not_revoked": "tokens (user_id, coalesce(expires_at, 'infinity'::timestamptz)) WHERE revoked_at IS NULL",
    "tokens_revoked": "tokens (user_id, revoked_at) WHERE revoked_at IS NOT NULL",
}


def upgrade() -> None:
    """Build the indexes, then execute the SQL file beside this one."""
    connection = op.get_bind()
    for name, definition in _INDEXES.items():
        build_index(connection, name, definition)
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    execute_outside(connection, f"BEGIN;\n{script}\nCOMMIT;")


def downgrade() -> None:
    """Tokens are unbounded, and those that are over are ended with their makers too."""
    execute_script(op.get_bind(), _BEFORE)


_BEFORE = """
DROP INDEX tokens_not_revoked, tokens_revoked;
DROP TRIGGER tokens_are_few ON tokens;
DROP FUNCTION token_is_one_of_few();
CREATE OR REPLACE FUNCTION end_tokens_made_with() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE tokens SET revoked_at = NEW.revoked_at WHERE session_from = NEW.id AND revoked_at IS NULL;
    UPDATE tokens SET revoked_at = NEW.revoked_at WHERE made_with = NEW.id AND revoked_at IS NULL;
    RETURN NULL;
END $$;
"""
