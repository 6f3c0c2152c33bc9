"""Jobs may be preemptible, and may name a signal that they get before their end."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script, lock_tables

revision = "0050_preemption"
down_revision = "0049_arrays"
branch_labels = None
depends_on = None

_BEFORE = """CREATE OR REPLACE FUNCTION note_given_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO given_back (allocation_id, user_id, project)
    SELECT NEW.id, r.user_id, r.project FROM reservations r WHERE r.id = NEW.reservation_id;
    RETURN NULL;
END $$"""


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    lock_tables(op.get_bind(), "reservations")
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Jobs that were preemptible keep what they have as others do."""
    names = ("preemptible", "min_runtime", "end_signal", "end_signal_before", "signalled_at", "preempted_at")
    for statement in (
        _BEFORE,
        "DELETE FROM notice_preferences WHERE kind = 'preempted'",
        "DELETE FROM notice_events WHERE event = 'preempted'",
        "DELETE FROM notice_kinds WHERE kind = 'preempted'",
        *(f"ALTER TABLE reservations DROP COLUMN {name}" for name in (*names, "preemptions")),
    ):
        op.get_bind().exec_driver_sql(statement)
