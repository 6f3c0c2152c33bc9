"""A calendar address ends with the token that it was made with."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0033_calendar_addresses_end"
down_revision = "0032_bounded_tokens"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Addresses whose token has ended are removed: nothing else would end them."""
    execute_script(op.get_bind(), _BEFORE)


_BEFORE = """
DELETE FROM calendar_feeds f USING tokens t
WHERE t.id = f.made_with AND (t.revoked_at IS NOT NULL OR t.expires_at <= clock_timestamp());
ALTER TABLE calendar_feeds DROP COLUMN made_with;
"""
