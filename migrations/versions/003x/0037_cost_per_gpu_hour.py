"""A rule may say what a GPU-hour costs."""

from alembic import op

revision = "0037_cost_per_gpu_hour"
down_revision = "0036_notice_routes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """An amount and its unit in one text, as people write it: nothing is counted in SQL."""
    op.get_bind().exec_driver_sql(
        "ALTER TABLE policies ADD COLUMN cost_per_gpu_hour text"
        r" CHECK (cost_per_gpu_hour ~ '^[0-9]{1,6}(\.[0-9]{1,6})? [^ 0-9]{1,12}$')"
    )


def downgrade() -> None:
    """No rule says what a GPU-hour costs."""
    op.get_bind().exec_driver_sql("ALTER TABLE policies DROP COLUMN cost_per_gpu_hour")
