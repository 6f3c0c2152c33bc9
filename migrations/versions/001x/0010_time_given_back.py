"""GPU-time that was given back, by week, and versions of what people say of their notices."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0010_time_given_back"
down_revision = "0009_gpu_resources"
branch_labels = None
depends_on = None

_DROP = """
ALTER TABLE users DROP COLUMN preferences_version;
DROP INDEX reservations_unended, reservations_unended_of_project, reservations_bookings_of_user,
    reservations_bookings_of_project;
DROP TABLE gpu_time_given_back;
DROP TRIGGER allocations_closed ON allocations;
DROP TRIGGER allocations_closed_stay ON allocations;
DROP FUNCTION given_back_is_history();
DROP TRIGGER allocations_given_back ON allocations;
DROP TRIGGER allocations_added_closed ON allocations;
DROP FUNCTION note_given_back();
DROP TABLE given_back;
"""


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Drop the sums, the indexes and the column."""
    execute_script(op.get_bind(), _DROP)
