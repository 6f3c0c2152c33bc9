"""A rule may set the order of waiting jobs."""

from alembic import op

revision = "0041_queue_order"
down_revision = "0040_start_predictions"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The order is of everybody or of a project: all users and types stand in one queue."""
    op.get_bind().exec_driver_sql(
        """ALTER TABLE policies ADD COLUMN "order" text CHECK ("order" IN ('area', 'arrival')),"""
        """ ADD CONSTRAINT policies_order_scope CHECK ("order" IS NULL OR (user_name IS NULL AND gpu_type IS NULL))"""
    )


def downgrade() -> None:
    """No rule sets the order of waiting jobs."""
    op.get_bind().exec_driver_sql("""ALTER TABLE policies DROP COLUMN "order\"""")
