"""Used proofs in PostgreSQL: digests, for as long as the proofs could be used again."""

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement


class PostgresUsedProofs:
    """See ports.people.proofs.UsedProofs."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def use(self, digest: bytes, forget_after: datetime, now: datetime) -> bool:
        """Note it (32 bytes); false when it is noted. Some that nobody could use any more are forgotten."""
        used = await self._connection.scalar(
            statement("use_proof"), {"digest": digest, "forget_after": forget_after, "now": now}
        )
        return bool(used)
