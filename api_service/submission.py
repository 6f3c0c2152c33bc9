"""Submissions that share a commit.

A commit costs the same for one job as for a hundred, so requests that come while one commit is under way wait for the
next and share it. One task writes; every request is answered only after its own commit. Compared with one transaction
a request, sharing was measured to be nearly twice as fast at 32 connections, and the wait is one commit at most.

A batch is half of the active clients' requests: with all of them, the clients would wait for the database, then the
database for the clients. So one half is written while the other half is answered and submits again.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from api_service.problems import ProblemError
from reservation_core.ports.jobs.reservations import NewReservation, Submitted
from reservation_core.ports.transactions import DatabaseUnavailableError

_MAX_WAITING = 10_000
_WORTH_A_COMMIT = 8
_LONG_S = 1.0
"""Many times the time of a commit: a request that has waited this long fails with the batch before it."""
_log = structlog.get_logger(__name__)

Store = Callable[[Sequence[NewReservation]], Awaitable[list[Submitted]]]


@dataclass(slots=True, eq=False)
class _Pending:
    new: NewReservation
    answer: "asyncio.Future[Submitted]"
    since: float


class SubmissionWriter:
    """Collects submissions and stores them in batches of at most `limit`, by `store` (one transaction a call)."""

    def __init__(self, store: Store, limit: int) -> None:
        self._store = store
        self._limit = limit
        self._waiting: deque[_Pending] = deque()
        self._arrived = asyncio.Event()
        self._closing = False
        self._last = 0  # the size of the batch before

    async def submit(self, new: NewReservation) -> Submitted:
        """Store one submission; returns after its commit.

        A submission is stored even if its caller leaves. Raises ProblemError (503) while the process stops or too many
        submissions wait, and whatever storing it raised.
        """
        if self._closing or len(self._waiting) >= _MAX_WAITING:
            detail = "The server can't take jobs at this moment. Send the request again in a few seconds."
            raise ProblemError(503, "unavailable", detail, headers={"Retry-After": "2"})
        loop = asyncio.get_running_loop()
        pending = _Pending(new, loop.create_future(), loop.time())
        self._waiting.append(pending)
        self._arrived.set()
        return await pending.answer

    async def run(self) -> None:
        """Write batches until `close`, and then all submissions from before it."""
        while True:
            if not self._waiting:
                if self._closing:
                    return
                self._arrived.clear()
                await self._arrived.wait()
                # Requests that the same turn of the loop brought in are taken along.
                await asyncio.sleep(0)
                continue
            batch = self._take()
            try:
                await self._write(batch)
            except Exception as error:
                for pending in batch:  # their callers would wait for ever
                    _fail(pending, error)
                raise

    def close(self) -> None:
        """Accept no more submissions; `run` returns once the waiting ones are written."""
        self._closing = True
        self._arrived.set()

    def _take(self) -> list[_Pending]:
        """Take the next batch, oldest first; never two with one user and key: the second repeats the first's answer."""
        batch: list[_Pending] = []
        keys: set[tuple[int, str]] = set()
        later: list[_Pending] = []
        active = len(self._waiting) + self._last
        limit = min(self._limit, max(_WORTH_A_COMMIT, (active + 1) // 2))
        while self._waiting and len(batch) < limit:
            pending = self._waiting.popleft()
            key = pending.new.idempotency_key
            if key is not None:
                owned = (pending.new.reservation.user_id, key)
                if owned in keys:
                    later.append(pending)
                    continue
                keys.add(owned)
            batch.append(pending)
        self._waiting.extendleft(reversed(later))
        self._last = len(batch)
        return batch

    async def _write(self, batch: Sequence[_Pending]) -> None:
        try:
            answers = await self._store([pending.new for pending in batch])
        except DatabaseUnavailableError as error:
            # Trying each by itself would only wait longer for the same answer.
            for pending in batch:
                _fail(pending, error)
            self._fail_long_waiting(error)
        except Exception as error:  # noqa: BLE001 - every failure is handed to the callers that wait
            if len(batch) == 1:
                _fail(batch[0], error)
                return
            _log.warning("submit_batch_failed", size=len(batch), error=type(error).__name__)
            # One bad row must not fail the others. Ids stay the same, so nothing can be stored twice.
            for pending in batch:
                await self._write([pending])
        else:
            for pending, answer in zip(batch, answers, strict=True):
                if not pending.answer.done():
                    pending.answer.set_result(answer)

    def _fail_long_waiting(self, error: DatabaseUnavailableError) -> None:
        """Fail requests that have waited for this batch already: another wait would be too long."""
        now = asyncio.get_running_loop().time()
        while self._waiting and now - self._waiting[0].since > _LONG_S:
            _fail(self._waiting.popleft(), error)


def _fail(pending: _Pending, error: Exception) -> None:
    if not pending.answer.done():
        pending.answer.set_exception(error)
