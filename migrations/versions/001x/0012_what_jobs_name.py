"""What a job may name is looked at by a function of the database."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0012_what_jobs_name"
down_revision = "0011_admissions"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Drop the function; nothing is stored by it."""
    op.execute("DROP FUNCTION may_name")
