"""A dry run of a job at 10,000 waiting jobs, against a cycle of the planner that reads them: both with the database.

1,000 GPUs on nodes of 8; every waiting job has a slot. Questions and cycles take turns, so that what disturbs the
machine for a while disturbs both. A question has all that the API does for it but HTTP.
"""

import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar

import uvloop
from sqlalchemy import text

from benchmarks.ledger.allocation_throughput import RULES
from benchmarks.measuring.databases import add_cluster, add_waiting, database, engine
from benchmarks.measuring.figures import Figure
from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.identity.ids import RandomIds
from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.queues import open_client
from reservation_core.adapters.postgres.connection.wakeups import PostgresWakeups
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.contracts.jobs import JobSubmit, Workload
from reservation_core.domain.planning.predictions.wait_calibration import ENOUGH, LEVELS, LearntWaits
from reservation_core.domain.planning.request_verdicts import Outlook
from reservation_core.domain.policy.limits import NO_POLICY
from reservation_core.domain.statuses import RequestVerdict, Role
from reservation_core.ports.people.identities import Principal
from reservation_core.usecases.jobs.submit import prepare
from reservation_core.usecases.planning.planner import Planner
from reservation_core.usecases.policy.outlook import Pending, decided, dry_run
from reservation_core.usecases.policy.read_plan import JobTerms, LikelyStarts

T = TypeVar("T")
WAITING = 10_000
ROUNDS = 15
_MIXED = (
    "UPDATE reservations SET gpus = (ARRAY[1, 1, 2, 4, 8])[1 + CAST(seq * 7 % 5 AS integer)], "
    "duration = interval '10 minutes' * (1 + seq * 31 % 60)"
)
_HISTORY = 20_000
_ENDED = (
    "INSERT INTO reservations (id, kind, user_id, status, reason_code, reason, gpus, gpu_type, nodes, duration, "
    "priority, workload, created_at, changed_at, started_at, finished_at, attempt) "
    "SELECT 'job-h' || lpad(CAST(n AS text), 8, '0'), 'job', u.id, 'succeeded', 'completed', 'x', "
    "(ARRAY[1, 1, 2, 4, 8])[1 + n * 7 % 5], 'h100', 1, interval '10 minutes' * (1 + n * 31 % 60), 0, "
    """CAST('{"command": ["true"]}' AS jsonb), t.at, t.at, t.at - interval '1 minute' * (1 + n * 13 % 90), t.at, 1 """
    "FROM users u, generate_series(1, :jobs) n, LATERAL (SELECT now() - interval '1 minute' * (n + 1) AS at) t "
    "WHERE u.name = 'bench'"
)
_LEARNT = LearntWaits(LEVELS, ((0.0,) * ENOUGH,) * 3)
_RULES = replace(RULES, promises=2 * WAITING, slot_batches=1000, slot_time=timedelta(seconds=1))
_TERMS = JobTerms(
    timedelta(days=30),
    _RULES.start_allowance,
    _RULES.promises,
    fair_share=True,
    placement=_RULES.policy,
    slack=_RULES.slack,
    estimates=_RULES.estimates,
)
_CLOCK = SystemClock()


def measure() -> list[Figure]:
    """Each round asks once and reloads once."""
    with database() as url:
        uvloop.run(add_cluster(url, nodes=125, gpus_per_node=8))
        uvloop.run(add_waiting(url, WAITING + 600, prefix="d"))
        return uvloop.run(_measured(url))


async def _measured(url: str) -> list[Figure]:
    own = engine(url)
    async with own.begin() as connection:
        await connection.execute(text(_MIXED))
        await connection.execute(text(_ENDED), {"jobs": _HISTORY})
    await own.dispose()
    opened = open_engine(url, pool=5, application="bench")
    uow = UnitOfWorkFactory(opened, await open_client(opened), PostgresWakeups(url, "bench"))
    async with uow() as unit:
        epoch = await unit.planning.acquire("bench", timedelta(hours=1))
        user = await unit.identities.user("bench")
    assert epoch is not None
    assert user is not None
    async with uow() as unit:
        await unit.learnt_waits.store(epoch, _LEARNT)
    planner = Planner(uow, _CLOCK, epoch, _RULES)
    await planner.cycle()
    while await planner.give_slots():
        await planner.cycle()
    who = Principal(user.id, "bench", Role.ADMIN, "", None)
    chance = random.Random(1)
    likely = LikelyStarts(_TERMS, _CLOCK)
    await _ask(uow, who, likely, chance)  # The first question reads the history.
    dry, cycles = [], []
    for _ in range(ROUNDS):
        outlook, seconds = await _timed(lambda: _ask(uow, who, likely, chance))
        assert outlook.verdict is RequestVerdict.ACCEPTED
        assert outlook.estimated_start is not None
        dry.append(seconds)
        planner.read_anew()
        _, seconds = await _timed(planner.cycle)
        cycles.append(seconds)
    await opened.dispose()
    ratios = [asked / cycle for asked, cycle in zip(dry, cycles, strict=True)]
    detail = f"a dry run {1000 * min(dry):.0f} ms, a cycle that reads everything {1000 * min(cycles):.0f} ms"
    name = "a dry run at 10,000 waiting jobs ÷ a planner's cycle"
    return [Figure(name, "x", ratios, 1, at_least=False, detail=detail)]


async def _timed(act: Callable[[], Awaitable[T]]) -> tuple[T, float]:
    began = time.perf_counter()
    answer = await act()
    return answer, time.perf_counter() - began


async def _ask(uow: UnitOfWorkFactory, who: Principal, likely: LikelyStarts, chance: random.Random) -> Outlook:
    request = JobSubmit(
        gpus=chance.choice([1, 2, 4, 8]),
        gpu_type="h100",
        nodes=chance.choice([1, 1, 2]),
        duration=timedelta(minutes=chance.randint(10, 600)),
        workload=Workload(command=["true"], env={}),
    )
    now = _CLOCK.now()
    new = prepare(request, who, ids=RandomIds(), longest=_TERMS.longest, now=now)

    async def read(terms: JobTerms) -> Pending:
        async with uow() as unit:
            return await dry_run(unit, who, new, NO_POLICY, terms, likely, now)

    return await decided(read, _TERMS)
