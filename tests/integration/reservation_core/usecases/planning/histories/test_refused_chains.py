"""Random histories of chains on a real ledger: no plan is refused for ever, and no slot comes too early."""

import random
from contextlib import suppress
from datetime import timedelta

import pytest

from reservation_core.domain.errors import DomainError
from reservation_core.domain.jobs.asked_dependencies import DependencyWhen
from reservation_core.domain.model import PodPhase
from reservation_core.domain.statuses import JobStatus
from reservation_core.usecases.jobs.cancel import cancel
from reservation_core.usecases.jobs.extend import extend
from tests.integration.reservation_core.usecases.jobs.test_dependencies import dependent, settle_all
from tests.integration.reservation_core.usecases.planning.histories.random_histories import (
    RandomHistory,
    has_amounts,
    refusals,
)
from tests.integration.reservation_core.usecases.world import LONGEST, World, pod

__all__ = ["refusals"]

LATELY = 8
TOO_EARLY = """
SELECT s.reservation_id, n.needs_id, lower(s.during) AS starts_at, a.during
FROM allocations s CROSS JOIN LATERAL open_needs(s.reservation_id) AS n
LEFT JOIN allocations a ON a.reservation_id = n.needs_id AND a.released_at IS NULL
WHERE s.planned AND s.follows AND lower(s.during) > :after
  AND lower(s.during) < CASE WHEN n.by_start THEN lower(a.during) ELSE upper(a.during) END - interval '2 seconds'
"""
"""Slots to come that begin before what their jobs wait for ends at the latest, by more than a start may be late."""


class ChainHistory(RandomHistory):
    """Jobs that often wait for others that were submitted lately."""

    async def submit(self) -> str:
        world, chance = self.world, self.chance
        request = {
            "gpus": chance.choice([0, 1, 1, 2]),
            "duration": chance.choice([600, 1800, 3600]),
            "priority": chance.choice([0, 0, 0, -1]),
            "retries": {"max": 1} if chance.random() < 0.2 else None,
        }
        if not request["gpus"]:
            request["resources"] = {"cpus": chance.choice([1, 2, 3])}
        elif chance.random() < 0.1:
            request["preemptible"] = True
        if not self.jobs or chance.random() < 0.3:
            return await world.submitted(**request)
        lately = self.jobs[-LATELY:]
        named = chance.sample(lately, min(len(lately), chance.choice([1, 1, 2, 3])))
        return await dependent(world, {job: chance.choice(list(DependencyWhen)) for job in named}, **request)

    async def settle(self) -> None:
        await settle_all(self.world)

    async def check(self) -> None:
        for _ in range(100):
            await self.planner.cycle()
            if not await self.planner.give_slots():
                break
        else:
            pytest.fail("there is no end to planning")
        assert (await self.world.sql(TOO_EARLY, after=self.world.clock.now() + timedelta(seconds=2))).all() == []

    async def go_on(self, job: str) -> bool:
        world, chance = self.world, self.chance
        row, now, drawn = await world.row(job), world.clock.now(), chance.random()
        its = pod(job, 0, row.attempt)
        over = row.range_end is not None and row.range_end <= now
        if row.status is JobStatus.STARTING and drawn < 0.8:
            await world.see(world.cluster.show(its, PodPhase.RUNNING, started_at=now))
        elif row.status is JobStatus.RUNNING and drawn < (0.5 if over else 0.15):
            code = chance.choice([0, 0, 1])
            await world.see(world.cluster.show(its, PodPhase.FINISHED, started_at=now, finished_at=now, exit_code=code))
        elif row.status is JobStatus.ENDING and drawn < 0.7:
            await world.operate()
            await world.see(world.cluster.show(its, PodPhase.GONE))
        elif row.status in (JobStatus.RUNNING, JobStatus.QUEUED) and drawn > 0.9:
            with suppress(DomainError):
                async with world.uow() as uow:
                    longer = timedelta(minutes=chance.choice([5, 30]))
                    await extend(uow, world.who, job, longer, None, LONGEST, now)
        elif row.status is JobStatus.QUEUED and drawn < 0.03:
            async with world.uow() as uow:
                await cancel(uow, world.who, job, None, now)
        return True


@pytest.mark.parametrize("seed", [3, 5, 8])
async def test_a_plan_with_chains_that_was_refused_is_another_one_the_next_time(
    world: World, refusals: list[str], seed: int
) -> None:
    await has_amounts(world)
    await ChainHistory(world, await world.planner(), refusals, random.Random(seed)).play(50)
    promised = (
        "SELECT count(*) FROM start_promises p JOIN reservations r ON r.id = p.reservation_id AND r.held IS NOT NULL"
    )
    assert (await world.sql(promised)).scalar_one() > 5
    assert len(refusals) < 5
