"""Used proofs in PostgreSQL: digests, for as long as the proofs could be used again."""

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement


class UsedProofs:
    """Proofs that were used and could be used again, were they not remembered."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def use(self, digest: bytes, forget_after: datetime, now: datetime) -> bool:
        """Note a proof's digest (32 bytes); False when it was used before.

        A second caller waits for the first one's transaction. Some that nobody could use any more are forgotten.
        """
        used = await self._connection.scalar(
            statement("use_proof"), {"digest": digest, "forget_after": forget_after, "now": now}
        )
        return bool(used)
