"""The audit log is chained by digests. What was recorded before is chained by whoever leads, in the background."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0029_audit_chain"
down_revision = "0028_user_names"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """The SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Partitions are dropped as before, and all digests go."""
    partitions = Path(__file__).with_name("0025_event_partitions.sql").read_text(encoding="utf-8")
    _, begin, before = partitions.partition("CREATE FUNCTION drop_event_partition(")
    execute_script(
        op.get_bind(),
        f"{begin.replace('CREATE', 'CREATE OR REPLACE')}{before}\n"
        "DROP TABLE event_chain, event_chain_state;\nDROP FUNCTION event_chain_stays();",
    )
