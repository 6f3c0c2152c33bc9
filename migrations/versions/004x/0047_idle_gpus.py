"""A rule about idle GPUs, the warnings of jobs, and who is notified of them."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0047_idle_gpus"
down_revision = "0046_retries"
branch_labels = None
depends_on = None

_LIFTED_BEFORE = """ALTER TABLE policies ADD CONSTRAINT policies_lifted_check CHECK (lifted <@ ARRAY['max_gpus',
    'max_gpu_hours_per_week', 'max_duration', 'max_advance', 'min_notice', 'max_open_bookings', 'cooldown', 'priority',
    'no_show_grace', 'inactivity'])"""


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """No job is warned, and no rule says so."""
    for statement in (
        "DELETE FROM notice_preferences WHERE kind = 'idle'",
        "DELETE FROM notice_events WHERE event = 'idle_warning'",
        "DELETE FROM notice_kinds WHERE kind = 'idle'",
        "ALTER TABLE policies DROP CONSTRAINT policies_lifted_check",
        "UPDATE policies SET lifted = array_remove(lifted, 'idle')",
        _LIFTED_BEFORE,
        *(f"ALTER TABLE policies DROP COLUMN idle_{name}" for name in ("below", "window", "grace", "then")),
        *(f"ALTER TABLE reservations DROP COLUMN idle_{name}" for name in ("since", "warned_at", "release_at", "from")),
    ):
        op.get_bind().exec_driver_sql(statement)
