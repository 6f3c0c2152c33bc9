"""Sessions of browsers: tokens that end with the one they were made from."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0019_web_sessions"
down_revision = "0018_nodes_of_admissions"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """All sessions that were made from tokens end."""
    execute_script(
        op.get_bind(),
        """
        DELETE FROM tokens WHERE session_from IS NOT NULL;
        DROP TRIGGER tokens_end_their_sessions ON tokens;
        DROP TRIGGER tokens_begin_as_theirs ON tokens;
        DROP FUNCTION end_sessions_of_token();
        DROP FUNCTION session_is_as_its_token();
        ALTER TABLE tokens DROP COLUMN session_from;
        """,
    )
