"""Cards that the ledger has for somebody are not a map's to take; and nothing is bound while nobody can say which."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest

from reservation_core.adapters.postgres.connection.engine import open_engine
from tests.integration.gpu_scheduler.conftest import Cluster, Process, Starter, admitted, pod
from tests.integration.reservation_core.adapters.postgres.conftest import Seed
from tests.network.stream_server import stream_server
from tests.waiting import eventually

HOUR = timedelta(hours=1)


class Door:
    """A way to the database that can be shut."""

    def __init__(self, database_url: str) -> None:
        self._parts = urlsplit(database_url)
        self._port = 0
        self._opened = AsyncExitStack()

    async def open(self) -> str:
        """The database's address through the door."""
        self._port = await self._opened.enter_async_context(stream_server(self._serve, self._port))
        user = self._parts.netloc.rpartition("@")[0]
        return f"postgresql://{user}@127.0.0.1:{self._port}{self._parts.path}"

    async def shut(self) -> None:
        await self._opened.aclose()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        folder = parse_qs(self._parts.query).get("host", [None])[0]
        if folder is not None:
            port = parse_qs(self._parts.query).get("port", [str(self._parts.port or 5432)])[0]
            behind = await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.{port}")
        else:
            behind = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        await asyncio.gather(_copy(reader, behind[1]), _copy(behind[0], writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except (ConnectionError, OSError):
        pass
    finally:
        writer.transport.abort()


@pytest.fixture
async def seed(database_url: str) -> AsyncIterator[Seed]:
    engine = open_engine(database_url, pool=2, application="test")
    yield Seed(engine)
    await engine.dispose()


@pytest.fixture
async def door(database_url: str) -> AsyncIterator[tuple[Door, str]]:
    made = Door(database_url)
    url = await made.open()
    yield made, url
    await made.shut()


async def test_reserved_cards_are_kept_off_until_they_are_let_go(
    cluster: Cluster, start: Starter, seed: Seed, database_url: str
) -> None:
    name = await cluster.add_node("node1")
    cards = await seed.node(name, cards=4)
    user, now = await seed.user(), datetime.now(UTC)
    booking = await seed.job("job-b1", user, "running", attempt=1, started_at=now, ends_at=now + 2 * HOUR)
    await seed.allocate(booking, cards[0], now + HOUR, now + 2 * HOUR, held=False)
    running = await seed.job("job-r1", user, "running", attempt=1, started_at=now - HOUR, ends_at=now + HOUR)
    await seed.allocate(running, cards[1], now - HOUR, now + HOUR, held=True)
    await start(GPU_DEV_DATABASE_URL=database_url, GPU_DEV_SCHEDULER__LEDGER_S="0.2")
    await cluster.add(admitted(pod("booked-0", "0=node1:0")))
    await cluster.eventually_told("booked-0", "DeviceReserved", f"GPU 0 of {name} is job-b1's")
    await cluster.add(admitted(pod("held-0", "0=node1:1")))
    await cluster.eventually_told("held-0", "DeviceReserved", f"GPU 1 of {name} is job-r1's")
    await cluster.add(admitted(pod("free-0", "0=node1:2")))
    await cluster.eventually_on("free-0", name)

    short = admitted(pod("short-0", "0=node1:0"))
    short["metadata"]["annotations"]["gpu-dev/terminate-at"] = f"{now + HOUR / 2:%Y-%m-%dT%H:%M:%SZ}"
    await cluster.add(short)
    await cluster.eventually_told("short-0", "DeviceReserved")  # anybody may have written this here
    labels = {"metadata": {"labels": {"gpu-dev/enforce-bookings": "true"}}}
    here = f"/api/v1/namespaces/{cluster.namespace}"
    await cluster.client.call("PATCH", here, labels, content_type="application/merge-patch+json")
    await cluster.eventually_on("short-0", name)  # it will be gone before the booking begins
    await cluster.client.call("DELETE", f"{cluster.path}/short-0", {"gracePeriodSeconds": 0})

    own = admitted(pod("own-0", "0=node1:0"))
    own["metadata"]["annotations"]["gpu-dev/booking"] = "job-b1"
    await cluster.add(own)
    await cluster.eventually_on("own-0", name)
    await cluster.client.call("DELETE", f"{cluster.path}/own-0", {"gracePeriodSeconds": 0})

    await seed.run("UPDATE allocations SET released_at = clock_timestamp() WHERE reservation_id = 'job-b1'")
    await cluster.eventually_on("booked-0", name)
    assert await cluster.node_of("held-0") is None


async def readings_failed(process: Process, times: int) -> bool:
    """Whether reading the promised cards has failed so often."""
    text = (await process.get("/metrics"))[1]
    found = re.search(r'^gpu_dev_loop_failures_total\{loop="promised_cards"\} (\S+)$', text, re.MULTILINE)
    return found is not None and float(found[1]) >= times


async def test_while_nobody_can_say_which_cards_are_promised_nothing_is_bound(
    cluster: Cluster, start: Starter, door: tuple[Door, str]
) -> None:
    way, url = door
    name = await cluster.add_node("node1")
    process = await start(
        GPU_DEV_DATABASE_URL=url, GPU_DEV_SCHEDULER__LEDGER_S="0.2", GPU_DEV_SCHEDULER__LEDGER_PATIENCE_S="2"
    )
    await cluster.add(admitted(pod("before-0", "0=node1:0")))
    await cluster.eventually_on("before-0", name)
    await way.shut()
    # Each try is at least 0.1 s after the one before: what was read last is too old by then.
    await eventually(lambda: readings_failed(process, 30))
    await cluster.add(admitted(pod("meanwhile-0", "0=node1:1")))
    await eventually(lambda: readings_failed(process, 40))
    assert "promised_cards: failing since" in (await process.get("/ready"))[1]
    assert await cluster.node_of("meanwhile-0") is None
    await eventually(process.leading)
    await way.open()
    await cluster.eventually_on("meanwhile-0", name)
