"""Pods of others that use bookings, what disabled users have left, and workloads that could not begin."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0011_admissions"
down_revision = "0010_time_given_back"
branch_labels = None
depends_on = None

_DROP = """
DROP TABLE admissions;
DROP INDEX users_unsettled;
ALTER TABLE users DROP COLUMN settled_at;
DELETE FROM notice_events WHERE event = 'workload_refused';
UPDATE reservations SET reason_code = 'in_slot' WHERE kind = 'booking' AND reason_code = 'workload_refused';
UPDATE maintenance_windows SET affected = (
    SELECT jsonb_agg(
        each || CAST(CASE each ->> 'fate' WHEN 'goes_on' THEN '{"fate": "ends_earlier"}'
                                          WHEN 'begins_later' THEN '{"fate": "moved"}' ELSE '{}' END AS jsonb)
        ORDER BY place)
    FROM jsonb_array_elements(affected) WITH ORDINALITY AS a (each, place))
WHERE affected @> '[{"fate": "goes_on"}]' OR affected @> '[{"fate": "begins_later"}]';
"""


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Drop the table and the column, and words that were not known; that bookings were used stays in their rows."""
    execute_script(op.get_bind(), _DROP)
