"""Answers kept for Idempotency-Keys, in PostgreSQL: a repeated request waits for the first, and gets its answer."""

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.adapters.postgres.sealing import PLAIN, Sealing, UnreadableError
from reservation_core.adapters.postgres.statement_runner import StatementRunner
from reservation_core.domain.errors import IdempotencyConflictError
from reservation_core.ports.history.idempotency import StoredAnswer

# An old key can expire between the two statements.
_ATTEMPTS = 3


class Idempotency(StatementRunner):
    """Answers kept for a day, so that a repeated POST is carried out once."""

    def __init__(self, connection: AsyncConnection, sealing: Sealing = PLAIN) -> None:
        super().__init__(connection)
        self._sealing = sealing

    async def claim(self, user_id: int, key: str, request_hash: bytes, now: datetime) -> StoredAnswer | None:
        """Claim a free key (None: carry the request out, then `store`), or return its answer.

        `request_hash` is a SHA-256. A second caller waits for the first one's transaction. Raises
        IdempotencyConflictError when the key belongs to another request, or its answer was not kept.
        """
        for _ in range(_ATTEMPTS):
            claimed = await self._connection.scalar(
                statement("claim_key"), {"user_id": user_id, "key": key, "request_hash": request_hash, "now": now}
            )
            if claimed:
                return None
            if (stored := await self.answer(user_id, key, request_hash)) is not None:
                return stored
        raise IdempotencyConflictError("This Idempotency-Key is being deleted. Send the request with a new key.")

    async def answer(self, user_id: int, key: str, request_hash: bytes) -> StoredAnswer | None:
        """A key's answer; None for a key that is free. Raises IdempotencyConflictError as `claim` does."""
        row = (await self._run("answer_of_key", user_id=user_id, key=key)).one_or_none()
        if row is None:
            return None
        if bytes(row.request_hash) != request_hash:
            raise IdempotencyConflictError(
                "This Idempotency-Key was used before with another request. Send a new key with a new request."
            )
        if row.status is None:
            raise IdempotencyConflictError(
                "This Idempotency-Key was used before and its answer was not kept. Check whether the request was"
                " carried out; if not, send it again with a new key."
            )
        return StoredAnswer(bytes(row.request_hash), row.status, self._open(bytes(row.answer), user_id))

    async def store(self, user_id: int, key: str, status: int, body: bytes) -> None:
        """Keep the answer of a key, in the transaction that claimed it and carried the request out.

        Raises LookupError when the key was not claimed.
        """
        # Sealed, as an answer may repeat secrets.
        sealed = self._sealing.seal(body.decode(), _whose(user_id)).encode()
        result = await self._run("store_answer", user_id=user_id, key=key, status=status, answer=sealed)
        if result.rowcount != 1:
            raise LookupError("An answer was to be kept for an Idempotency-Key that nobody claimed; claim it first.")

    def _open(self, answer: bytes, user_id: int) -> bytes:
        try:
            return self._sealing.open(answer.decode(), _whose(user_id)).encode()
        except UnreadableError as problem:
            raise IdempotencyConflictError(
                f"This Idempotency-Key was used before, and its answer can't be read here: {problem}. Check whether the"
                " request was carried out; if not, send it again with a new key."
            ) from problem


def _whose(user_id: int) -> str:
    return f"answer to user {user_id}"
