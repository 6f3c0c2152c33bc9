"""Tokens have budgets of GPU time, which hold for all that are made with them."""

from pathlib import Path

from alembic import op

from migrations.scripts import execute_script

revision = "0030_token_budgets"
down_revision = "0029_audit_chain"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Execute the SQL file beside this one."""
    execute_script(op.get_bind(), Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    """Tokens with a budget are revoked: nothing would hold them to it any more."""
    execute_script(op.get_bind(), _BEFORE)


_BEFORE = """
UPDATE tokens SET revoked_at = coalesce(revoked_at, clock_timestamp()) WHERE budget_id IS NOT NULL;
DROP TRIGGER reservations_give_back_to_budgets ON reservations;
DROP FUNCTION give_back_to_budgets();
DROP TRIGGER tokens_inherit_budget ON tokens;
DROP FUNCTION token_is_on_its_makers_budget();
DROP VIEW token_budgets_now;
DROP TABLE token_refunds, token_charges, token_budgets;
ALTER TABLE tokens DROP COLUMN budget_id;
"""
