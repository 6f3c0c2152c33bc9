"""Reads at a streaming replica: the chart's servers, for real, and what REST says while one lags, goes or leads."""

import asyncio
import re
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
from structlog.testing import capture_logs

from reservation_core.adapters.postgres.unit_of_work import UnitOfWork
from reservation_core.domain.statuses import Role
from reservation_core.runtime.reading import reading
from reservation_core.runtime.reading.reading import (
    PrimaryReadReason,
    _OtherError,
)
from tests.chart.dev_server.database_pods import database_pods, sqlalchemy_url
from tests.database.sql import sql
from tests.integration.api_service.bookings.calendars import add_nodes, at, booked
from tests.integration.api_service.callers import submitted
from tests.integration.api_service.database.served_replica import (
    ALONE,
    BRIEF_S,
    Pair,
    begun_there,
    bring_up,
    got_there,
    processes_of,
    served,
    server_of,
    superuser,
    time_there,
)
from tests.waiting import eventually

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def patient_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy is no replica that is away."""
    monkeypatch.setattr(reading, "LOOK_LIMIT_S", 60.0)


@pytest.fixture(scope="module")
def pair(quick_folder: Path) -> Iterator[Pair]:
    """One for all tests that leave it as it was."""
    with database_pods(quick_folder / "replica-of-reads") as make:
        yield asyncio.run(bring_up(make))


ROUTES: dict[str, str] = {
    "/v1/jobs": "reservations",
    "/v1/gpus": "gpus",
    "/v1/nodes": "nodes",
    "/v1/queue": "reservations",
    "/v1/bookings/slots?gpus=1&duration=PT1H": "gpus",
    "/v1/availability": "gpus",
    "/v1/bookings": "bookings",
    "/v1/usage": "allocations",
    "/metrics": "pgmq.metrics_all",
}
"""A read at the replica, and a word that only its statements have."""


async def test_lists_and_heavy_reads_are_done_at_the_replica_and_nothing_else_is(pair: Pair, tmp_path: Path) -> None:
    async with served(pair, tmp_path) as api:
        await add_nodes(api.runtime, a=("h100", 2))
        await submitted(api.client)
        await booked(api.client)
        feed = (await api.client.post("/v1/bookings/feed")).json()["path"]
        await api.in_use()
        for path, words in {**ROUTES, feed: "calendar_feeds"}.items():
            logged = len(pair.replica.log)
            assert (await got_there(api, path)).status_code == 200, path
            assert words in pair.replica.log[logged:], path
        used = api.use.used
        job = (await submitted(api.client))["id"]
        for path in (f"/v1/jobs/{job}", "/v1/users/me", "/v1/tokens", "/readyz"):
            assert (await api.client.get(path)).status_code == 200
        assert api.use.used == used


async def test_who_has_written_reads_what_they_wrote(pair: Pair, tmp_path: Path) -> None:
    """By another process as well, and always: most of it at the replica."""
    async with served(pair, tmp_path / "a") as one, served(pair, tmp_path / "b") as two:
        await one.in_use()
        await two.in_use()
        two.client.headers["Authorization"] = one.client.headers["Authorization"]
        for _ in range(40):
            job = await submitted(one.client)
            for api in (one, two):
                [newest] = (await api.client.get("/v1/jobs?limit=1")).json()["items"]
                assert newest["id"] == job["id"]
        assert one.use.used + two.use.used > 0


async def test_one_that_lags_is_passed_over_told_of_once_and_comes_back(pair: Pair, tmp_path: Path) -> None:
    async with superuser(pair.replica) as replica, served(pair, tmp_path, BRIEF_S) as api:
        await api.in_use()
        with capture_logs() as logs:
            await replica.execute("SELECT pg_wal_replay_pause()")
            try:
                for _ in range(5):
                    job = await submitted(api.client)
                    [newest] = (await api.client.get("/v1/jobs?limit=1")).json()["items"]
                    assert newest["id"] == job["id"]
                await eventually(lambda: not api.use.in_use)
                lag = await eventually(lambda: api.use.lag_s)
                await eventually(lambda: api.use.lag_s > lag)
                text = (await api.client.get("/metrics")).text
                assert "gpu_dev_replica_in_use 0.0" in text
                assert float(re.findall(r"^gpu_dev_replica_lag_seconds (\S+)$", text, re.MULTILINE)[0]) > 0
                assert 'gpu_dev_replica_passed_over_total{why="not_in_use"}' in text
            finally:
                await replica.execute("SELECT pg_wal_replay_resume()")
            await api.in_use()
            await eventually(lambda: api.use.lag_s == 0)
        told = [log["event"] for log in logs if log["event"].startswith("replica")]
        # It may come and go once more on a machine that is busy; it is never told twice in a row.
        assert {*told} == {"replica_not_in_use", "replica_in_use"}
        assert all(one != other for one, other in pairwise(told))


async def test_a_primary_that_nobody_writes_to_makes_no_lag(pair: Pair, tmp_path: Path) -> None:
    async with served(pair, tmp_path) as api:
        await api.in_use()
        began = time.monotonic()
        await eventually(lambda: time.monotonic() - began > 3)
        await eventually(lambda: api.use.in_use and api.use.lag_s == 0)


async def test_a_replica_that_dies_is_noticed_by_nobody_and_found_again(pair: Pair, tmp_path: Path) -> None:
    async with served(pair, tmp_path) as api:
        await submitted(api.client)
        await api.in_use()
        await api.client.get("/v1/jobs")
        server = server_of(pair.replica)
        pair.replica.end(signal.SIGKILL)
        try:
            for _ in range(10):
                answer = await api.client.get("/v1/jobs")
                assert answer.status_code == 200
            await eventually(lambda: not api.use.in_use)
        finally:
            # Until its end has been taken note of, it counts as running.
            await eventually(lambda: not psutil.pid_exists(server))
            pair.replica.start(ALONE, pair.primary)
            await (await pair.replica.connect()).close()
        assert (await got_there(api, "/v1/jobs")).status_code == 200


async def test_the_api_starts_without_its_replica(pair: Pair, tmp_path: Path) -> None:
    nobody = f"postgresql://u:secret@127.0.0.1:{pair.primary.port + 1 if pair.primary.port < 65000 else 1}/x"
    async with served(pair, tmp_path, replica_url=nobody) as api:
        with capture_logs() as logs:
            await eventually(lambda: api.reads._logged)
            assert (await api.client.get("/v1/jobs")).status_code == 200
        assert not api.use.in_use
        assert api.use.passed_over[PrimaryReadReason.NOT_IN_USE] >= 1
        assert "secret" not in repr(logs)


async def test_what_is_no_replica_is_not_used(pair: Pair, tmp_path: Path) -> None:
    """The primary itself: a service that leads elsewhere after a failover."""
    async with served(pair, tmp_path, replica_url=sqlalchemy_url(pair.primary)) as api:
        with pytest.raises(_OtherError, match="follows nobody"):
            await api.reads._read_replica(
                time_there, await api.reads._primary_position(), asyncio.get_running_loop().time()
            )
        await eventually(lambda: api.reads._logged)
        assert (await api.client.get("/v1/jobs")).status_code == 200
        assert api.use.used == 0


async def test_one_that_does_not_answer_any_more_keeps_nobody(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine hangs: connections stay, and nothing comes. The primary does what was under way there, too."""
    monkeypatch.setattr(reading, "LOOK_LIMIT_S", 2.0)
    async with served(pair, tmp_path) as api:
        await submitted(api.client)
        await api.in_use()
        reached = asyncio.Event()

        async def slow(uow: UnitOfWork) -> int:
            if (await uow.progress()).follows:
                reached.set()
                await sql(uow, "SELECT pg_sleep(3600)")
            return len(await uow.reservations.waiting_totals())

        under_way = await begun_there(api, slow, reached)
        processes = processes_of(pair.replica)
        for process in processes:
            process.suspend()
        try:
            async with asyncio.timeout(120):
                assert await under_way >= 0
                assert (await api.client.get("/v1/jobs")).status_code == 200
            assert not api.use.in_use
        finally:
            for process in processes:
                process.resume()
        await api.in_use()


