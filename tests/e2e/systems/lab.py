"""A lab under test: the whole system in one process, by a time of the test's own; its people, and how they are told."""

import asyncio
import re
import threading
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from api_service.app import create_app
from api_service.server import serve
from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.postgres.connection.engine import open_engine
from reservation_core.adapters.postgres.connection.shared_clock import SharedClock
from reservation_core.domain.bookings.due_changes import BookingRules
from reservation_core.domain.statuses import Role
from reservation_core.runtime.settings.components import StandaloneSettings
from reservation_core.runtime.wiring import Runtime, open_cluster, open_runtime
from reservation_core.usecases.bookings.keep_bookings import BookingKeeping
from reservation_core.usecases.bookings.waitlist import Waitlist
from reservation_core.usecases.keep_calendar import keep_calendar
from reservation_core.usecases.nodes.update_inventory import update_inventory
from reservation_expiry.expire import run_once as expire_once
from reservation_processor.process import run as process
from tests.e2e.systems.ledger import assert_in_order
from tests.integration.gpu_dev.conftest import Finished, System
from tests.network.receivers import Receiver, receiving
from tests.pods import end_all_pods
from tests.shifted_time import ShiftedCluster, ShiftedTime
from tests.waiting import eventually

T = TypeVar("T")
Told = tuple[str, str, str, int]
"""The user, the kind of notice, the reservation, and the event in the audit log."""
_PATIENCE_S = 120

# Whatever is about to happen by itself, without any time going by.
_BUSY = """
SELECT id, status FROM reservations r WHERE status IN ('starting', 'ending')
    OR status = 'queued' AND (NOT EXISTS (SELECT FROM wait_estimates w WHERE w.reservation_id = r.id)
                              OR EXISTS (SELECT FROM allocations a WHERE a.reservation_id = r.id AND a.planned
                                         AND lower(a.during) <= clock_timestamp()))
"""
_NEXT_DUE = """
SELECT min(at) FROM (
    SELECT unnest(ARRAY[
        b.starts_at - make_interval(secs => :starting_soon_s), b.starts_at,
        b.ends_at - make_interval(secs => :ending_soon_s), b.ends_at, b.offer_until,
        b.waits_until, b.release_at - (b.release_at - coalesce(r.started_at, b.starts_at)) / 2, b.release_at]) AS at
    FROM bookings b JOIN reservations r ON r.id = b.id WHERE r.finished_at IS NULL
    UNION ALL SELECT unnest(ARRAY[m.starts_at, m.ends_at])
    FROM maintenance_windows m JOIN reservations r ON r.id = m.id WHERE r.finished_at IS NULL
    UNION ALL SELECT unnest(ARRAY[ends_at - make_interval(secs => :warn_before_s), ends_at])
    FROM reservations WHERE kind = 'job' AND finished_at IS NULL
    UNION ALL SELECT lower(during) FROM allocations WHERE planned
) AS due WHERE at > :now AND at < :until
"""
_LAST_EVENT = "SELECT max(id) FROM events"
_EVENTS = """
SELECT e.id, n.kind, e.reservation_id, u.name AS user_name,
       coalesce((SELECT p.wanted FROM notice_preferences p JOIN notice_targets t USING (user_id, channel)
                 WHERE p.user_id = u.id AND p.kind = n.kind), k.by_default) AS wanted
FROM events e JOIN notice_events n ON n.event = e.kind JOIN notice_kinds k ON k.kind = n.kind
JOIN reservations r ON r.id = e.reservation_id JOIN users u ON u.id = r.user_id
WHERE NOT (e.kind = 'booking_over' AND e.after = 'ending')
"""
_DELIVERY = re.compile(r"evt-(\d+)-ntg-[0-9a-z]+")


