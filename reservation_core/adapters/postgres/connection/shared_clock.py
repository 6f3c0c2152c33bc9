"""The ledger's time, as a process counts it between two questions to the database.

Components run on several machines whose clocks differ and are set now and then; what is due for one must be due for
all. So the time is asked of the database, and from then on only counted: a step of a machine's clock changes nothing.

The database's own clock may step, too. A process that was there before sees it at its next question and counts on; the
leader, or while nobody leads the first to see it, writes down how far the clock stepped, and the ledger's time goes on
evenly for all (see migration 0021).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_never

import structlog
from sqlalchemy import Row
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from reservation_core.adapters.boot_time import seconds_since_boot
from reservation_core.adapters.postgres.connection.driver_errors import map_to_unavailable
from reservation_core.adapters.postgres.connection.queries import statement
from reservation_core.domain.network.clock_steps import (
    HELD_AT_MOST,
    LONGEST_LEASE,
    LONGEST_QUESTION,
    STEP,
    StepVerdict,
    verdict,
)
from reservation_core.ports.clock import Clock

ASK_EVERY_S = 1.0
"""How often the database is asked what time it is."""
_QUESTIONS = 3
_CONFIRMED_WITHIN_S = 5.0
"""A lease runs out within 3 s, and a process that lives asks within a further one."""
_ASKED_AGAIN_AFTER_S = 0.25
_log = structlog.get_logger(__name__)


def counted_by(clock: "SharedClock | None") -> Callable[[], datetime | None]:
    """What statements are given as `:counted`: the time that a process has counted, or None if it counts none."""
    return _nothing if clock is None else clock.counted


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True)
class _Answer:
    """The time that the database told, when that was by the own count, and how long the question took in seconds.

    `record` tells one recorded step from the next. The leader's lease runs out at `lease_until`.
    """

    then: datetime
    at: float
    took: float
    record: str
    lease_until: datetime


class SharedClock:
    """See ports.clock.Clock. Keeps the ledger's time even when the database's clock steps.

    Until the database has answered once, it is the machine's own clock, read at the start.
    """

    def __init__(self, engine: AsyncEngine, machine: Clock, counted: Callable[[], float] = seconds_since_boot) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._counted = counted
        self._at = counted()
        self._then = machine.now()
        self._known = False
        self._record: str | None = None
        self._asking = asyncio.Lock()
        self._epoch: int | None = None
        self._agreed: _Answer | None = None
        self._pending: _Answer | None = None
        self._behind = False
        self._doubted = asyncio.Event()

    def now(self) -> datetime:
        """The current time, UTC."""
        return self._then + timedelta(seconds=self._counted() - self._at)

    def counted(self) -> datetime | None:
        """The current time; None while the database has not told any."""
        return self.now() if self._known else None

    def judged(self, at: datetime) -> datetime:
        """Return `at`, just read from the database; after a step of its clock the counted time, and ask again."""
        if not self._known or abs(at - self.now()) < STEP:
            return at
        self.doubt()
        return self.now()

    def doubt(self) -> None:
        """Ask the database at once: something was not as it should be at this time."""
        self._doubted.set()

    @asynccontextmanager
    async def leading(self, epoch: int) -> AsyncIterator[None]:
        """While the block runs, this process leads in `epoch` and makes up for steps of the database's clock.

        First it looks what time it is: nothing is decided by a time that the leader before has corrected.
        Raises DatabaseUnavailableError.
        """
        self._epoch = epoch
        try:
            await self.ask()
            yield
        finally:
            self._epoch = None

    async def begin(self) -> None:
        """Take over the ledger's time for the first time, if need be after a moment's wait for the leader.

        A leader makes up for a step within a second or so, another process when a dead leader's lease has run out.
        Raises DatabaseUnavailableError.
        """
        until = self._counted() + _CONFIRMED_WITHIN_S
        async with self._connected() as connection:
            while True:
                found = await connection.execute(
                    statement("ledger_time_is_confirmed"), {"longest_s": LONGEST_LEASE.total_seconds()}
                )
                if found.scalar_one() or self._counted() >= until:
                    break
                await asyncio.sleep(_ASKED_AGAIN_AFTER_S)
            self._take(await self._question(connection))

    async def adopt(self) -> None:
        """Go by the database's time from now on, whatever it is. Raises DatabaseUnavailableError."""
        async with self._connected() as connection:
            self._take(await self._question(connection))

    async def ask(self) -> None:
        """Ask the database what time it is, and do about it what is to be done.

        Raises DatabaseUnavailableError; the time goes on as it was then.
        """
        async with self._asking, self._connected() as connection:
            answer = await self._question(connection)
            if not self._known:
                self._take(answer)
                return
            off = answer.then + timedelta(seconds=self._counted() - answer.at) - self.now()
            recorded = answer.record != self._record
            if abs(off) < STEP:
                self._pending, self._agreed = None, answer
                if answer.took <= LONGEST_QUESTION.total_seconds():
                    self._record = answer.record
            elif self._pending is None or self._pending.record != answer.record:
                self._pending, self._behind = answer, self._stood_still(answer)
                _log.warning("the database's time differs from the counted time", by_s=round(off.total_seconds(), 1))
            pending = timedelta(seconds=0 if self._pending is None else answer.at - self._pending.at)
            took = timedelta(seconds=answer.took)
            epoch = self._epoch
            match verdict(off, took, pending, leads=epoch is not None, recorded=recorded, behind=self._behind):
                case StepVerdict.IGNORE | StepVerdict.COUNT_ON:
                    return
                case StepVerdict.ADOPT:
                    self._take(answer)
                case StepVerdict.MAKE_UP:
                    await self._make_up(connection, epoch, off, answer.record)
                case unknown:
                    assert_never(unknown)

    async def ask_next(self) -> None:
        """Ask when a second has gone by, or when the time is in doubt. Raises what `ask` raises."""
        with suppress(TimeoutError):
            async with asyncio.timeout(ASK_EVERY_S):
                await self._doubted.wait()
        self._doubted.clear()
        await self.ask()

    async def hold_unseen(self, connection: AsyncConnection, epoch: int, off: timedelta, record: str) -> None:
        """Correct a step that happened while no process ran, in the transaction of `connection`.

        `off` is by how much the clock stepped at least, `record` what its time went by. The next answer of the
        database is adopted, however long it takes; one of before the commit is found out by the record.
        """
        await self._hold(connection, epoch, off, record)
        self._known = False
        self.doubt()

    async def _make_up(self, connection: AsyncConnection, epoch: int | None, off: timedelta, record: str) -> None:
        held = await self._hold(connection, epoch, off, record)
        if held is None:
            return  # another process leads, or has recorded this step
        self._pending = None
        if held.held:
            self._record = held.record
        else:
            self._take(await self._question(connection))

    def _stood_still(self, answer: _Answer) -> bool:
        """Whether the leader's lease was moved on by more than this process counted since it agreed with the database.

        Then this process's machine stood still meanwhile: the lease is moved on by another's count.
        """
        before = self._agreed
        if before is None:
            return True
        return answer.lease_until - before.lease_until > timedelta(seconds=answer.at - before.at) + STEP

    async def _hold(
        self, connection: AsyncConnection, epoch: int | None, off: timedelta, record: str
    ) -> Row[Any] | None:
        """Whether the ledger's time goes on as before, and what it goes by; None if nothing was done about it."""
        parameters = {
            "epoch": epoch,
            "counted": self.now(),
            "by_s": off.total_seconds(),
            "most_s": HELD_AT_MOST.total_seconds(),
            "record": record,
        }
        found = (await connection.execute(statement("hold_ledger_time"), parameters)).one_or_none()
        if found is not None:
            _log.warning("the database's clock has stepped", by_s=round(off.total_seconds(), 1), held=found.held)
        return found

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[AsyncConnection]:
        with map_to_unavailable() as reached:
            async with self._engine.connect() as connection:
                reached.connected = True
                yield connection

    async def _question(self, connection: AsyncConnection) -> _Answer:
        """Of several answers the one that came soonest; of later ones, one is enough."""
        answers = []
        for _ in range(1 if self._known else _QUESTIONS):
            before = self._counted()
            told = (await connection.execute(statement("ledger_time"))).one()
            took = self._counted() - before
            answers.append(_Answer(told.at.astimezone(UTC), before + took / 2, took, told.record, told.lease_until))
        return min(answers, key=lambda answer: answer.took)

    def _take(self, answer: _Answer) -> None:
        off = answer.then + timedelta(seconds=self._counted() - answer.at) - self.now()
        if abs(off) >= STEP:
            _log.warning("the database's time is another; it counts", off_s=round(off.total_seconds(), 1))
        self._at, self._then, self._known, self._record = answer.at, answer.then, True, answer.record
        self._pending, self._agreed = None, answer
