"""The chain of the audit log on a real database: whatever is written at once, killed or removed, it can be checked."""

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import asyncpg
import pytest
from sqlalchemy.exc import DBAPIError

from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.queues import open_client
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.domain.errors import ChainTrimmedError
from reservation_core.domain.history.audit_chain import ChainCheck
from reservation_core.domain.history.retention import HistoryKind, RetentionRules
from reservation_core.usecases.history import audit_chain
from reservation_core.usecases.history.audit_chain import (
    ChainStretch,
    chain_events,
    chain_standing,
    read_chain,
    read_stretch,
)
from reservation_core.usecases.history.retention import RetentionWalk, remove_old_history
from tests.clusters.scripted_cluster import ScriptedCluster
from tests.waiting import PATIENCE_S, eventually

NOW = datetime.now(UTC).replace(microsecond=0)
OLD = datetime(2020, 1, 31, 23, 59, tzinfo=UTC)
RECORD = "INSERT INTO events (at, actor, kind, subject) VALUES (:at, 'ada', 'node_fenced', :subject) RETURNING id"
RECORDED = "INSERT INTO events (at, actor, kind, subject) VALUES ($1, 'ada', 'node_fenced', $2) RETURNING id"
CHAINING = """
import asyncio, sys
from reservation_core.adapters.postgres.connection.queues import open_client
from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.usecases.history.audit_chain import chain_events

async def run(url):
    engine = open_engine(url, pool=2, application="test")
    uow = UnitOfWorkFactory(engine, await open_client(engine), PostgresWakeups(url, "test"))
    while True:
        print(await chain_events(uow, 7), flush=True)
        sys.stdin.readline()

asyncio.run(run(sys.argv[1]))
"""


@pytest.fixture
async def uow(database_url: str) -> AsyncIterator[UnitOfWorkFactory]:
    engine = open_engine(database_url, pool=8, application="test")
    try:
        yield UnitOfWorkFactory(engine, await open_client(engine), PostgresWakeups(database_url, "test"))
    finally:
        await engine.dispose()


@pytest.fixture
async def writers(database_url: str) -> AsyncIterator[list[asyncpg.Connection]]:
    """Connections that hold their transactions open as they like."""
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(3):
            found.append(await asyncpg.connect(database_url.replace("postgresql+asyncpg://", "postgresql://")))
            stack.push_async_callback(found[-1].close)
        yield found


async def chain_all(uow: UnitOfWorkFactory, batch: int = 5) -> int:
    total = 0
    while count := await chain_events(uow, batch):
        total += count
    return total


async def checked(uow: UnitOfWorkFactory, limit: int = 4) -> ChainCheck:
    """The whole log, page by page."""
    check = ChainCheck()
    async with uow() as work:
        rest: ChainStretch | None = await read_stretch(work, None, None)
    while rest is not None:
        async with uow() as work:
            page = await read_chain(work, rest, limit)
        rest = page.rest
        for line in page.lines:
            check.take(line)
    check.finish()
    return check


async def tamper(seed: Any, statement: str) -> None:
    """As the owner of the tables can."""
    for table in ("events", "event_chain"):
        await seed.run(f"ALTER TABLE {table} DISABLE TRIGGER USER")
    await seed.run(statement)
    for table in ("events", "event_chain"):
        await seed.run(f"ALTER TABLE {table} ENABLE TRIGGER USER")


async def record(seed: Any, count: int, at: datetime = NOW) -> None:
    for number in range(count):
        await seed.run(RECORD, at=at + timedelta(seconds=number), subject=f"node-{number}")


async def test_events_are_chained_in_the_order_of_their_ids(seed: Any, uow: UnitOfWorkFactory) -> None:
    assert (await checked(uow)).head is None
    await record(seed, 12)
    assert await chain_all(uow) == 12
    assert await chain_events(uow) == 0
    check = await checked(uow)
    assert (check.problems, check.first, check.events, check.head and check.head[0]) == ([], 1, 12, 12)
    assert [row["event_id"] for row in await seed.rows("SELECT event_id FROM event_chain ORDER BY position")] == [
        0, *(row["id"] for row in await seed.rows("SELECT id FROM events ORDER BY id"))
    ]  # fmt: skip