@pytest.mark.parametrize(("how", "left"), [("pg_cancel_backend", False), ("pg_terminate_backend", True)])
async def test_what_is_broken_off_there_is_done_at_the_primary(
    how: str, left: bool, pair: Pair, tmp_path: Path
) -> None:
    async with superuser(pair.replica) as replica, served(pair, tmp_path) as api:
        await api.in_use()
        reached, processes = asyncio.Event(), list[int]()

        async def slow(uow: UnitOfWork) -> str:
            if not (await uow.progress()).follows:
                return "the primary"
            processes.append((await sql(uow, "SELECT pg_backend_pid()")).scalar_one())
            reached.set()
            await sql(uow, "SELECT pg_sleep(3600)")
            return "the replica"

        under_way = await begun_there(api, slow, reached)
        # A statement that has not begun can't be cancelled, and would not be later.
        asleep = "SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = $1"
        await eventually(lambda: replica.fetchval(asleep, processes[-1]))
        with capture_logs() as logs:
            assert await replica.fetchval(f"SELECT {how}($1)", processes[-1])
            assert await under_way == "the primary"
        assert api.use.passed_over[PrimaryReadReason.FAILED] >= 1
        assert ("replica_not_in_use" if left else "replica_failed") in [log["event"] for log in logs]


async def test_what_the_rules_say_is_as_good_from_there(pair: Pair, tmp_path: Path) -> None:
    async with served(pair, tmp_path) as api:
        await api.in_use()
        params = {"step": "60", "to": at(24 * 60).isoformat()}
        answer = await got_there(api, "/v1/availability", **params)
        assert answer.status_code == 422


