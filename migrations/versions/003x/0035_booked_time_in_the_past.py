"""Past rows of bookings are found by their GPUs, however many jobs those GPUs have run.

Runs beside the service: see `outside_transaction`.
"""

from alembic import op

from migrations.scripts import build_index

revision = "0035_booked_time_in_the_past"
down_revision = "0034_user_bookings_by_status"
branch_labels = None
depends_on = None

outside_transaction = True


def upgrade() -> None:
    """Build the index."""
    build_index(
        op.get_bind(),
        "allocations_booked_in_the_past",
        "allocations USING gist (gpu_id, during) WHERE released_at IS NOT NULL AND reservation_id LIKE 'bkg-%'",
    )


def downgrade() -> None:
    """They are found among all rows of their GPUs."""
    op.get_bind().exec_driver_sql("DROP INDEX allocations_booked_in_the_past")
