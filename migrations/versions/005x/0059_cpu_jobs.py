"""Jobs without GPUs have what nodes keep for them, and never more.

Runs beside the service: see `outside_transaction`. Every step may have been done before.
"""

from pathlib import Path

from alembic import op

from migrations.scripts import build_index, execute_outside, execute_script, lock_tables, locked_script, sql_of

revision = "0059_cpu_jobs"
down_revision = "0058_disk_uses"
branch_labels = None
depends_on = None

outside_transaction = True

_COLUMNS = """
ALTER TABLE allocations ADD COLUMN IF NOT EXISTS node_id bigint, ADD COLUMN IF NOT EXISTS cpu_slot integer;
"""


def upgrade() -> None:
    """Add the columns, build their indexes while the service goes on, and execute the SQL file beside this one."""
    connection = op.get_bind()
    execute_outside(connection, locked_script("allocations", _COLUMNS))
    build_index(
        connection,
        "allocations_cpu_hold",
        "allocations (node_id, cpu_slot) WHERE held AND node_id IS NOT NULL",
        unique=True,
    )
    build_index(
        connection, "allocations_cpu_open", "allocations (node_id) WHERE released_at IS NULL AND node_id IS NOT NULL"
    )
    # The script is one transaction: what it makes is there whole or not at all.
    if connection.exec_driver_sql("SELECT to_regprocedure('is_kept_somewhere(bigint, bigint)')").scalar_one() is None:
        script = Path(__file__).with_suffix(".sql").read_text(encoding="utf-8")
        # A pod that overruns counts a little less here than for the planner, whose now is a little earlier: see
        # `refuse_beyond_spare`.
        counting = _part("0048_shares", "CREATE FUNCTION refuse_beyond_shares", "-- Rows that ask")
        script += counting.replace("interval '60 seconds'", "interval '30 seconds'")
        execute_outside(connection, locked_script("nodes, reservations, allocations", script))


def _part(revision: str, begin: str, end: str) -> str:
    sql = sql_of(revision)
    part = sql[sql.index(begin) : sql.index(end, sql.index(begin))]
    return part.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")


def downgrade() -> None:
    """Every job asks for GPUs. Those that asked for none now wait for a GPU of type `cpu`, which no node has."""
    lock_tables(op.get_bind(), "nodes, reservations, allocations")
    counting = _part("0048_shares", "CREATE FUNCTION refuse_beyond_shares", "-- Rows that ask")
    of_placed = _part("0048_shares", "CREATE FUNCTION check_shares_of_placed", "CREATE TRIGGER")
    words = _part("0002_views", "CREATE FUNCTION request_text", "COMMENT ON")
    execute_script(op.get_bind(), _DROP + counting + of_placed + words)


_DROP = """
DROP FUNCTION is_kept_somewhere(bigint, bigint);
DROP TRIGGER nodes_spare_kept ON nodes;
DROP FUNCTION keep_spare_while_asked();
DROP FUNCTION has_asking_jobs(bigint);
DROP TRIGGER allocations_spare ON allocations;
DROP TRIGGER allocations_spare_moved ON allocations;
DROP FUNCTION check_spare();
DROP FUNCTION refuse_beyond_spare(bigint, tstzrange);
DROP TRIGGER allocations_shares_moved ON allocations;
CREATE TRIGGER allocations_shares_moved AFTER UPDATE OF during ON allocations FOR EACH ROW
    WHEN (NEW.released_at IS NULL AND NEW.reservation_id NOT LIKE 'mnt-%'
          AND (upper(NEW.during) > upper(OLD.during) OR lower(NEW.during) < lower(OLD.during)))
    EXECUTE FUNCTION check_shares_of_moved();
ALTER TABLE allocations DISABLE TRIGGER allocations_closed_stay;
DELETE FROM allocations WHERE node_id IS NOT NULL;
ALTER TABLE allocations ENABLE TRIGGER allocations_closed_stay;
ALTER TABLE allocations
    DROP COLUMN node_id,
    DROP COLUMN cpu_slot,
    ALTER COLUMN gpu_id SET NOT NULL;
ALTER TABLE reservations DROP CONSTRAINT reservations_cpu_jobs, DROP CONSTRAINT reservations_cpu_type,
    DROP CONSTRAINT reservations_gpus;
UPDATE reservations SET gpus = 1 WHERE gpus = 0;
ALTER TABLE reservations ADD CONSTRAINT reservations_gpus_check CHECK (gpus BETWEEN 1 AND 1024) NOT VALID;
UPDATE nodes SET cpu_milli = cpu_milli + coalesce(spare_cpu_milli, 0),
    memory_bytes = memory_bytes + coalesce(spare_memory_bytes, 0);
ALTER TABLE nodes DROP COLUMN spare_cpu_milli, DROP COLUMN spare_memory_bytes;
"""
