"""What dry runs predict from is read once, however long a request waits for its turn."""

import asyncio
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

from reservation_core.domain.cards.placement_policies import DEFAULT_POLICY
from reservation_core.domain.planning.run_times import RunTime
from reservation_core.usecases.policy.read_plan import JobTerms, LikelyStarts
from tests.clocks import START, SettableClock

TERMS = JobTerms(
    timedelta(days=1), timedelta(0), 1, fair_share=False, placement=DEFAULT_POLICY, slack=timedelta(0), estimates=1
)
MINUTE = timedelta(minutes=1)


class Ended:
    """Jobs that ended, and those that were read. The first look at them takes until `answer` is set."""

    def __init__(self) -> None:
        self.ends = [START]
        self.read: list[datetime] = []
        self.is_asked, self.answer = asyncio.Event(), asyncio.Event()

    async def run_times(self, since: datetime | None, limit: int) -> list[RunTime]:
        """See Planning.run_times."""
        found = [end for end in self.ends if since is None or end > since][-limit:]
        self.read += found
        self.is_asked.set()
        await self.answer.wait()
        return [RunTime(1, 1, 1, "h100", 60, 60, end) for end in found]


async def unlearnt() -> None:
    """Nothing is known of waits."""


async def test_a_job_that_ends_while_a_request_waits_is_read_once() -> None:
    clock, ended = SettableClock(), Ended()
    uow: Any = SimpleNamespace(planning=ended, learnt_waits=SimpleNamespace(read=unlearnt))
    likely = LikelyStarts(TERMS, clock)
    first = asyncio.create_task(likely.read(uow))
    await ended.is_asked.wait()
    clock.go_on(MINUTE)
    second = asyncio.create_task(likely.read(uow))
    await asyncio.sleep(0)  # it waits for the first
    ended.ends.append(clock.go_on(MINUTE))
    ended.answer.set()
    await asyncio.gather(first, second)
    clock.go_on(MINUTE)
    await likely.read(uow)
    assert ended.read == ended.ends
