"""All that predictions of starts have learnt from waits stays, for the next planner and for dry runs."""

from alembic import op

revision = "0042_learnt_waits"
down_revision = "0041_queue_order"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """One row: which quantiles are used, and the newest ratios of waits, as logarithms, by how long was predicted."""
    op.get_bind().exec_driver_sql(
        "CREATE TABLE learnt_waits (id smallint PRIMARY KEY DEFAULT 1 CHECK (id = 1),"
        " p50_quantile float8 NOT NULL, p90_quantile float8 NOT NULL, below_minute float8[] NOT NULL,"
        " below_hour float8[] NOT NULL, longer float8[] NOT NULL)"
    )


def downgrade() -> None:
    """Nothing of it is stored."""
    op.get_bind().exec_driver_sql("DROP TABLE learnt_waits")
