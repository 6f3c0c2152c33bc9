"""The views for people say which CPUs and how much memory a job asks for."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0062_asked_amounts"
down_revision = "0061_chain_slots"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """The views name GPUs alone again."""
    execute_script(op.get_bind(), _BEFORE)


_BEFORE = """
DO $$
DECLARE
    view_name text;
BEGIN
    FOREACH view_name IN ARRAY ARRAY['queue_status', 'reservation_history'] LOOP
        EXECUTE format('CREATE OR REPLACE VIEW %I AS %s', view_name, replace(pg_get_viewdef(view_name::regclass),
            'request_text(r.gpus, r.gpu_type, r.nodes, r.cpu_milli, r.memory_bytes)',
            'request_text(r.gpus, r.gpu_type, r.nodes)'));
    END LOOP;
END $$;
DROP FUNCTION request_text(integer, text, integer, bigint, bigint);
"""
