"""What old things are removed by, and the promise that makes the audit log a partition without being read.

Runs beside the service: see `outside_transaction`. Every step may have been done before.
"""

from pathlib import Path

from alembic import op

from migrations.scripts import build_index, execute_outside, execute_script

revision = "0024_retention"
down_revision = "0023_long_history"
branch_labels = None
depends_on = None


outside_transaction = True

_INDEXES = {
    # Finished reservations, oldest first; jobs within bookings go with their bookings.
    "reservations_finished":
        "reservations (finished_at, id) WHERE finished_at IS NOT NULL AND booking_id IS NULL",
    # Each removed reservation is looked for where something could refer to it: never by walking through a table.
    "allocations_of_booking": "allocations (booking_id) WHERE booking_id IS NOT NULL",
    "pod_logs_reservation": "pod_logs (reservation_id)",
    "bookings_started_job": "bookings (started_job) WHERE started_job IS NOT NULL",
}  # fmt: skip


def upgrade() -> None:
    """Execute the SQL file beside this one, and build indexes while the service goes on."""
    connection = op.get_bind()
    script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
    execute_outside(connection, f"BEGIN;\n{script}\nCOMMIT;")
    for name, definition in _INDEXES.items():
        build_index(connection, name, definition)


def downgrade() -> None:
    """Nothing is removed any more. What the audit log says of removed reservations loses their ids to its subjects."""
    execute_script(op.get_bind(), _BEFORE)


_BEFORE = """
ALTER TABLE events DROP CONSTRAINT IF EXISTS events_before_partitions;
ALTER TABLE events DISABLE TRIGGER events_append_only;
UPDATE events e SET reservation_id = NULL, subject = coalesce(subject, reservation_id)
WHERE reservation_id IS NOT NULL AND NOT EXISTS (SELECT FROM reservations r WHERE r.id = e.reservation_id);
ALTER TABLE events ENABLE TRIGGER events_append_only;
ALTER TABLE events ADD CONSTRAINT events_reservation_id_fkey FOREIGN KEY (reservation_id) REFERENCES reservations (id);
CREATE OR REPLACE FUNCTION given_back_is_history() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'row % of the ledger is closed', OLD.id
        USING ERRCODE = 'check_violation', CONSTRAINT = 'allocations_closed', TABLE = 'allocations',
              HINT = 'What was given back is history: it is neither changed nor removed.';
END $$;
DROP INDEX bookings_started_job;
DROP INDEX pod_logs_reservation;
DROP INDEX allocations_of_booking;
DROP INDEX reservations_finished;
DROP TABLE retention_state;
"""