INSERT = "INSERT INTO events (id, at, actor, kind) OVERRIDING SYSTEM VALUE"
CHANGED = "Event 5 at position 5 is not as it was chained."
CHANGES = [
    ("UPDATE events SET actor = 'eve' WHERE subject = 'node-4'", CHANGED),
    ("UPDATE events SET data = '{\"x\": 1}' WHERE id = 5", CHANGED),
    ("UPDATE events SET at = at + interval '1 microsecond' WHERE id = 5", CHANGED),
    ("UPDATE event_chain SET digest = content WHERE position = 5", CHANGED),
    ("DELETE FROM events WHERE id = 5", "at position 5 was deleted."),
    ("DELETE FROM event_chain WHERE position = 5", "Lines are missing between positions 4 and 6."),
    (
        "WITH gone AS (DELETE FROM events WHERE id = 5) DELETE FROM event_chain WHERE position = 5",
        "Lines are missing between positions 4 and 6.",
    ),
    (f"{INSERT} VALUES (-7, now(), 'eve', 'x')", "Event -7 of"),
    (f"{INSERT} SELECT 5, at + interval '4000 days', actor, kind FROM events WHERE id = 5", "Event 5 of"),
]


@pytest.mark.parametrize(("change", "said"), CHANGES)
async def test_whoever_changes_the_past_is_found(seed: Any, uow: UnitOfWorkFactory, change: str, said: str) -> None:
    await record(seed, 9)
    await chain_all(uow)
    await tamper(seed, change)
    problems = (await checked(uow)).problems
    assert any(said in problem for problem in problems), problems
    assert len(problems) <= 3


async def test_an_event_in_a_hole_between_ids_is_found(seed: Any, uow: UnitOfWorkFactory) -> None:
    await record(seed, 3)
    await seed.run("SELECT nextval('events_id_seq')")
    await record(seed, 3)
    await chain_all(uow)
    await seed.run(f"{INSERT} VALUES (4, now(), 'eve', 'x')")
    assert await chain_all(uow) == 0
    [problem] = (await checked(uow)).problems
    assert problem.startswith("Event 4 of")


@pytest.mark.parametrize(
    "statement", ["UPDATE event_chain SET position = 9", "DELETE FROM event_chain", "TRUNCATE event_chain"]
)
async def test_links_are_neither_changed_nor_removed(seed: Any, uow: UnitOfWorkFactory, statement: str) -> None:
    await record(seed, 2)
    await chain_all(uow)
    with pytest.raises(DBAPIError, match="append-only"):
        await seed.run(statement)


async def test_retention_removes_no_link_whose_event_it_did_not_remove(seed: Any, uow: UnitOfWorkFactory) -> None:
    await record(seed, 2)
    await chain_all(uow)
    async with seed.engine.begin() as connection:
        await connection.exec_driver_sql("SET LOCAL gpu_dev.retention = 'on'")
        with pytest.raises(DBAPIError, match="append-only"):
            await connection.exec_driver_sql("DELETE FROM event_chain WHERE position = 1")


