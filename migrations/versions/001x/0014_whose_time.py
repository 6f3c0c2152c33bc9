"""Store whose time was given back, so that the ledger need not be asked."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0014_whose_time"
down_revision = "0013_pod_endings"
branch_labels = None
depends_on = None

_AS_BEFORE = """
CREATE OR REPLACE FUNCTION note_given_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO given_back (allocation_id) VALUES (NEW.id);
    RETURN NULL;
END $$;
ALTER TABLE given_back DROP COLUMN user_id, DROP COLUMN project;
"""


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Drop the columns; the ledger knows whose time it was."""
    execute_script(op.get_bind(), _AS_BEFORE)
