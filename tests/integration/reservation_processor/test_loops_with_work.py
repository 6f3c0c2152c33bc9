"""Loops that ask the database only where there is something to do: given that, each sees every class of error."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from api_service import services
from api_service.services import Services
from pod_scheduling.runtime import pod_ending
from reservation_core.ports.queues import QueuedMessage, QueueName
from reservation_core.runtime import wiring
from reservation_core.runtime.loops.messages_in_hand import MessagesInHand
from reservation_core.runtime.processes.companions import beside
from reservation_core.runtime.settings.components import StandaloneSettings
from reservation_core.runtime.wiring import Runtime, open_runtime
from reservation_core.usecases.pods.end_pods import PodEnder
from reservation_processor import leading
from reservation_processor.sampling import keep_sampling
from tests.database.postgres_fault_proxy import FaultProxy, fault_proxy
from tests.integration.reservation_processor.test_loops_outlive import LOOPS, OFTEN_S, SQLSTATES, bounded_engine
from tests.waiting import eventually

LEASE = timedelta(seconds=3)
REPOSITORY = Path(__file__).parents[3]
COMPONENTS = (
    "admission_webhook", "api_service", "availability_updater", "gpu_admission", "gpu_scheduler", "pod_scheduling",
    "reservation_core", "reservation_expiry", "reservation_processor", "ssh_gateway", "standalone",
)  # fmt: skip
WITH_WORK = [
    "ending_pods", "gpu_use", "leadership", "notifications_forgotten", "notifications_hidden", "retention",
    "token_uses",
]  # fmt: skip
OTHERWISE = {
    "access_log": "writes a file",
    "certificate": "reads files",
    "certificates": "asks the cluster",
    "connections": "works while users are in jobs: tests/integration/api_service/sessions",
    "cron_jobs": "asks the cluster",
    "database_server": "looks after a process: tests/unit/standalone/test_system.py",
    "events": "writes to the cluster",
    "expiry": "the name in `make up` of what is `expire` here",
    "first_look": "is over before the others begin: test_first_look.py",
    "follower": "tells what could not be looked at, and looks again: tests/faults/test_database_killed.py",
    "job_tokens": "is over once its key is read",
    "node_cards": "asks the node and the cluster",
    "notice_routes": "is over once its row is stored",
    "owners_file": "reads a file",
    "pod_ending_lease": "asks the cluster",
    "policy_file": "is over once the database was there: test_starting_without_database.py",
    "reconsider": "works in memory",
    "replica": "asks the replica: tests/integration/api_service/database/test_replica.py",
    "ssh_connections": "the name in the gateway of what is `connections` in the API",
    "ssh_keys": "is over once they are read",
    "standings": "asks the API",
    "streams": "waits for what `wake_ups` hears",
    "submissions": "hands every error to those who wait: integration/api_service/database/test_database_answers.py",
    "sweep": "works in memory",
    "updater": "the name in `make up` of what is `update` here",
}
ONE_OF_EACH_CLASS = {sqlstate[:2]: sqlstate for sqlstate in SQLSTATES}.values()
_NAMED = re.compile(r"""\b(?:loops|Loops\(\))(?:\[|\.keep\(\s*)f?"(?:\{[^}]*\})?(\w+)\"""")


def test_no_loop_is_left_out() -> None:
    """Each loop in the code sees the errors here or in `test_loops_outlive`, or says why it does not need to."""
    found = {
        name
        for component in COMPONENTS
        for module in (REPOSITORY / component).rglob("*.py")
        for name in _NAMED.findall(module.read_text())
    }
    assert len(found) > 30
    # One for each queue.
    tried = {*LOOPS, *WITH_WORK, "_forgotten", "_hidden"}
    assert found - tried == OTHERWISE.keys()
    assert not tried & OTHERWISE.keys()


@dataclass(frozen=True)
class Busy:
    """A runtime whose database is behind the proxy, with work for each of the loops; and one without the proxy."""

    runtime: Runtime
    beside: Runtime
    services: Services
    hand: MessagesInHand
    taken: list[QueuedMessage] = field(default_factory=list)

    async def take_messages(self) -> None:
        """Have two in hand."""
        async with self.beside.uow() as uow:
            await uow.queue.send(QueueName.NOTIFICATIONS, [{"number": 1}, {"number": 2}])
        self.taken.extend(await self.hand.take(2))

    def give_work(self) -> None:
        """One of the messages was handled, and a token was used."""
        self.hand.handled([self.taken.pop().id])
        self.services.authenticator._used["tok-unknown"] = self.runtime.clock.now()


class NoPods:
    """A cluster in which there are none, and in which this process has the lease."""

    def holds(self) -> bool:
        """Always."""
        return True

    async def follow(self, show: Callable[[Mapping[str, object]], None]) -> None:
        """There is never anything to see."""
        show({})
        await asyncio.get_running_loop().create_future()


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[FaultProxy]:
    """What stands before the database."""
    async with fault_proxy(database_url) as standing:
        yield standing


@pytest.fixture
async def busy(
    proxy: FaultProxy, database_url: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Busy]:
    """A processor that stands by, removal of what is old, the ending of pods, a consumer and an API; another leads."""
    monkeypatch.setattr(wiring, "open_engine", bounded_engine)
    monkeypatch.setattr(services, "LAST_USED_EVERY_S", OFTEN_S)
    monkeypatch.setattr(leading, "_LONGEST_REST_S", OFTEN_S)
    recording = tmp_path / "use.csv"
    recording.write_text("at_s,gpu,utilisation\n0,0,0.5\n")
    settings = StandaloneSettings(
        home=tmp_path, local_gpus="h100:1", local_use=recording, sample_every_s=1, lease_s=LEASE.total_seconds(),
        retention={"look_s": OFTEN_S},
    )  # fmt: skip
    stop, world = asyncio.Event(), cast("Any", NoPods())
    async with AsyncExitStack() as stack:
        runtime = await stack.enter_async_context(open_runtime(settings, proxy.url))
        other = await stack.enter_async_context(open_runtime(settings, database_url))
        async with other.uow() as uow:
            epoch = await uow.planning.acquire("another", LEASE)
        assert epoch is not None
        works = {
            "lease": leading._renew(other, epoch, LEASE),
            "leadership": leading.lead(runtime, settings, stop),
            "retention": leading._remove_old(runtime, settings),
            "gpu use": keep_sampling(runtime, settings),
            "ending of pods": pod_ending._Watching(
                PodEnder(runtime.uow, world, pod_ending._rules(settings)), world, OFTEN_S, runtime.loops["ending_pods"]
            ).run(world),
        }
        for name, work in works.items():
            await stack.enter_async_context(beside(work, name=name))
        api = Services.of(runtime, settings)
        await stack.enter_async_context(api.running())
        hand = MessagesInHand(runtime.uow, QueueName.NOTIFICATIONS, timedelta(seconds=1), runtime.loops)
        await stack.enter_async_context(hand.keep_hidden())
        try:
            yield Busy(runtime, other, api, hand)
        finally:
            proxy.heal()


async def test_no_sqlstate_ends_a_loop_that_has_something_to_do(busy: Busy, proxy: FaultProxy) -> None:
    loops = busy.runtime.loops

    def spared(before: dict[str, int]) -> list[str]:
        return [name for name in WITH_WORK if loops[name].failures == before[name]]

    for sqlstate in ONE_OF_EACH_CLASS:
        await busy.take_messages()
        before = {name: loops[name].failures for name in WITH_WORK}
        proxy.answer(sqlstate)
        busy.give_work()
        try:
            await eventually(lambda before=before: not spared(before))
        except AssertionError:
            pytest.fail(f"{sqlstate}: these loops did not see it: {spared(before)}")
        proxy.heal()
        await eventually(lambda: not loops.failing())
