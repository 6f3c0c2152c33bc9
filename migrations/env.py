"""Alembic's entry: runs the revisions on the connection that `reservation_core.adapters.postgres.connection.migrating`
hands over.

Revisions that are run together are one transaction: they happen whole or not at all. On a connection in autocommit mode
there is none, and the revision's steps are repeated when they broke off.
"""

from alembic import context
from alembic.util import CommandError

connection = context.config.attributes.get("connection")
if connection is None or context.is_offline_mode():
    raise CommandError(
        "Migrations need a connection of the program's own. Run `python -m reservation_core.runtime.database migrate`."
    )
context.configure(connection=connection, transaction_per_migration=False)
with context.begin_transaction():
    context.run_migrations()
