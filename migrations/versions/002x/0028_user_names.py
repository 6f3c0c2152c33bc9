"""Users' names may be e-mail addresses with a plus sign, and as long as those are."""

from alembic import op

revision = "0028_user_names"
down_revision = "0027_token_scopes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Wider checks: all that is there fits them."""
    for table, column in (("users", "name"), ("policies", "user_name")):
        constraint = f"{table}_{column}_check"
        op.execute(
            f"ALTER TABLE {table} DROP CONSTRAINT {constraint},"
            f" ADD CONSTRAINT {constraint} CHECK ({column} ~ '^[a-z0-9]([a-z0-9._@+-]{{0,252}}[a-z0-9])?$')"
        )


def downgrade() -> None:
    """The wider checks stay: rows that need them may be there, and could not be changed any more."""
