"""Digests of used proofs in PostgreSQL, kept until the proofs expire."""

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement


class UsedProofs:
    """Used proofs that have not expired."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def use(self, digest: bytes, forget_after: datetime, now: datetime) -> bool:
        """Store a proof's digest (32 bytes), and delete some expired ones; False when the proof was used before.

        A second caller waits for the first one's transaction.
        """
        used = await self._connection.scalar(
            statement("use_proof"), {"digest": digest, "forget_after": forget_after, "now": now}
        )
        return bool(used)
