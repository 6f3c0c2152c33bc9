"""Bookings beside jobs in one ledger: a second layer for what runs within them, slots and promises of who waits."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0004_calendar"
down_revision = "0003_cluster"
branch_labels = None
depends_on = None

# Bookings and what ran within them were unknown before: they go, with what hangs on them.
_DROP = """
DROP TABLE start_promises, calendar_feeds;
DELETE FROM allocations WHERE planned;
ALTER TABLE allocations
    DROP CONSTRAINT allocations_calendar,
    DROP CONSTRAINT allocations_calendar_in_bookings;
DROP TRIGGER allocations_within_booking ON allocations;
DROP TRIGGER allocations_cover_what_is_within ON allocations;
DROP FUNCTION stay_within_booking;
DROP FUNCTION cover_what_is_within;
ALTER TABLE events DISABLE TRIGGER USER;
UPDATE events SET subject = reservation_id, reservation_id = NULL
WHERE reservation_id IN (SELECT id FROM reservations WHERE kind <> 'job');
ALTER TABLE events ENABLE TRIGGER USER;
UPDATE reservations SET booking_id = NULL WHERE booking_id IS NOT NULL;
UPDATE allocations SET booking_id = NULL WHERE booking_id IS NOT NULL;
DELETE FROM allocations a USING reservations r WHERE r.id = a.reservation_id AND r.kind <> 'job';
DELETE FROM allocations WHERE planned;
DROP TABLE bookings, booking_series;
DELETE FROM reservations WHERE kind <> 'job';
DROP INDEX reservations_line, reservations_in_bookings, reservations_bookings;
ALTER TABLE allocations
    DROP CONSTRAINT allocations_planned_check,
    DROP COLUMN planned,
    DROP COLUMN booking_id,
    ADD CONSTRAINT allocations_calendar EXCLUDE USING gist (gpu_id WITH =, during WITH &&);
ALTER TABLE reservations
    DROP CONSTRAINT reservations_id_check,
    DROP CONSTRAINT reservations_kind_check,
    DROP CONSTRAINT reservations_status_check,
    DROP CONSTRAINT reservations_final_check,
    DROP CONSTRAINT reservations_booking_check,
    DROP CONSTRAINT reservations_gpus_check,
    DROP COLUMN booking_id,
    DROP COLUMN project,
    ADD CONSTRAINT reservations_gpus_check CHECK (gpus BETWEEN 1 AND 1024),
    ADD CONSTRAINT reservations_id_check CHECK (id ~ '^(job|bkg)-[0-9a-z]{1,32}$'),
    ADD CONSTRAINT reservations_kind_check CHECK (kind IN ('job', 'booking')),
    ADD CONSTRAINT reservations_status_check CHECK (status IN
        ('queued', 'starting', 'running', 'ending', 'succeeded', 'failed', 'cancelled', 'expired')),
    ADD CONSTRAINT reservations_check1 CHECK (
        (status IN ('succeeded', 'failed', 'cancelled', 'expired')) = (finished_at IS NOT NULL));
CREATE INDEX reservations_line ON reservations (line_type, line_priority, seq) INCLUDE (gpus, nodes, duration)
    WHERE status = 'queued';
"""


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Take it back. Bookings go, but for what the record says of them; what ran within them stays as jobs."""
    execute_script(op.get_bind(), _DROP)
