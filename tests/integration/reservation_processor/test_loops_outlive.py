"""Every loop of a process sees every class of error of the database, and goes on afterwards."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from api_service.services import Services
from api_service.web.live import LiveTopics
from availability_updater.update import run_once as update_once
from pod_scheduling.runtime.reading.ledger_holdings import HoldingsReading
from pod_scheduling.runtime.reading.promised_cards import PromisedCards
from reservation_core.adapters.postgres.connection import shared_clock, wakeups
from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.contracts.jobs import JobSubmit
from reservation_core.domain.statuses import JobStatus, Role
from reservation_core.ports.people.identities import Principal
from reservation_core.runtime import wiring
from reservation_core.runtime.loops.loops import Loop
from reservation_core.runtime.settings.components import StandaloneSettings
from reservation_core.runtime.wiring import Runtime, open_runtime
from reservation_core.usecases.jobs.submit import prepare, submit
from reservation_core.usecases.nodes.update_inventory import update_inventory
from reservation_expiry.expire import run_once as expire_once
from reservation_processor import ending, health, idling, leading
from reservation_processor.disks import keeping
from reservation_processor.process import run
from tests.database.postgres_fault_proxy import FaultProxy, Silence, fault_proxy
from tests.pods import end_all_pods
from tests.waiting import eventually

SQLSTATES = [
    "08006", "22000", "25006", "25P03", "40001", "40P01", "42501", "53100", "53200", "53300", "55P03",
    "57014", "57P01", "57P02", "57P03", "57P05", "58030", "XX000",
]  # fmt: skip
LOOPS = [
    "arrays", "audit_chain", "calendar", "clock", "dependencies", "disk_copies", "disk_use", "disks", "ends",
    "expire", "fair_shares", "gpu_health",
    "holdings", "idle", "lease", "notifications", "open_pages", "planner", "pod_operations", "policy", "preemption",
    "promised_cards", "repair", "resync", "secret_keys", "update", "usage_sums", "wake_ups",
]  # fmt: skip
"""Those that ask the database without anybody's doing, each often enough here."""
OFTEN_S = 0.3
ANSWER_S = 2.0
SETTLED_S = 3.0
"""Longer than an endless run without answers lasts; every test waits for it."""


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[FaultProxy]:
    """What stands before the database."""
    async with fault_proxy(database_url) as standing:
        yield standing


