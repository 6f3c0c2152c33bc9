"""A lease has one holder at most, whatever happens to requests, and whoever has it anew is told so."""

import asyncio
import copy
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from reservation_core.adapters.kubernetes.api_server.errors import api_error
from reservation_core.adapters.kubernetes.api_server.retries import Transport
from reservation_core.adapters.kubernetes.other_objects.leases import Lease, LeaseRules
from reservation_core.ports.cluster import ClusterUnavailableError
from tests.clocks import SettableClock
from tests.examples import examples
from tests.virtual_time import run_virtually

RULES = LeaseRules(duration_s=15, renew_within_s=10, retry_s=2)


@dataclass
class Server:
    """One Lease object, with versions."""

    lease: dict[str, Any] | None = None
    version: int = 0
    holders: list[str] = field(default_factory=list)

    def do(self, method: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        if method == "GET" and self.lease is None:
            raise api_error(404, b'{"reason": "NotFound"}')
        if method == "POST" and self.lease is not None:
            raise api_error(409, b'{"reason": "AlreadyExists"}')
        if method == "PUT":
            assert body is not None
            said = body["metadata"].get("resourceVersion")
            if self.lease is None or said != self.lease["metadata"]["resourceVersion"]:
                raise api_error(409, b'{"reason": "Conflict"}')
        if method in ("POST", "PUT"):
            self.version += 1
            self.lease = copy.deepcopy(dict(body or {}))
            self.lease["metadata"] = {**self.lease["metadata"], "resourceVersion": str(self.version)}
            self.holders.append(self.lease["spec"]["holderIdentity"])
        return copy.deepcopy(self.lease or {})


@dataclass
class Way:
    """See Transport.request: the way from one candidate to the server, as good as its `harm` is low."""

    server: Server
    chance: random.Random
    harm: float = 0.0
    cut: bool = False

    async def request(self, method: str, path: str, *, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        del path
        if self.cut:
            await asyncio.sleep(1000)
        slow = self.chance.random() < self.harm
        await asyncio.sleep(self.chance.uniform(0, 6 if slow else 0.2))
        if self.chance.random() < self.harm / 2:
            raise ClusterUnavailableError("never came")
        answer = self.server.do(method, body)
        await asyncio.sleep(self.chance.uniform(0, 6 if slow else 0.2))
        if self.chance.random() < self.harm / 2:
            raise ClusterUnavailableError("the answer was lost")
        return answer


class WallClock(SettableClock):
    """Goes on with the loop's time, and is set to another time now and then."""

    def now(self) -> datetime:
        return self.at + timedelta(seconds=asyncio.get_running_loop().time())


@dataclass
class Candidate:
    way: Way
    name: str
    clock: WallClock = field(default_factory=WallClock)
    told_to_lead: bool = False
    task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.lease = Lease(cast("Transport", self.way), self.clock, "ns", "gpu-scheduler", self.name, RULES)
        self.task = asyncio.create_task(self.lease.keep(self._gained, lambda: True))

    def _gained(self) -> None:
        self.told_to_lead = True

    def look(self) -> bool:
        """Whether it holds; who does has been told, after every time in which it did not."""
        holds = self.lease.holds()
        if not holds:
            self.told_to_lead = False
        assert not holds or self.told_to_lead, f"{self.name} leads and was not told"
        return holds

    async def stop(self) -> None:
        assert self.task is not None
        assert not self.task.done()
        self.task.cancel()
        await asyncio.wait([self.task])


async def story(seed: int) -> None:
    chance = random.Random(seed)
    server = Server()
    candidates = [Candidate(Way(server, random.Random(chance.random())), f"c{number}") for number in range(3)]
    for process in candidates:
        process.start()
    for _ in range(2000):
        await asyncio.sleep(0.1)
        assert sum([process.look() for process in candidates]) <= 1
        if chance.random() < 0.03:
            one = chance.choice(candidates)
            match chance.choice(["cut", "harm", "well", "clock", "again"]):
                case "cut":
                    one.way.cut = True
                case "harm":
                    one.way.harm = 0.5
                case "well":
                    one.way.cut, one.way.harm = False, 0.0
                case "clock":
                    one.clock.go_on(timedelta(seconds=chance.uniform(-(10**6), 10**6)))
                case "again":
                    await one.stop()
                    one.start()
    for candidate in candidates:
        candidate.way.cut, candidate.way.harm = False, 0.0
    await asyncio.sleep(60)
    assert sum([process.look() for process in candidates]) == 1
    for candidate in candidates:
        await candidate.stop()
    assert server.lease is not None
    assert server.lease["spec"]["holderIdentity"] == ""


@given(st.integers(0, 2**32))
@examples(40)
def test_never_two_and_in_the_end_one(seed: int) -> None:
    run_virtually(story(seed))


def test_who_lost_it_and_has_it_again_between_two_looks_is_told_anew() -> None:
    async def work() -> None:
        server = Server()
        one = Candidate(Way(server, random.Random(1)), "one")
        one.start()
        await asyncio.sleep(1)
        assert one.look()
        assert server.lease is not None
        # While it did not look, another had the lease, and has given it back.
        server.do("PUT", {**server.lease, "spec": {"holderIdentity": "another"}})
        server.do("PUT", {**server.lease, "spec": {"holderIdentity": ""}})
        one.told_to_lead = False
        await asyncio.sleep(4)
        assert one.look()
        await one.stop()

    run_virtually(work())


def test_it_is_given_back_only_when_it_may_be() -> None:
    async def work(may: bool) -> str:
        server = Server()
        way = cast("Transport", Way(server, random.Random(1)))
        lease = Lease(way, WallClock(), "ns", "gpu-scheduler", "one", RULES)
        task = asyncio.create_task(lease.keep(lambda: None, lambda: may))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.wait([task])
        assert server.lease is not None
        return str(server.lease["spec"]["holderIdentity"])

    assert run_virtually(work(may=True)) == ""
    assert run_virtually(work(may=False)) == "one"


def test_what_is_written_lasts_no_shorter_than_what_is_meant() -> None:
    async def work() -> None:
        server = Server()
        rules = LeaseRules(duration_s=1.4, renew_within_s=1.2, retry_s=0.2)
        lease = Lease(cast("Transport", Way(server, random.Random(1))), WallClock(), "ns", "n", "one", rules)
        task = asyncio.create_task(lease.keep(lambda: None, lambda: True))
        await asyncio.sleep(1)
        assert server.lease is not None
        assert server.lease["spec"]["leaseDurationSeconds"] == 2
        task.cancel()
        await asyncio.wait([task])

    run_virtually(work())
