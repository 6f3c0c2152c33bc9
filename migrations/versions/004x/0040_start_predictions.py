"""Waiting jobs show when they will start, as learnt from how long jobs really run; the first such prediction stays."""

from alembic import op

revision = "0040_start_predictions"
down_revision = "0039_app_passes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Columns that may be null: no table is rewritten."""
    connection = op.get_bind()
    connection.exec_driver_sql(
        "ALTER TABLE wait_estimates ADD COLUMN estimated_start_p50 timestamptz,"
        " ADD COLUMN estimated_start_p90 timestamptz"
    )
    connection.exec_driver_sql(
        "ALTER TABLE start_promises ADD COLUMN first_p50 timestamptz, ADD COLUMN first_p90 timestamptz"
    )


def downgrade() -> None:
    """Nothing is predicted."""
    connection = op.get_bind()
    connection.exec_driver_sql("ALTER TABLE start_promises DROP COLUMN first_p90, DROP COLUMN first_p50")
    connection.exec_driver_sql(
        "ALTER TABLE wait_estimates DROP COLUMN estimated_start_p90, DROP COLUMN estimated_start_p50"
    )
