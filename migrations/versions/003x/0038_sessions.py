"""People enter their running jobs, and share them."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0038_sessions"
down_revision = "0037_cost_per_gpu_hour"
branch_labels = None
depends_on = None

_LIFTED_BEFORE = """ALTER TABLE policies ADD CONSTRAINT policies_lifted_check CHECK (lifted <@ ARRAY['max_gpus',
    'max_gpu_hours_per_week', 'max_duration', 'max_advance', 'min_notice', 'max_open_bookings', 'cooldown', 'priority',
    'no_show_grace'])"""


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Nobody enters a job; keys and shares are forgotten."""
    for statement in (
        "DROP TABLE session_activity, connections, job_shares, ssh_server_keys, ssh_keys",
        "ALTER TABLE reservations DROP COLUMN inactivity",
        "ALTER TABLE policies DROP COLUMN inactivity",
        "UPDATE policies SET lifted = array_remove(lifted, 'inactivity')",
        "ALTER TABLE policies DROP CONSTRAINT policies_lifted_check",
        _LIFTED_BEFORE,
    ):
        op.get_bind().exec_driver_sql(statement)
