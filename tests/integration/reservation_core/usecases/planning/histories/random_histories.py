"""Random histories on a real ledger, and what the ledger refused of the plans made in them."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from reservation_core.adapters.postgres.planning.planning import Planning
from reservation_core.domain.errors import CalendarConflictError
from reservation_core.usecases.planning.planner import Planner
from tests.integration.reservation_core.usecases.planning.test_cpu_jobs import GIB, keeps
from tests.integration.reservation_core.usecases.world import World

LATER = timedelta(milliseconds=5)
"""So much later than the planner's decision the database writes it."""
CYCLES = 5


@pytest.fixture
def refusals(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the ledger refused."""
    found: list[str] = []

    def watched(write: Callable[..., Any]) -> Callable[..., Any]:
        async def tried(*arguments: Any, **named: Any) -> Any:
            try:
                return await write(*arguments, **named)
            except CalendarConflictError as error:
                found.append(f"{write.__name__}: {error.__cause__}")
                raise

        return tried

    for name in ("commit", "commit_slots"):
        monkeypatch.setattr(Planning, name, watched(getattr(Planning, name)))
    return found


async def set_the_ledgers_clock(world: World) -> None:
    at = (world.clock.now() + LATER).isoformat()
    said = f"LANGUAGE sql VOLATILE AS $$ SELECT CAST('{at}' AS timestamptz) $$"
    await world.sql(f"CREATE OR REPLACE FUNCTION ledger_now() RETURNS timestamptz {said}")
    await world.sql(f"CREATE OR REPLACE FUNCTION ledger_time(counted timestamptz) RETURNS timestamptz {said}")


async def pass_time(world: World, by: timedelta) -> None:
    world.clock.go_on(by)
    await set_the_ledgers_clock(world)


async def has_amounts(world: World) -> None:
    await set_the_ledgers_clock(world)
    await keeps(world, 4000)
    await world.sql("UPDATE nodes SET cpu_milli = 8000, memory_bytes = :memory", memory=64 * GIB)


@dataclass
class RandomHistory:
    """What people and jobs do, by chance, and a planner between; no plan is refused again and again."""

    world: World
    planner: Planner
    refusals: list[str]
    chance: random.Random
    jobs: list[str] = field(default_factory=list)

    async def submit(self) -> str:
        """The id of a new job."""
        raise NotImplementedError

    async def settle(self) -> None:
        """Do what comes before each look of the planner."""

    async def check(self) -> None:
        """Do what comes after a plan that was not refused."""

    async def go_on(self, job: str) -> bool:
        """Something happens to a job, or nothing; false once nothing more will."""
        raise NotImplementedError

    async def play(self, steps: int) -> None:
        """Let so much happen."""
        for _ in range(steps):
            await pass_time(self.world, timedelta(seconds=self.chance.choice([0, 7, 61, 600, 1800])))
            for _ in range(self.chance.randint(0, 3)):
                self.jobs.append(await self.submit())
            await self._plan()
            await self.check()
            await self.world.operate()
            self.jobs = [job for job in list(self.jobs) if await self.go_on(job)]

    async def _plan(self) -> None:
        for _ in range(CYCLES):
            await pass_time(self.world, timedelta(seconds=1))
            before = len(self.refusals)
            await self.settle()
            await self.planner.cycle()
            await self.planner.give_slots()
            if len(self.refusals) == before:
                return
        pytest.fail(f"refused {CYCLES} times in a row: {self.refusals[-1]}")
