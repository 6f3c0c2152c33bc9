"""Reads on the primary, or on a replica that has caught up with the primary.

Before each read the primary is asked for its position, which is cheap, and the replica is waited for until it has
reached that position. So a read sees all earlier writes of any process. If the replica fails, the primary is read.
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
"""A replica that does not answer within this time counts as away, and the primary is read."""
_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.02
_CLOSE_S = 5.0
_log = structlog.get_logger(__name__)
T = TypeVar("T")


class PrimaryReadReason(StrEnum):
    """Why the primary was read instead of the replica."""

    NOT_IN_USE = "not_in_use"
    UNKNOWN = "unknown"
    BEHIND = "behind"
    FAILED = "failed"


@dataclass(slots=True)
class ReplicaUse:
    """The counts of reads, and the replica's state at the last check."""

    in_use: bool = False
    lag_s: float = 0.0
    used: int = 0
    passed_over: Counter[PrimaryReadReason] = field(default_factory=Counter)


class Reads(Protocol):
    """Runs read-only work on an up-to-date server."""

    async def __call__(self, work: Callable[[UnitOfWork], Awaitable[T]]) -> T:
        """Return the result of `work` in a transaction that sees all earlier commits.

        The work must write nothing and keep nothing of the transaction; it may be begun several times, but ends once.
        Raises what the work raises, and DatabaseUnavailableError.
        """


class PrimaryReads:
    """See Reads: on the primary alone."""

    def __init__(self, uow: UnitOfWorkFactory) -> None:
        self._uow = uow

    async def __call__(self, work: Callable[[UnitOfWork], Awaitable[T]]) -> T:
        async with self._uow() as uow:
            return await work(uow)


class _BehindError(Exception):
    """The replica did not catch up in time."""


class _UnknownError(Exception):
    """The primary's position is unknown."""


class _OtherError(Exception):
    """The server is not a replica of this primary."""


class ReplicaReads:
    """See Reads. `keep` must be running: until it has found the replica usable, the primary is read."""

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
        self._logged = False
        self.use = ReplicaUse()

    async def __call__(self, work: Callable[[UnitOfWork], Awaitable[T]]) -> T:
        """Read the replica, or the primary if that is impossible or fails."""
        why = PrimaryReadReason.NOT_IN_USE
        if self.use.in_use:
            asked_at = asyncio.get_running_loop().time()
            try:
                answer = await self._unless_gone(self._read_replica(work, await self._primary_position(), asked_at))
            except _UnknownError:
                # Perhaps a connection from before a failover: the next one may work.
                why = PrimaryReadReason.UNKNOWN
            except DomainError:
                # An error of the work itself, which the primary would raise, too.
                self.use.used += 1
                raise
            except _BehindError:
                why = PrimaryReadReason.BEHIND
            except TransactionLostError:
                # The replay of the primary's changes cancelled the read.
                why = PrimaryReadReason.FAILED
            except StatementRefusedError as error:
                # The replica answers, and other reads may succeed.
                why = PrimaryReadReason.FAILED
                _log.warning("replica_failed", error=str(error), exc_info=error)
            except (DatabaseUnavailableError, _OtherError) as error:
                why = PrimaryReadReason.FAILED
                self._stop_using(error)
            except Exception as error:  # noqa: BLE001 - an error of the work is raised on the primary again
                why = PrimaryReadReason.FAILED
                _log.warning("replica_failed", error=type(error).__name__, exc_info=error)
            else:
                self.use.used += 1
                return answer
        self.use.passed_over[why] += 1
        return await self._at_primary(work)

    async def keep(self, loop: Loop) -> None:
        """Check every second whether the replica is usable. `loop` is the loop of these checks."""
        await loop.repeat(self._check, rest_s=self._every_s)

    async def close(self) -> None:
        """Wait until abandoned reads have released their connections. Begin nothing afterwards."""
        if self._given_up:
            await asyncio.wait(self._given_up, timeout=_CLOSE_S)

    async def _check(self) -> None:
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        try:
            ahead = await self._primary_position()
        except _UnknownError:
            # Without the primary, reads fail before they use the replica.
            return
        except Exception as error:  # noqa: BLE001 - the primary can't tell its position
            self._stop_using(error)
            return
        self._lag.note_primary(ahead, asked_at)
        try:
            await self._within_limit(self._check_replica(ahead, asked_at))
        except _BehindError as error:
            self._stop_using(error)
        except Exception as error:  # noqa: BLE001 - after any error the primary is read
            self._stop_using(error)
            self._gone.set()
        else:
            if not self.use.in_use:
                self._gone.clear()
                self.use.in_use = True
                self._logged = False
                _log.info("replica_in_use")
        self.use.lag_s = self._lag.seconds(loop.time())

    async def _check_replica(self, ahead: ServerProgress, asked_at: float) -> None:
        async with self._replica(one_statement=True) as uow:
            await self._wait_until_caught_up(uow, ahead, asked_at)

    def _stop_using(self, error: Exception) -> None:
        self.use.in_use = False
        if not self._logged:
            self._logged = True
            _log.warning("replica_not_in_use", why=str(error) or type(error).__name__)

    async def _primary_position(self) -> ServerProgress:
        try:
            async with self._primary(one_statement=True) as uow:
                return await uow.progress()
        except DatabaseUnavailableError as error:
            raise _UnknownError("the primary does not answer") from error

    async def _read_replica(
        self, work: Callable[[UnitOfWork], Awaitable[T]], ahead: ServerProgress, asked_at: float
    ) -> T:
        async with self._replica() as uow:
            await self._wait_until_caught_up(uow, ahead, asked_at)
            return await work(uow)

    async def _wait_until_caught_up(self, uow: UnitOfWork, ahead: ServerProgress, asked_at: float) -> None:
        """Wait until the replica has reached the primary's position. Raises _BehindError, _OtherError."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wait_s
        pause = _FIRST_PAUSE_S
        while True:
            progress = await uow.progress()
            match standing(progress, ahead, timedelta(seconds=loop.time() - asked_at)):
                case ReplicaStanding.WHOLE:
                    self._lag.note_replica(ahead.position or 0)
                    return
                case ReplicaStanding.OTHER:
                    raise _OtherError("it follows nobody or another server, or its clock is off")
                case ReplicaStanding.BEHIND:
                    self._lag.note_replica(progress.position or 0)
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
        """Await a read, but abandon it when a check finds the replica away."""
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
        """Cancel an unfinished read, without waiting for its connection, which may take long."""
        if not trying.done():
            trying.cancel()
            self._given_up.add(trying)
            trying.add_done_callback(self._let_go)

    def _let_go(self, trying: "asyncio.Future[Any]") -> None:
        self._given_up.discard(trying)
        if not trying.cancelled():
            trying.exception()  # marks it as retrieved


def units_for_requests(uow: UnitOfWorkFactory, settings: ApiSettings) -> UnitOfWorkFactory:
    """Units of work with the settings' time limits for requests."""
    patience = timedelta(seconds=settings.database_patience_s)
    return uow.bounded(connection=patience, statement=patience)


def units_for_reads(uow: UnitOfWorkFactory, settings: ApiSettings) -> UnitOfWorkFactory:
    """Units of work with the settings' time limits for heavy reads."""
    return uow.bounded(
        connection=timedelta(seconds=settings.database_patience_s),
        statement=timedelta(seconds=settings.database_read_patience_s),
    )


@asynccontextmanager
async def open_reads(settings: ApiSettings, runtime: Runtime, *, application: str = "gpu-dev") -> AsyncIterator[Reads]:
    """The reads of the settings, during the block. Raises SettingsError for an invalid URL."""
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
