"""A disk that a job has is not handed over."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script, lock_tables

revision = "0056_disk_owners"
down_revision = "0055_traces"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    lock_tables(op.get_bind(), "disks")
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Older servers hand no disks over."""
    for statement in ("DROP TRIGGER disks_owner_of_used ON disks", "DROP FUNCTION keep_owner_of_used_disk()"):
        op.get_bind().exec_driver_sql(statement)
