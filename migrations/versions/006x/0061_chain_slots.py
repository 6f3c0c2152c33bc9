"""Jobs that wait for others have slots.

Runs beside the service: see `outside_transaction`. Every step may have been done before.
"""

from pathlib import Path

from alembic import op

from migrations.scripts import build_index, execute_outside, execute_script, lock_tables, locked_script

revision = "0061_chain_slots"
down_revision = "0060_disk_snapshots"
branch_labels = None
depends_on = None

outside_transaction = True


def upgrade() -> None:
    """Build the index by which jobs that wait for others are found, and execute the SQL file beside this one."""
    connection = op.get_bind()
    build_index(
        connection,
        "reservations_dependants",
        "reservations (line_priority, seq) WHERE status = 'queued' AND held AND array_size IS NULL",
    )
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    execute_outside(connection, locked_script("allocations", script))


def downgrade() -> None:
    """The slots of jobs that wait for others are given up; their promises stay, as when a slot is lost."""
    lock_tables(op.get_bind(), "allocations, reservations")
    execute_script(op.get_bind(), _DROP)


_DROP = """
DROP INDEX reservations_dependants;
DROP TRIGGER allocations_follow ON allocations;
DROP FUNCTION slot_follows(), open_needs(text), has_few_needs(text);
DELETE FROM allocations WHERE planned AND follows;
ALTER TABLE allocations DROP COLUMN follows;
"""
