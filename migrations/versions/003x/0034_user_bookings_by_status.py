"""A user's bookings are found by their status and in their order, however many of other statuses the user has had.

Runs beside the service: see `outside_transaction`.
"""

from alembic import op

from migrations.scripts import build_index, drop_index

revision = "0034_user_bookings_by_status"
down_revision = "0033_calendar_addresses_end"
branch_labels = None
depends_on = None

outside_transaction = True


def upgrade() -> None:
    """Build the index, and drop the one whose place it takes."""
    build_index(op.get_bind(), "bookings_of_user_and_status", "bookings (user_id, status, starts_at, id)")
    drop_index(op.get_bind(), "bookings_of_user")


def downgrade() -> None:
    """They are found in their order, among all that the user has had."""
    connection = op.get_bind()
    connection.exec_driver_sql("CREATE INDEX bookings_of_user ON bookings (user_id, starts_at, id)")
    connection.exec_driver_sql("DROP INDEX bookings_of_user_and_status")
