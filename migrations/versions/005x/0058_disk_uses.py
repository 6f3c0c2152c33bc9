"""A job has disks of its own user alone, also beside a hand-over."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script, lock_tables

revision = "0058_disk_uses"
down_revision = "0057_booking_shares"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    lock_tables(op.get_bind(), "disk_uses")
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """The lock of a submission alone keeps a job's disks with its user."""
    for statement in ("DROP TRIGGER disk_uses_of_owner ON disk_uses", "DROP FUNCTION keep_disks_with_owner()"):
        op.get_bind().exec_driver_sql(statement)