async def test_without_the_primary_there_is_no_answer_and_the_replica_is_not_blamed(
    quick_folder: Path, tmp_path: Path
) -> None:
    """Nobody could say whether the replica has everything."""
    with database_pods(quick_folder / "lost-primary") as make:
        pair = await bring_up(make)
        async with served(pair, tmp_path) as api:
            await api.in_use()
            assert (await api.client.get("/v1/jobs")).status_code == 200
            server = server_of(pair.primary)
            with capture_logs() as logs:
                pair.primary.end(signal.SIGKILL)
                answer = await api.client.get("/v1/jobs")
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
                assert "gpu_dev_database_up 0.0" in (await api.client.get("/metrics")).text
            assert "replica_not_in_use" not in [log["event"] for log in logs]
            assert api.use.passed_over[PrimaryReadReason.UNKNOWN] >= 1
            await eventually(lambda: not psutil.pid_exists(server))
            pair.primary.start(ALONE, pair.primary)
            await (await pair.primary.connect()).close()
            # The connections of before are of no use, and nobody hears of it.
            assert (await api.client.get("/v1/jobs")).status_code == 200


async def test_work_that_is_cancelled_is_cancelled(pair: Pair, tmp_path: Path) -> None:
    async with served(pair, tmp_path) as api:
        await api.in_use()
        reached, ended = asyncio.Event(), asyncio.Event()

        async def endless(_uow: UnitOfWork) -> None:
            reached.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        under_way = asyncio.create_task(api.reads(endless))
        await reached.wait()
        under_way.cancel()
        with pytest.raises(asyncio.CancelledError):
            await under_way
        await ended.wait()


async def test_nothing_can_be_written_there(pair: Pair, tmp_path: Path) -> None:
    """Work that writes is a mistake of ours: it is told, and not done in silence at half of the servers."""
    async with served(pair, tmp_path) as api:
        await api.in_use()
        seen: list[str] = []

        async def writes(uow: UnitOfWork) -> None:
            shown = await sql(uow, "SHOW transaction_read_only")
            seen.append(shown.scalar_one())
            await uow.identities.create_user(f"u-{uuid4().hex[:12]}", Role.USER, api.runtime.clock.now())

        with capture_logs() as logs:
            while "on" not in seen:
                await api.in_use()
                await api.reads(writes)
        assert seen[-2:] == ["on", "off"]
        assert "replica_failed" in [log["event"] for log in logs]


async def test_a_promotion_in_the_middle_is_no_error_for_anybody(quick_folder: Path, tmp_path: Path) -> None:
    with database_pods(quick_folder / "promoted-replica") as make:
        pair = await bring_up(make)
        async with served(pair, tmp_path) as api:
            await submitted(api.client)
            await api.in_use()
            statuses: list[int] = []
            promoted = asyncio.Event()

            async def ask() -> None:
                while not promoted.is_set():
                    statuses.append((await api.client.get("/v1/jobs")).status_code)

            asking = [asyncio.create_task(ask()) for _ in range(4)]
            await eventually(lambda: api.use.used > 20)
            async with superuser(pair.replica) as replica:
                assert await replica.fetchval("SELECT pg_promote(wait_seconds => 120)")
            await eventually(lambda: not api.use.in_use)
            promoted.set()
            await asyncio.gather(*asking)
            assert {*statuses} == {200}
            used = api.use.used
            for _ in range(3):
                async with api.runtime.uow() as uow:
                    name = f"u-{uuid4().hex[:12]}"
                    await uow.identities.create_user(name, Role.USER, api.runtime.clock.now())
                listed = (await api.client.get("/v1/jobs")).json()["items"]
                assert len(listed) == 1
            assert api.use.used == used
