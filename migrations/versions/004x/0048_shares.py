"""Jobs ask for CPUs and memory, and no node gives more of them than it has."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script, lock_tables

revision = "0048_shares"
down_revision = "0047_idle_gpus"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    lock_tables(op.get_bind(), "nodes, reservations, allocations")
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Every job has the share of a node that its GPUs are, and nobody adds shares up."""
    for statement in (
        "DROP TRIGGER allocations_shares ON allocations",
        "DROP TRIGGER allocations_shares_moved ON allocations",
        "DROP FUNCTION check_shares_of_placed()",
        "DROP FUNCTION check_shares_of_moved()",
        "DROP FUNCTION refuse_beyond_shares(bigint, tstzrange, boolean)",
        "ALTER TABLE allocations DROP COLUMN cpu_milli, DROP COLUMN memory_bytes",
        "ALTER TABLE reservations DROP COLUMN cpu_milli, DROP COLUMN memory_bytes, DROP COLUMN shm_bytes",
        "ALTER TABLE nodes DROP COLUMN cpu_milli, DROP COLUMN memory_bytes",
    ):
        op.get_bind().exec_driver_sql(statement)
