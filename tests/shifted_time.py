"""Another time for a whole system: everything that it reads the time from goes at its own pace, but by another date.

The database's clock (functions of the same names as PostgreSQL's own, before them in the search path of one database),
the components' clock and what pods say of themselves are moved by the same shift. A week is then as long as what
happens in it: whoever plays it lets the time between go by at once.
"""

from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import asyncpg

from reservation_core.domain.cards.node_reports import NodeReport
from reservation_core.domain.model import PodName, PodSpec, PodStatus, Reason
from reservation_core.ports.cluster import Cluster, PodListing, TrimmedLogs
from tests.database.database_clock import FUNCTIONS_TOO

_INSTALL = """
CREATE SCHEMA test_clock;
CREATE TABLE test_clock.shift (by interval NOT NULL);
INSERT INTO test_clock.shift VALUES ('0');
CREATE FUNCTION test_clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS 'SELECT pg_catalog.clock_timestamp() + by FROM test_clock.shift';
CREATE FUNCTION test_clock.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE
    AS 'SELECT pg_catalog.statement_timestamp() + by FROM test_clock.shift';
CREATE FUNCTION test_clock.now() RETURNS timestamptz LANGUAGE sql STABLE
    AS 'SELECT pg_catalog.now() + by FROM test_clock.shift';
"""


class ShiftedTime:
    """See ports.clock.Clock. Connections that are opened after `install` go by it."""

    def __init__(self, url: str) -> None:
        self._url = url.replace("postgresql+asyncpg://", "postgresql://")
        self.shift = timedelta(0)

    @classmethod
    async def install(cls, url: str, at: datetime) -> "ShiftedTime":
        """Let it be this time in a database."""
        time = cls(url)
        connection = await asyncpg.connect(time._url)
        try:
            await connection.execute(_INSTALL + FUNCTIONS_TOO)
            name = await connection.fetchval("SELECT current_database()")
            await connection.execute(f'ALTER DATABASE "{name}" SET search_path = test_clock, public, pg_catalog')
        finally:
            await connection.close()
        await time.go_to(at)
        return time

    def now(self) -> datetime:
        """The time."""
        return datetime.now(UTC) + self.shift

    async def go_to(self, at: datetime) -> None:
        """It becomes this time, unless it is later already."""
        by = at - self.now()
        if by <= timedelta(0):
            return
        connection = await asyncpg.connect(self._url)
        try:
            await connection.execute("UPDATE test_clock.shift SET by = by + $1", by)
        finally:
            await connection.close()
        self.shift += by

    async def step_database(self, by: timedelta) -> None:
        """Set the database's clock alone, forward or back, as an administrator would."""
        connection = await asyncpg.connect(self._url)
        try:
            await connection.execute("UPDATE test_clock.shift SET by = by + $1", by)
        finally:
            await connection.close()


class ShiftedCluster:
    """A cluster whose pods live in the shifted time: each begins by the shift at its creation, and ends by the shift at
    which it is first seen to have ended. See ports.cluster.Cluster.
    """

    def __init__(self, cluster: Cluster, time: ShiftedTime) -> None:
        self._cluster = cluster
        self._time = time
        self._shifts: dict[str, timedelta] = {}
        self._ended: dict[str, timedelta] = {}

    async def list_nodes(self) -> list[NodeReport]:
        """The same nodes."""
        return await self._cluster.list_nodes()

    async def list_pods(self, *, foreign: bool = False) -> PodListing:
        """The pods, in the shifted time."""
        listing = await self._cluster.list_pods(foreign=foreign)
        return replace(listing, pods=tuple(self._shifted(pod) for pod in listing.pods))

    async def find_pods(self, reservation_id: str, named: Collection[PodName] = ()) -> list[PodStatus]:
        """The pods, in the shifted time."""
        return [self._shifted(pod) for pod in await self._cluster.find_pods(reservation_id, named)]

    async def watch(self) -> AsyncIterator[PodStatus]:
        """The pods, in the shifted time."""
        async for pod in self._cluster.watch():
            yield self._shifted(pod)

    async def create_pod(self, spec: PodSpec, unanswered: Callable[[], None] | None = None) -> None:
        """Its deadline is in the real time."""
        shift = self._shifts.setdefault(str(spec.name), self._time.shift)
        await self._cluster.create_pod(replace(spec, deadline=spec.deadline - shift), unanswered)

    async def delete_pod(
        self, name: str, grace: timedelta, *, keep_name: bool = False, why: Reason | None = None
    ) -> None:
        """The same pod."""
        await self._cluster.delete_pod(name, grace, keep_name=keep_name, why=why)

    async def forget_pod(self, name: str) -> None:
        """The same pod."""
        await self._cluster.forget_pod(name)

    async def extend_deadline(self, name: str, deadline: datetime) -> None:
        """Its deadline is in the real time."""
        await self._cluster.extend_deadline(name, deadline - self._shifts.get(name, self._time.shift))

    async def signal_pod(self, name: str, signal: str) -> None:
        """The same pod."""
        await self._cluster.signal_pod(name, signal)

    def master_address(self, reservation_id: str, attempt: int) -> str:
        """The same address."""
        return self._cluster.master_address(reservation_id, attempt)

    @property
    def forgets_logs(self) -> bool:
        """As the cluster does."""
        return self._cluster.forgets_logs

    def pod_logs(self, name: str, *, follow: bool, tail_lines: int | None = None) -> AsyncIterator[bytes]:
        """The same output."""
        return self._cluster.pod_logs(name, follow=follow, tail_lines=tail_lines)

    async def trim_logs(self, *, written_before: datetime | None, most_bytes: int | None) -> TrimmedLogs:
        """Files have the real time."""
        before = None if written_before is None else written_before - self._time.shift
        return await self._cluster.trim_logs(written_before=before, most_bytes=most_bytes)

    async def close(self) -> None:
        """Let go of it."""
        await self._cluster.close()

    def _shifted(self, pod: PodStatus) -> PodStatus:
        shift = self._shifts.get(str(pod.name), self._time.shift)
        if pod.finished_at is not None:
            ended = self._ended.setdefault(str(pod.name), self._time.shift)
            pod = replace(pod, finished_at=pod.finished_at + ended)
        if pod.started_at is not None:
            pod = replace(pod, started_at=pod.started_at + shift)
        return pod if pod.created_at is None else replace(pod, created_at=pod.created_at + shift)