class Lab:
    """A system with settings of a guide; `root` administers it. Methods block: the system runs in another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._settled: list[dict[str, Any]] | None = None
        self.time: ShiftedTime
        self.counted: SharedClock
        self.runtime: Runtime
        self.settings: StandaloneSettings
        self.engine: AsyncEngine
        self.system: System
        self.receiver: Receiver

    def wait_for(self, asked: Coroutine[Any, Any, T]) -> T:
        """Its answer, worked out where the system runs."""
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result(_PATIENCE_S)

    def rows(self, sql: str, **values: object) -> list[dict[str, Any]]:
        """What a query answers."""
        return self.wait_for(self.ask(sql, **values))

    def cli(self, who: str, *words: str) -> Finished:
        """Somebody types `gpu-dev …`, at the lab's time."""
        lab = self

        class LabTime(datetime):
            @classmethod
            def now(cls, tz: Any = None) -> "LabTime":
                at = lab.time.now().astimezone(tz)
                return cls.fromisoformat(at.isoformat())

        with patch("gpu_dev.inputs.machine_zone.datetime", LabTime):
            return self.system.cli(*words, who=who, NO_COLOR="1", COLUMNS="200")

    def go_to(self, at: datetime) -> None:
        """Let time pass until then: stop wherever something is due, and let it happen."""
        while True:
            [due] = self.rows(_NEXT_DUE, now=self.time.now(), until=at, **self._warnings())
            self.wait_for(self._go_to(due["min"] or at))
            self._settled = None
            self.settle()
            if due["min"] is None:
                return

    def _warnings(self) -> dict[str, int]:
        """The last warning of each kind."""
        return {
            name: min(getattr(self.settings, name)) for name in ("starting_soon_s", "ending_soon_s", "warn_before_s")
        }

    async def _go_to(self, at: datetime) -> None:
        await self.time.go_to(at)
        await self.counted.adopt()

    def settle(self) -> None:
        """Let happen what is due now, and see that the ledger is in order."""
        self.wait_for(self._settle())

    def told(self) -> set[Told]:
        """Users whom notifications have reached, each at the place where only they are told. What came twice is here
        once.
        """
        came = {(got.path.rpartition("/")[2], got.headers.get("x-gpu-dev-delivery", "")) for got in self.receiver.got}
        ids = {(who, int(found[1])) for who, delivery in came if (found := _DELIVERY.search(delivery)) is not None}
        events = {row["id"]: row for row in self.rows(_EVENTS)}
        return {(who, events[number]["kind"], events[number]["reservation_id"], number) for who, number in ids}

    def to_be_told(self) -> set[Told]:
        """Notifications due, by the audit log and by users' preferences."""
        return {
            (row["user_name"], row["kind"], row["reservation_id"], row["id"])
            for row in self.rows(_EVENTS)
            if row["wanted"]
        }

    async def ask(self, sql: str, **values: object) -> list[dict[str, Any]]:
        """The same where the system runs."""
        async with self.engine.begin() as connection:
            return [dict(row) for row in (await connection.execute(text(sql), values)).mappings()]

    async def _settle(self) -> None:
        await eventually(self._calm)
        # Until nothing more comes of it: what came free in one look is handed on in the next.
        while self._settled != (newest := await self.ask(_LAST_EVENT)):
            self._settled = newest
            await expire_once(self.runtime, self.settings)
            await self._keep_calendar()
            await eventually(self._calm)
        await assert_in_order(self.ask)

    async def _keep_calendar(self) -> None:
        """As the leader does every second, by which time it may be another day here."""
        rules = BookingRules(self.settings.starting_soon_s, self.settings.ending_soon_s)
        keeping = BookingKeeping(rules, self.settings.no_show_grace)
        waitlist = Waitlist(self.runtime.uow, self.runtime.ids, self.settings.offer)
        await keep_calendar(self.runtime.uow, self.runtime.ids, keeping, waitlist, self.settings.end_grace)

    async def _calm(self) -> bool:
        async with self.runtime.uow() as uow:
            waiting = [metric.queue for metric in await uow.queue.metrics() if metric.depth]
        return not waiting and not await self.ask(_BUSY)


class _LabThread(threading.Thread):
    """The lab's event loop."""

    def __init__(self, url: str, folder: Path, at: datetime, environment: Mapping[str, str]) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._environment = environment
        self._folder = folder
        self._at = at
        self.loop = asyncio.new_event_loop()
        self.stopping = asyncio.Event()
        self.up = threading.Event()
        self.lab = Lab(self.loop)
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.loop.run_until_complete(self._serve())
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it again
            self.error = error
        finally:
            self.loop.close()
            self.up.set()

    async def _serve(self) -> None:
        lab = self.lab
        lab.time = await ShiftedTime.install(self._url, self._at)
        async with AsyncExitStack() as closing:
            lab.receiver = await closing.enter_async_context(receiving())
            with patch.dict("os.environ", self._environment):
                lab.settings = _settings(self._folder)
            runtime = await closing.enter_async_context(open_runtime(lab.settings, self._url))
            # A cluster of its own: the one of the runtime compares the time with that of its files.
            cluster = ShiftedCluster(open_cluster(lab.settings, SystemClock()), lab.time)
            closing.push_async_callback(cluster.close)
            # It really is another time: no step that a leader should correct.
            assert isinstance(runtime.clock, SharedClock)
            lab.counted = runtime.clock
            lab.runtime = replace(runtime, clock=lab.time, cluster=cluster, steps=None)
            lab.engine = open_engine(self._url, pool=2, application="lab")
            closing.push_async_callback(lab.engine.dispose)
            closing.push_async_callback(end_all_pods, cluster)
            await update_inventory(lab.runtime.uow, cluster, lab.time)
            tokens = {"root": await _administrator(lab.runtime)}
            processing = asyncio.create_task(process(lab.runtime, lab.settings, self.stopping))

            def ready(url: str) -> None:
                lab.system = System(url, tokens, self._folder)
                self.up.set()

            try:
                app = create_app(lab.runtime, lab.settings)
                await serve(app, "127.0.0.1:0", stop=self.stopping, ready=ready)
            finally:
                self.stopping.set()
                await processing


def _settings(folder: Path) -> StandaloneSettings:
    """The environment's, and nobody waits longer than need be."""
    settings = StandaloneSettings(home=folder / "home", end_grace_s=1, sweep_s=0.1, estimate_s=0.1, resync_s=0.5)
    return settings.model_copy(update={"notices": settings.notices.model_copy(update={"sweep_s": 0.1})})


async def _administrator(runtime: Runtime) -> str:
    now = runtime.clock.now()
    secret = runtime.ids.new_secret()
    async with runtime.uow() as uow:
        user = await uow.identities.create_user("root", Role.ADMIN, now)
        await uow.identities.create_token(
            runtime.ids.new_id("tok"), user.id, None, runtime.ids.digest(secret), None, now
        )
    return secret


@contextmanager
def open_lab(url: str, folder: Path, at: datetime, environment: Mapping[str, str]) -> Iterator[Lab]:
    """A lab at this time, with these settings, on a migrated database, while the block runs."""
    thread = _LabThread(url, folder, at, environment)
    thread.start()
    assert thread.up.wait(_PATIENCE_S)
    if thread.error is not None:
        raise thread.error
    try:
        yield thread.lab
    finally:
        thread.loop.call_soon_threadsafe(thread.stopping.set)
        thread.join(_PATIENCE_S)
    if thread.error is not None:
        raise thread.error
