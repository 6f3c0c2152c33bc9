"""Disks have snapshots, and are cloned."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script, lock_tables

revision = "0060_disk_snapshots"
down_revision = "0059_cpu_jobs"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    lock_tables(op.get_bind(), "disks, disk_uses")
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """All snapshots are forgotten; what is in them stays with the cluster. Clones that are not made are made empty."""
    for statement in (
        "DROP TRIGGER disks_made_after_copy ON disks",
        "DROP TRIGGER disk_uses_while_copied ON disk_uses",
        "DROP TABLE disk_copies",
        "DROP FUNCTION snapshots_of_disk(text)",
        "DROP TABLE disk_snapshots",
        "DROP FUNCTION keep_disk_unmade_until_copied()",
        "DROP FUNCTION keep_copied_disk_still()",
        "DROP FUNCTION copy_still_disks()",
    ):
        op.get_bind().exec_driver_sql(statement)
