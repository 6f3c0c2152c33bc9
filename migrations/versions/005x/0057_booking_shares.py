"""Jobs in bookings ask for CPUs and memory, up to the share that their GPUs are."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script, lock_tables

revision = "0057_booking_shares"
down_revision = "0056_disk_owners"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    lock_tables(op.get_bind(), "reservations, allocations")
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Jobs in bookings have the share of their GPUs again, whatever they asked for."""
    lock_tables(op.get_bind(), "reservations, allocations")
    execute_script(op.get_bind(), _DROP)


_DROP = """
DROP TRIGGER reservations_share_of_booking ON reservations;
DROP TRIGGER allocations_share_of_booking ON allocations;
DROP TRIGGER allocations_counted_with_booking ON allocations;
DROP FUNCTION keep_amounts_in_booking();
DROP FUNCTION keep_share_in_booking();
DROP FUNCTION count_with_booking();
DROP FUNCTION may_ask_in_booking(text, integer, text, bigint, bigint);
DROP FUNCTION least_share_in_booking(text, integer, text);
ALTER TABLE allocations DROP CONSTRAINT allocations_shares_in_bookings;
UPDATE reservations SET cpu_milli = NULL, memory_bytes = NULL
WHERE booking_id IS NOT NULL AND num_nonnulls(cpu_milli, memory_bytes) > 0;
ALTER TABLE reservations
    DROP CONSTRAINT reservations_shares_of_jobs,
    ADD CONSTRAINT reservations_shares_of_jobs
        CHECK (kind = 'job' AND booking_id IS NULL OR num_nonnulls(cpu_milli, memory_bytes) = 0) NOT VALID;
"""
