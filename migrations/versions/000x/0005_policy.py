"""Rules, quotas and usage: policy as data."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0005_policy"
down_revision = "0004_calendar"
branch_labels = None
depends_on = None

_DROP = """
UPDATE users SET role = 'user', disabled_at = coalesce(disabled_at, now()) WHERE role = 'service';
ALTER TABLE users
    DROP CONSTRAINT users_role_check,
    ADD CONSTRAINT users_role_check CHECK (role IN ('user', 'admin'));
DROP INDEX allocations_released;
DROP INDEX reservations_project;
DROP TABLE fair_share_state, fair_shares, project_members, projects, policy_state, policies;
DROP FUNCTION count_policy_up();
"""


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Take it back."""
    execute_script(op.get_bind(), _DROP)
