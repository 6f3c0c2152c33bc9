"""The start of jobs that wait for others is predicted: they have no place in the queue."""

from alembic import op

revision = "0063_predicted_dependants"
down_revision = "0062_asked_amounts"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """No table is rewritten."""
    op.get_bind().exec_driver_sql("ALTER TABLE wait_estimates ALTER COLUMN position DROP NOT NULL")


def downgrade() -> None:
    """What waits for others is told no start; the planner writes the other estimates anew."""
    connection = op.get_bind()
    connection.exec_driver_sql("DELETE FROM wait_estimates WHERE position IS NULL")
    connection.exec_driver_sql("ALTER TABLE wait_estimates ALTER COLUMN position SET NOT NULL")
