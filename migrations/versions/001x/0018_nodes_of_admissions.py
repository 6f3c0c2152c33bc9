"""On which node a pod is that uses a booking."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0018_nodes_of_admissions"
down_revision = "0017_sign_in"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """It is not known any more."""
    execute_script(op.get_bind(), "ALTER TABLE admissions DROP COLUMN node;")
