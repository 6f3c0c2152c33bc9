"""Samples of GPUs are in TimescaleDB where the server has it, else in partitions as before."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script, lock_tables, sql_of

revision = "0064_gpu_use_in_timescaledb"
down_revision = "0063_predicted_dependants"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one. Rows that are there stay where they are."""
    lock_tables(op.get_bind(), "gpu_samples, gpu_minutes")
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """All samples move to partitions. The extension stays: others may use it."""
    execute_script(op.get_bind(), "SELECT store_gpu_use_in('partitions')")
    before = sql_of("0044_gpu_use")
    for begin, end in (
        ("VIEW gpu_use_partitions", ";\n"),
        ("FUNCTION make_gpu_use_partitions()", "END $$;\n"),
        ("FUNCTION drop_gpu_use_partition()", "END $$;\n"),
    ):
        _, _, rest = before.partition(f"\nCREATE {begin}")
        execute_script(op.get_bind(), f"CREATE OR REPLACE {begin}{rest[: rest.index(end)]}{end}")
    execute_script(op.get_bind(), _SEARCH_PATHS)
    execute_script(
        op.get_bind(),
        "DROP FUNCTION store_gpu_use_in(text), make_gpu_use_partition(text, text, timestamptz), gpu_use_chunks()",
    )


_SEARCH_PATHS = """
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION make_gpu_use_partitions() SET search_path = %I, pg_temp', current_schema());
    EXECUTE format('ALTER FUNCTION drop_gpu_use_partition() SET search_path = %I, pg_temp', current_schema());
END $$;
"""
