"""Where work that only reads is done: at the primary, or at a replica that shows all that the primary has.

Before each such work the primary is asked how far it is, which costs it next to nothing, and the replica is waited for
until it is as far. Nothing that was answered before is missed then, by whichever process: who has just written reads
what they wrote. Whatever is wrong with the replica, the primary does the work.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Protocol, TypeVar, assert_never

import structlog

from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.queues import open_client
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.unit_of_work import UnitOfWork, UnitOfWorkFactory
from reservation_core.domain.errors import DomainError
from reservation_core.domain.network.replica_lag import ReplicaStanding, ReplicationLag, ServerProgress, standing
from reservation_core.ports.transactions import DatabaseUnavailableError, StatementRefusedError, TransactionLostError
from reservation_core.runtime.database_urls import readable_url
from reservation_core.runtime.loops.loops import Loop
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.sealing_keys import sealing_of
from reservation_core.runtime.settings.components import ApiSettings
from reservation_core.runtime.wiring import Runtime

LOOK_EVERY_S = 1.0
LOOK_LIMIT_S = 2.0
"""A replica that does not answer for so long is away, and what it was to do is done by the primary."""
_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.02
_CLOSE_S = 5.0
_log = structlog.get_logger(__name__)
T = TypeVar("T")


class PassedOver(StrEnum):
    """Why the primary did what the replica could have done."""

    NOT_IN_USE = "not_in_use"
    UNKNOWN = "unknown"
    BEHIND = "behind"
    FAILED = "failed"


@dataclass(slots=True)
class ReplicaUse:
    """What became of reads so far, and how the replica is: `in_use` and `lag_s` as of the last look."""

    in_use: bool = False
    lag_s: float = 0.0
    used: int = 0
    passed_over: Counter[PassedOver] = field(default_factory=Counter)


class Reads(Protocol):
    """Does work that only reads, wherever that is as good as at the primary."""

    async def __call__(self, work: Callable[[UnitOfWork], Awaitable[T]]) -> T:
        """Do it in a transaction that sees all that was committed before this call, and answer what it answers.

        The work must write nothing and keep nothing of the transaction; it may be begun several times, and only the
        last of these ends. Raises what the work raises, and DatabaseUnavailableError.
        """


class PrimaryReads:
    """See Reads: there is nothing but the primary."""

    def __init__(self, uow: UnitOfWorkFactory) -> None:
        self._uow = uow

    async def __call__(self, work: Callable[[UnitOfWork], Awaitable[T]]) -> T:
        """Do it there."""
        async with self._uow() as uow:
            return await work(uow)


class _BehindError(Exception):
    """The replica did not come as far in time."""


class _UnknownError(Exception):
    """Nobody can say how far the replica has to be."""


class _OtherError(Exception):
    """It is no replica of this primary."""


class ReplicaReads:
    """See Reads. `keep` must be running: until it has seen the replica, the primary does it all."""

    def __init__(
        self, primary: UnitOfWorkFactory, replica: UnitOfWorkFactory, wait: timedelta, *, every_s: float = LOOK_EVERY_S
    ) -> None:
        self._primary = primary
        self._replica = replica
        self._at_primary = PrimaryReads(primary)
        self._wait_s = wait.total_seconds()
        self._every_s = every_s
        self._lag = ReplicationLag()
        self._gone = asyncio.Event()
        self._given_up: set[asyncio.Future[Any]] = set()
        self._told = False
        self.use = ReplicaUse()

    async def __call__(self, work: Callable[[UnitOfWork], Awaitable[T]]) -> T:
        """Do it at the replica; where that can't be or fails, at the primary."""
        why = PassedOver.NOT_IN_USE
        if self.use.in_use:
            asked = asyncio.get_running_loop().time()
            try:
                answer = await self._unless_gone(self._at_replica(work, await self._ahead(), asked))
            except _UnknownError:
                # A connection of before a failover, say: the next one may do.
                why = PassedOver.UNKNOWN
            except DomainError:
                # What the work says of what it has read is as good from here.
                self.use.used += 1
                raise
            except _BehindError:
                why = PassedOver.BEHIND
            except TransactionLostError:
                # It went on replaying, which what was read here stood in the way of.
                why = PassedOver.FAILED
            except StatementRefusedError as error:
                # It is there, and others' reads may go well.
                why = PassedOver.FAILED
                _log.warning("replica_failed", error=str(error), exc_info=error)
            except (DatabaseUnavailableError, _OtherError) as error:
                why = PassedOver.FAILED
                self._leave(error)
            except Exception as error:  # noqa: BLE001 - whatever it is: if it is the work's fault, the primary says so
                why = PassedOver.FAILED
                _log.warning("replica_failed", error=type(error).__name__, exc_info=error)
            else:
                self.use.used += 1
                return answer
        self.use.passed_over[why] += 1
        return await self._at_primary(work)

    async def keep(self, loop: Loop) -> None:
        """Look whether the replica can be used, once a second, for ever. `loop` is this look's."""
        await loop.repeat(self._look, rest_s=self._every_s)

    async def close(self) -> None:
        """Wait until what was given up has let go of its connections. Begin nothing afterwards."""
        if self._given_up:
            await asyncio.wait(self._given_up, timeout=_CLOSE_S)

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        asked = loop.time()
        try:
            ahead = await self._ahead()
        except _UnknownError:
            # Nothing is known then, and no work gets as far as to use it.
            return
        except Exception as error:  # noqa: BLE001 - a primary that can't say how far it is
            self._leave(error)
            return
        self._lag.primary_seen(ahead, asked)
        try:
            await self._within_limit(self._catches_up(ahead, asked))
        except _BehindError as error:
            self._leave(error)
        except Exception as error:  # noqa: BLE001 - whatever it is: the primary does the work until it is over
            self._leave(error)
            self._gone.set()
        else:
            if not self.use.in_use:
                self._gone.clear()
                self.use.in_use = True
                self._told = False
                _log.info("replica_in_use")
        self.use.lag_s = self._lag.seconds(loop.time())

    async def _catches_up(self, ahead: ServerProgress, asked: float) -> None:
        async with self._replica(one_statement=True) as uow:
            await self._comes_as_far(uow, ahead, asked)

    def _leave(self, error: Exception) -> None:
        self.use.in_use = False
        if not self._told:
            self._told = True
            _log.warning("replica_not_in_use", why=str(error) or type(error).__name__)

    async def _ahead(self) -> ServerProgress:
        try:
            async with self._primary(one_statement=True) as uow:
                return await uow.progress()
        except DatabaseUnavailableError as error:
            raise _UnknownError("the primary does not answer") from error

    async def _at_replica(self, work: Callable[[UnitOfWork], Awaitable[T]], ahead: ServerProgress, asked: float) -> T:
        async with self._replica() as uow:
            await self._comes_as_far(uow, ahead, asked)
            return await work(uow)

    async def _comes_as_far(self, uow: UnitOfWork, ahead: ServerProgress, asked: float) -> None:
        """Wait until the replica is as far as the primary was. Raises _BehindError, _OtherError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wait_s
        pause = _FIRST_PAUSE_S
        while True:
            found = await uow.progress()
            match standing(found, ahead, timedelta(seconds=loop.time() - asked)):
                case ReplicaStanding.WHOLE:
                    self._lag.replica_seen(ahead.position or 0)
                    return
                case ReplicaStanding.OTHER:
                    raise _OtherError("it follows nobody or another server, or its clock is off")
                case ReplicaStanding.BEHIND:
                    self._lag.replica_seen(found.position or 0)
                case _ as never:
                    assert_never(never)
            if loop.time() + pause > deadline:
                raise _BehindError(f"it is behind, and did not catch up within {self._wait_s:g} s")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _within_limit(self, attempt: Awaitable[None]) -> None:
        trying = asyncio.ensure_future(attempt)
        try:
            await asyncio.wait((trying,), timeout=LOOK_LIMIT_S)
            if not trying.done():
                raise DatabaseUnavailableError(f"it did not answer within {LOOK_LIMIT_S:g} s")
            trying.result()
        finally:
            self._give_up(trying)

    async def _unless_gone(self, attempt: Awaitable[T]) -> T:
        """Await it, unless a look finds the replica away meanwhile: what waits for an answer from there is given up."""
        trying = asyncio.ensure_future(attempt)
        gone = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait((trying, gone), return_when=asyncio.FIRST_COMPLETED)
            if not trying.done():
                raise DatabaseUnavailableError("the replica does not answer any more")
            return trying.result()
        finally:
            gone.cancel()
            self._give_up(trying)

    def _give_up(self, trying: "asyncio.Future[Any]") -> None:
        """End it if it has not ended. Its connection may take long to give way, and nobody has to wait for that."""
        if not trying.done():
            trying.cancel()
            self._given_up.add(trying)
            trying.add_done_callback(self._let_go)

    def _let_go(self, trying: "asyncio.Future[Any]") -> None:
        self._given_up.discard(trying)
        if not trying.cancelled():
            trying.exception()  # nobody asks for it any more


def units_for_requests(uow: UnitOfWorkFactory, settings: ApiSettings) -> UnitOfWorkFactory:
    """Units of work for which a request waits no longer than the settings say."""
    patience = timedelta(seconds=settings.database_patience_s)
    return uow.bounded(connection=patience, statement=patience)


def units_for_reads(uow: UnitOfWorkFactory, settings: ApiSettings) -> UnitOfWorkFactory:
    """The same for what reads much: its statements may take longer."""
    return uow.bounded(
        connection=timedelta(seconds=settings.database_patience_s),
        statement=timedelta(seconds=settings.database_read_patience_s),
    )


@asynccontextmanager
async def open_reads(settings: ApiSettings, runtime: Runtime, *, application: str = "gpu-dev") -> AsyncIterator[Reads]:
    """What the settings say, while the block runs. Raises SettingsError for a URL that can't be read."""
    if settings.database_replica_url is None:
        yield PrimaryReads(units_for_reads(runtime.uow, settings))
        return
    url = readable_url("GPU_DEV_DATABASE_REPLICA_URL", settings.database_replica_url, settings.database_password)
    engine = open_engine(url, pool=settings.database_pool, application=f"{application}-reads", read_only=True)
    try:
        replica = UnitOfWorkFactory(
            engine, await open_client(engine), PostgresWakeups(url, application), sealing=sealing_of(settings)
        )
        wait = timedelta(seconds=settings.database_replica_wait_s)
        reads = ReplicaReads(units_for_reads(runtime.uow, settings), units_for_reads(replica, settings), wait)
        async with beside(reads.keep(runtime.loops["replica"]), name="replica"):
            yield reads
        await reads.close()
    finally:
        await engine.dispose()