async def test_what_commits_late_is_waited_for(
    seed: Any, uow: UnitOfWorkFactory, writers: list[asyncpg.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three that draw ids, the first commits last and the second never does."""
    monkeypatch.setattr(audit_chain, "_POLLS", 2)
    await record(seed, 2)
    late, never, soon = (writer.transaction() for writer in writers)
    for number, (writer, transaction) in enumerate(zip(writers, (late, never, soon), strict=True), 3):
        await transaction.start()
        assert await writer.fetchval(RECORDED, NOW, f"node-{number}") == number
    await soon.commit()
    assert await chain_events(uow) == 2
    assert await chain_events(uow) == 0
    await never.rollback()
    assert await chain_events(uow) == 0
    monkeypatch.setattr(audit_chain, "_POLLS", 1000)
    chaining = asyncio.create_task(chain_events(uow))
    await late.commit()
    assert await chaining == 2
    check = await checked(uow)
    assert (check.problems, check.events) == ([], 4)


async def test_who_writes_for_long_keeps_nobody_who_has_no_hole_before_them(
    seed: Any, uow: UnitOfWorkFactory, writers: list[asyncpg.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_chain, "_POLLS", 1_000_000)
    await record(seed, 3)
    transaction = writers[0].transaction()
    await transaction.start()
    await writers[0].fetchval(RECORDED, NOW, "late")
    assert await asyncio.wait_for(chain_events(uow), PATIENCE_S) == 3
    await transaction.rollback()


async def test_many_write_and_chain_at_once(seed: Any, uow: UnitOfWorkFactory, database_url: str) -> None:
    """Transactions of all lengths, some of which come to nothing, while several would chain."""
    drawn = random.Random(29)
    url = database_url.replace("postgresql+asyncpg://", "postgresql://")
    written = 0
    done = asyncio.Event()

    async def write(turns: list[tuple[int, float, bool]]) -> None:
        nonlocal written
        connection = await asyncpg.connect(url)
        for count, pause_s, ends_well in turns:
            transaction = connection.transaction()
            await transaction.start()
            for number in range(count):
                await connection.fetchval(RECORDED, NOW, f"node-{number}")
                await asyncio.sleep(pause_s)
            await (transaction.commit() if ends_well else transaction.rollback())
            written += count if ends_well else 0
        await connection.close()

    async def chain() -> int:
        total = 0
        while not done.is_set():
            total += await chain_events(uow, 9)
        return total

    chaining = [asyncio.create_task(chain()) for _ in range(3)]
    await asyncio.gather(*(
        write([(drawn.randrange(1, 6), drawn.choice([0, 0.001, 0.01]), drawn.random() < 0.8) for _ in range(25)])
        for _ in range(6)
    ))  # fmt: skip
    done.set()
    total = sum(await asyncio.gather(*chaining)) + await chain_all(uow, 9)
    check = await checked(uow, 50)
    assert (check.problems, check.events, total) == ([], written, written)


async def test_who_is_killed_between_batches_leaves_a_whole_chain(
    seed: Any, uow: UnitOfWorkFactory, database_url: str
) -> None:
    await seed.run("INSERT INTO events (at, actor, kind) SELECT now(), 'ada', 'x' FROM generate_series(1, 2000)")
    for _ in range(3):
        before = await seed.run("SELECT max(position) FROM event_chain")
        command = [sys.executable, "-c", CHAINING, database_url]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            await asyncio.to_thread(process.stdout.readline)
            process.stdin.write(b"\n")  # at most one more batch, within which it is killed
            process.send_signal(signal.SIGKILL)
        assert await seed.run("SELECT max(position) FROM event_chain") > before
        check = await checked(uow, 500)
        assert check.problems == []
    assert check.events < 2000
    await chain_all(uow, 500)
    check = await checked(uow, 500)
    assert (check.problems, check.events) == ([], 2000)


async def with_old_months(seed: Any) -> None:
    for first, last in (("2020-01-01", "2020-02-01"), ("2020-02-01", "2020-03-01")):
        bounds = f"FOR VALUES FROM ('{first}Z') TO ('{last}Z')"
        await seed.run("SELECT make_event_partition(:name, :bounds)", name=f"events_{first}", bounds=bounds)
    # January's last are recorded among February's first.
    for at in (OLD, OLD, OLD + timedelta(minutes=2), OLD, OLD, OLD + timedelta(minutes=3), NOW, NOW):
        await seed.run(RECORD, at=at, subject=f"{at:%Y-%m}")


def keeping(day: datetime) -> RetentionRules:
    return RetentionRules(datetime.now(UTC) - day, None, None, None, None, None)


FEBRUARY, MARCH = datetime(2020, 2, 2, tzinfo=UTC), datetime(2020, 3, 2, tzinfo=UTC)


async def test_what_is_not_chained_is_not_removed(seed: Any, uow: UnitOfWorkFactory) -> None:
    await with_old_months(seed)
    assert await chain_events(uow, 4) == 4
    report = await remove_old_history(uow, ScriptedCluster(), keeping(MARCH), RetentionWalk())
    assert report.removed == {}
    assert "not chained yet" in report.put_off[0]
    assert await seed.run("SELECT count(*) FROM events") == 8
    await chain_all(uow)
    report = await remove_old_history(uow, ScriptedCluster(), keeping(MARCH), RetentionWalk())
    assert (report.removed, report.put_off) == ({HistoryKind.EVENTS: 6}, [])


async def test_what_retention_leaves_can_be_checked_from_its_first_line_on(seed: Any, uow: UnitOfWorkFactory) -> None:
    await with_old_months(seed)
    await chain_all(uow)
    whole = await checked(uow)
    await remove_old_history(uow, ScriptedCluster(), keeping(FEBRUARY), RetentionWalk())
    check = await checked(uow)
    # Of the two first of January the digest of the last remains; the other two lie among what is kept.
    assert (check.problems, check.first, check.events, check.removed) == ([], 3, 4, 2)
    assert check.head == whole.head
    await tamper(seed, "DELETE FROM events WHERE subject = '2020-02' AND id = 3")
    assert ["was deleted" in problem for problem in (await checked(uow)).problems] == [True]
    await remove_old_history(uow, ScriptedCluster(), keeping(MARCH), RetentionWalk())
    check = await checked(uow)
    assert (check.problems, check.first, check.events, check.removed) == ([], 7, 2, 0)
    assert check.head == whole.head
    await record(seed, 3)
    await chain_all(uow)
    check = await checked(uow)
    assert (check.problems, check.first, check.events) == ([], 7, 5)


async def test_when_all_is_removed_the_chain_goes_on(seed: Any, uow: UnitOfWorkFactory) -> None:
    await seed.run(RECORD, at=OLD, subject="old")
    await chain_all(uow)
    await remove_old_history(uow, ScriptedCluster(), keeping(FEBRUARY), RetentionWalk())
    check = await checked(uow)
    assert (check.problems, check.head) == ([], None)
    await record(seed, 2)
    await chain_all(uow)
    check = await checked(uow)
    assert (check.problems, check.first, check.events) == ([], 2, 2)


async def test_who_reads_while_retention_removes_is_told(seed: Any, uow: UnitOfWorkFactory) -> None:
    await with_old_months(seed)
    await chain_all(uow)
    async with uow() as work:
        page = await read_chain(work, await read_stretch(work, None, None), 2)
    assert page.rest is not None
    await remove_old_history(uow, ScriptedCluster(), keeping(MARCH), RetentionWalk())
    with pytest.raises(ChainTrimmedError, match="Begin again"):
        async with uow() as work:
            await read_chain(work, page.rest, 2)


async def test_stretches_of_times_that_follow_each_other_are_one_chain(seed: Any, uow: UnitOfWorkFactory) -> None:
    times = [NOW - timedelta(days=1)]
    for count in (3, 2, 4):
        await record(seed, count)
        await chain_all(uow)
        times.append(datetime.now(UTC))
        await eventually(lambda: datetime.now(UTC) > times[-1])
    found = []
    for since, until in pairwise(times):
        async with uow() as work:
            page = await read_chain(work, await read_stretch(work, since, until), 100)
        found.append([line.position for line in page.lines])
    assert found == [[1, 2, 3], [4, 5], [6, 7, 8, 9]]
    async with uow() as work:
        assert (await read_chain(work, await read_stretch(work, times[-1], None), 9)).lines == ()
        standing = await chain_standing(work)
    assert (standing.head.link.position, standing.first, standing.unchained_since) == (9, 1, None)
    await record(seed, 1)
    async with uow() as work:
        assert (await chain_standing(work)).unchained_since == NOW
