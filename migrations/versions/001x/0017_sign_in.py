"""Signing in with proofs of others: used ones are remembered, and their tokens expire."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0017_sign_in"
down_revision = "0016_displaced_pods"
branch_labels = None
depends_on = None

_DROP = """
DELETE FROM tokens WHERE method IS NOT NULL;
ALTER TABLE tokens DROP COLUMN method;
DROP TABLE used_proofs;
"""


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Signed-in users need a token of another kind."""
    execute_script(op.get_bind(), _DROP)
