"""A small world for use cases: a real database and queue, a clock that is set and a cluster that is scripted."""

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import CursorResult

from reservation_core.adapters.identity.ids import RandomIds
from reservation_core.adapters.postgres.unit_of_work import UnitOfWorkFactory
from reservation_core.contracts.jobs import JobSubmit
from reservation_core.contracts.queue_messages import PodOperation
from reservation_core.domain.model import AllocatedGpu, PodName, PodPhase, PodStatus, Reservation
from reservation_core.domain.policy.limits import NO_POLICY, Policy
from reservation_core.domain.statuses import JobStatus, Role
from reservation_core.ports.history.events import EventRecord
from reservation_core.ports.jobs.reservations import JobView, NewReservation
from reservation_core.ports.people.identities import Principal
from reservation_core.ports.queues import QueueName
from reservation_core.usecases.jobs.submit import prepare, submit
from reservation_core.usecases.planning.planner import Planner, PlannerRules
from reservation_core.usecases.running.observe import observe
from reservation_core.usecases.running.perform_pod_operations import LaunchRules, perform
from tests.clocks import SettableClock
from tests.clusters.scripted_cluster import ScriptedCluster
from tests.database.sql import sql

LONGEST = timedelta(hours=24)
ALLOWANCE = timedelta(minutes=2)
RULES = PlannerRules(
    start_allowance=ALLOWANCE,
    window=1000,
    batch=1000,
    messages=1000,
    estimates=500,
    estimate_every=timedelta(0),
    reload_every=timedelta(hours=1),
    max_reads=2,
)
MAX_STARTS = 3
LAUNCH = LaunchRules(grace=timedelta(seconds=10), belt=timedelta(seconds=30))


@dataclass
class World:
    """Everything a test of use cases talks to. Time passes only by `clock.go_on`."""

    uow: UnitOfWorkFactory
    clock: SettableClock
    cluster: ScriptedCluster
    who: Principal
    rules: PlannerRules = RULES
    launch: LaunchRules = LAUNCH

    def new(
        self,
        *,
        key: str | None = None,
        request: bytes = b"1",
        policy: Policy = NO_POLICY,
        as_user: bool = False,
        **fields: object,
    ) -> NewReservation:
        """A job as accepted; fields of JobSubmit, one GPU for an hour by default."""
        body = JobSubmit.model_validate({"gpus": 1, "duration": 3600, "workload": {"command": ["true"]}, **fields})
        who = self.who if as_user or body.priority <= 0 else replace(self.who, role=Role.ADMIN)
        new = prepare(body, who, ids=RandomIds(), longest=LONGEST, now=self.clock.now(), policy=policy)
        if key is None:
            return new
        return replace(new, idempotency_key=key, request_hash=request * 32, answer=new.reservation.id.encode())

    async def submitted(self, **fields: object) -> str:
        """The id of a fresh job."""
        [answer] = await submit(self.uow, [self.new(**fields)], self.clock.now())
        return answer.reservation_id

    async def planner(self) -> Planner:
        """A planner of a new epoch."""
        async with self.uow() as uow:
            epoch = await uow.planning.acquire("test", timedelta(hours=1))
        assert epoch is not None
        return Planner(self.uow, self.clock, epoch, self.rules)

    async def plan(self, *, slots: bool = False) -> None:
        """One cycle of a fresh planner, `slots` where wanted, and what it tells those who wait."""
        planner = await self.planner()
        await planner.cycle()
        while slots:
            slots = await planner.give_slots()
        await planner.publish_estimates()

    async def started(self, **fields: object) -> str:
        """The id of a fresh job that was given its GPUs and whose pods were asked for."""
        job_id = await self.submitted(**fields)
        await self.plan()
        assert (await self.row(job_id)).status is JobStatus.STARTING
        await self.operate()
        return job_id

    async def ran(self, **fields: object) -> str:
        """The id of a fresh job that runs."""
        job_id = await self.started(**fields)
        row = await self.row(job_id)
        await self.see(
            *(
                self.cluster.show(pod(job_id, rank), PodPhase.RUNNING, started_at=self.clock.now())
                for rank in range(row.nodes)
            )
        )
        assert (await self.row(job_id)).status is JobStatus.RUNNING
        return job_id

    async def operate(self) -> list[PodOperation]:
        """Carry out every pod operation there is; answers them."""
        done = []
        while True:
            async with self.uow() as uow:
                messages = await uow.queue.read(QueueName.POD_OPERATIONS, visibility=timedelta(seconds=60), limit=100)
            if not messages:
                return done
            for message in messages:
                operation = PodOperation.model_validate(message.body)
                await perform(self.uow, self.cluster, operation, self.clock, self.launch)
                async with self.uow() as uow:
                    await uow.queue.delete(QueueName.POD_OPERATIONS, [message.id])
                done.append(operation)

    async def see(self, *statuses: PodStatus) -> list[PodStatus]:
        """Observe; answers what has to be looked at again."""
        return await observe(self.uow, self.cluster, statuses, self.clock, MAX_STARTS)

    async def row(self, job_id: str) -> Reservation:
        """How a job stands."""
        async with self.uow() as uow:
            return (await uow.reservations.get([job_id]))[job_id]

    async def view(self, job_id: str) -> JobView:
        """What its owner is told."""
        async with self.uow() as uow:
            view = await uow.reservations.view(job_id, self.who.user_id)
        assert view is not None
        return view

    async def cards(self, job_id: str) -> tuple[AllocatedGpu, ...]:
        """Its GPUs."""
        async with self.uow() as uow:
            return (await uow.reservations.allocations([job_id])).get(job_id, ())

    async def events(self, job_id: str) -> list[EventRecord]:
        """Its record."""
        async with self.uow() as uow:
            return await uow.events.of_reservation(job_id, 0, 1000)

    async def kinds(self, job_id: str) -> list[str]:
        """The kinds of its events."""
        return [event.kind for event in await self.events(job_id)]

    async def sql(self, statement: str, **values: object) -> CursorResult[Any]:
        """What a statement answers, in a transaction of its own."""
        async with self.uow() as uow:
            return await sql(uow, statement, **values)

    async def depth(self, queue: str) -> int:
        """How many messages a queue holds."""
        async with self.uow() as uow:
            return {m.queue: m.depth for m in await uow.queue.metrics()}[queue]


def pod(job_id: str, rank: int = 0, attempt: int = 1) -> PodName:
    """A pod's name."""
    return PodName(job_id, attempt, rank)
