"""Usage sums, and indexes for lists and timers on a long history. Runs beside the service: see `outside_transaction`.

Every step may have been done before: a run that broke off is repeated from the beginning.
"""

from pathlib import Path

from alembic import op

from migrations.scripts import build_index, drop_index, execute_batches, execute_outside, execute_script

revision = "0023_long_history"
down_revision = "0022_missed_starts"
branch_labels = None
depends_on = None

outside_transaction = True

_INDEXES = {
    "bookings_live": "bookings (starts_at) WHERE status IN ('confirmed', 'active')",
    "bookings_of_status": "bookings (status, starts_at, id)",
    "bookings_of_user": "bookings (user_id, starts_at, id)",
    "bookings_spans": "bookings USING gist (tstzrange(starts_at, ends_at))",
    "reservations_unended_jobs": "reservations (seq) WHERE kind = 'job' AND finished_at IS NULL",
    "reservations_ended_jobs": "reservations (status, seq) WHERE kind = 'job' AND finished_at IS NOT NULL",
    "reservations_ended_jobs_of_user":
        "reservations (user_id, status, seq) WHERE kind = 'job' AND finished_at IS NOT NULL",
    "allocations_open_from": "allocations (gpu_id, lower(during)) WHERE released_at IS NULL",
    "allocations_past": "allocations USING gist (during) WHERE released_at IS NOT NULL AND booking_id IS NULL",
}  # fmt: skip


def upgrade() -> None:
    """Tables and functions; copies and pending usage of what there is; triggers; indexes."""
    connection = op.get_bind()
    here = Path(__file__)
    execute_outside(connection, _locked("reservations, bookings IN ACCESS EXCLUSIVE", here.with_suffix(".sql")))
    execute_batches(connection, _COPY)
    # Nothing reads these two before the triggers are there: it may take its time.
    execute_outside(connection, _NOTE_PENDING)
    written = "reservations, allocations, bookings, admissions IN SHARE ROW EXCLUSIVE"
    execute_outside(connection, _locked(written, here.with_name("0023_long_history_triggers.sql")))
    execute_batches(connection, _COPY)
    for name, definition in _INDEXES.items():
        build_index(connection, name, definition)
    # Its successor begins with the same column.
    drop_index(connection, "allocations_open")


def downgrade() -> None:
    """Sums are forgotten; they can be made again."""
    execute_script(op.get_bind(), _BEFORE)


def _locked(tables: str, path: Path) -> str:
    """A script in a transaction that has all of its locks before it begins."""
    return f"BEGIN;\n{_LOCK.format(tables=tables)}\n{path.read_text(encoding='utf-8')}\nCOMMIT;"


# A lock that is not had at once would keep everybody waiting who comes later: it is tried for a moment at a time.
_LOCK = """
DO $$
BEGIN
    FOR try IN 1..600 LOOP
        BEGIN
            SET LOCAL lock_timeout = '200ms';
            LOCK TABLE {tables} MODE;
            EXIT;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            IF try = 600 THEN
                RAISE;
            END IF;
            PERFORM pg_sleep(0.1);
        END;
    END LOOP;
    SET LOCAL lock_timeout = 0;
END $$;
"""


_COPY = """
WITH next AS (SELECT id FROM bookings WHERE status IS NULL ORDER BY id LIMIT 5000 FOR NO KEY UPDATE)
UPDATE bookings b SET user_id = r.user_id, status = r.status
FROM next JOIN reservations r ON r.id = next.id WHERE b.id = next.id
"""

_NOTE_PENDING = """
INSERT INTO usage_pending (reservation_id)
SELECT DISTINCT reservation_id FROM allocations WHERE released_at IS NOT NULL AND booking_id IS NULL
ON CONFLICT DO NOTHING
"""

_BEFORE = """
DROP TRIGGER admissions_reopen_usage ON admissions;
DROP TRIGGER bookings_reopen_usage ON bookings;
DROP TRIGGER reservations_added_reopen_usage ON reservations;
DROP TRIGGER reservations_reopen_usage ON reservations;
DROP TRIGGER allocations_added_reopen_usage ON allocations;
DROP TRIGGER allocations_reopen_usage ON allocations;
DROP FUNCTION reopen_usage_of_admission(), reopen_usage_of_booking(), reopen_usage_of_reservation(),
    reopen_usage_of_row(), reopen_usage(text), add_to_usage_sums(text[], integer), usage_of(text[]);
DROP TABLE usage_pending, usage_sums;
CREATE INDEX allocations_open ON allocations (gpu_id) WHERE released_at IS NULL;
DROP INDEX allocations_past, allocations_open_from, reservations_ended_jobs_of_user, reservations_ended_jobs,
    reservations_unended_jobs, bookings_spans, bookings_of_user, bookings_of_status, bookings_live;
DROP TRIGGER reservations_copy_booking_status ON reservations;
DROP TRIGGER bookings_complete ON bookings;
DROP FUNCTION copy_booking_status(), complete_booking();
ALTER TABLE bookings DROP COLUMN status, DROP COLUMN user_id;
"""