@pytest.fixture
async def whole(
    proxy: FaultProxy, database_url: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator["Whole"]:
    """All loops of a system in one process, at work behind the proxy; none may have ended when the test has."""
    monkeypatch.setattr(leading, "SUM_UP_EVERY_S", OFTEN_S)
    monkeypatch.setattr(leading, "RESEAL_EVERY_S", OFTEN_S)
    monkeypatch.setattr(leading, "_LONGEST_REST_S", OFTEN_S)
    monkeypatch.setattr(ending, "REPAIR_EVERY_S", OFTEN_S)
    monkeypatch.setattr(health, "EVERY_S", OFTEN_S)
    monkeypatch.setattr(idling, "EVERY_S", OFTEN_S)
    monkeypatch.setattr(keeping, "MEASURE_EVERY_S", OFTEN_S)
    monkeypatch.setattr(idling, "LONGEST_REST_S", OFTEN_S)
    monkeypatch.setattr(shared_clock, "ASK_EVERY_S", OFTEN_S)
    monkeypatch.setattr(wakeups, "_BEAT_S", OFTEN_S)
    assert Loop.keep.__kwdefaults__["settled_s"] > SETTLED_S
    monkeypatch.setitem(Loop.keep.__kwdefaults__, "settled_s", SETTLED_S)
    monkeypatch.setattr(wiring, "open_engine", bounded_engine)
    settings = StandaloneSettings(
        home=tmp_path / "home", local_gpus="h100:2", database_pool=20, lease_s=3, sweep_s=0.2, resync_s=0.3,
        end_grace_s=1, fair_share_half_life_s=60, fair_share_every_s=0.3, token_cache_s=0.2,
        health={"quarantine_after": 3},
    )  # fmt: skip
    async with open_runtime(settings, proxy.url) as runtime, open_runtime(settings, database_url) as beside:
        await update_inventory(beside.uow, beside.cluster, beside.clock)
        async with running(runtime, settings, proxy.url) as tasks:
            system = Whole(runtime, beside, tasks)
            try:
                await eventually(lambda: {loop.name for loop in runtime.loops} >= {*LOOPS})
                yield system
                assert not [task for task in tasks if task.done()]
            finally:
                await end_all_pods(beside.cluster)


def bounded_engine(url: str, *, pool: int, application: str, read_only: bool = False) -> AsyncEngine:
    """A pool whose statements fail soon when they are not answered."""
    return open_engine(url, pool=pool, application=application, read_only=read_only, statement_s=ANSWER_S)


class Whole:
    """Its loops, and a way to the database that nothing is wrong with."""

    def __init__(self, runtime: Runtime, beside: Runtime, tasks: Sequence["asyncio.Task[Any]"]) -> None:
        self.runtime = runtime
        self.beside = beside
        self.tasks = tasks

    def failed(self) -> dict[str, int]:
        """How often each loop has failed."""
        return {loop.name: loop.failures for loop in self.runtime.loops}

    async def all_have_failed(self, before: dict[str, int]) -> None:
        """Wait until each loop has seen the trouble."""
        try:
            await eventually(lambda: not self.spared(before))
        except AssertionError:
            pytest.fail(f"these loops did not see it: {self.spared(before)}")

    def spared(self, before: dict[str, int]) -> list[str]:
        """Those that have not seen it."""
        now = self.failed()
        return [name for name in LOOPS if now[name] == before[name]]

    async def all_is_well(self) -> None:
        """Wait until no loop fails, and a job has gone its whole way."""
        await eventually(lambda: not self.runtime.loops.failing())
        await self.runs_a_job()
        await eventually(lambda: not self.runtime.loops.failing())

    async def runs_a_job(self) -> None:
        """A new job is planned, made, followed and ended."""
        async with self.beside.uow() as uow:
            user = await uow.identities.user("ada") or await uow.identities.create_user(
                "ada", Role.USER, self.beside.clock.now()
            )
        who = Principal(user.id, user.name, user.role, "tok-x", None)
        request = JobSubmit.model_validate({"gpus": 1, "duration": 60, "workload": {"command": ["true"]}})
        now = self.beside.clock.now()
        new = prepare(request, who, ids=self.beside.ids, longest=timedelta(hours=1), now=now)
        [answer] = await submit(self.beside.uow, [new], now)

        async def ended() -> bool:
            async with self.beside.uow() as uow:
                view = await uow.reservations.view(answer.reservation_id, None)
            return view is not None and view.reservation.status is JobStatus.SUCCEEDED

        await eventually(ended)


@asynccontextmanager
async def running(
    runtime: Runtime, settings: StandaloneSettings, url: str
) -> AsyncIterator[Sequence["asyncio.Task[Any]"]]:
    """What `make up` runs, and what the scheduler and the extender read, each as a task."""
    stop = asyncio.Event()
    services = Services.of(runtime, settings)
    live = LiveTopics(runtime.uow, services.wakeups)
    engine = bounded_engine(url, pool=2, application="cards")
    loops = runtime.loops
    works = [
        run(runtime, settings, stop),
        loops["expire"].repeat(lambda: expire_once(runtime, settings), rest_s=OFTEN_S, stop=stop),
        loops["update"].repeat(lambda: update_once(runtime), rest_s=OFTEN_S, stop=stop),
        live.run(loops["open_pages"]),
        PromisedCards(engine, 0.2, 2.0).keep(loops["promised_cards"], lambda _: None, lambda: None),
        HoldingsReading(engine, 0.2, 2.0).keep(loops["holdings"], lambda _: None, lambda: None),
    ]
    async with services.running():
        with live.subscribed({"now"}):
            tasks = [asyncio.create_task(cast("Any", work)) for work in works]
            try:
                yield tasks
            finally:
                stop.set()
                for task in tasks[3:]:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await engine.dispose()


@pytest.mark.parametrize("sqlstate", SQLSTATES)
async def test_no_sqlstate_ends_a_loop(whole: Whole, proxy: FaultProxy, sqlstate: str) -> None:
    await whole.runs_a_job()
    before = whole.failed()
    proxy.answer(sqlstate)
    await whole.all_have_failed(before)
    assert not [task for task in whole.tasks if task.done()]
    proxy.heal()
    await whole.all_is_well()


@pytest.mark.parametrize("how", list(Silence))
async def test_no_silent_connection_ends_a_loop(whole: Whole, proxy: FaultProxy, how: Silence) -> None:
    """Whatever waits for an answer gives up in bounded time, and finds a connection that works afterwards."""
    before = whole.failed()
    proxy.fall_silent(how)
    await whole.all_have_failed(before)
    proxy.heal()
    await whole.all_is_well()


async def test_no_broken_connection_ends_a_loop(whole: Whole, proxy: FaultProxy) -> None:
    before = whole.failed()

    def broken() -> bool:
        proxy.reset()
        return not whole.spared(before)

    await eventually(broken)
    await whole.all_is_well()
