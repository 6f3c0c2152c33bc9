"""What happens at the same moment as something else, or while the cluster can't be asked, ends nothing that lives."""

import asyncio
import json
import os
import random
import signal
from dataclasses import dataclass
from datetime import timedelta

from reservation_core.domain.cards.node_reports import NodeReport
from reservation_core.domain.errors import AlreadyFinalError, DomainError
from reservation_core.domain.model import PodName, PodSpec, PodWorkload
from reservation_core.domain.statuses import JobStatus, ReasonCode
from reservation_core.ports.cluster import ClusterUnavailableError
from reservation_core.ports.transactions import DatabaseUnavailableError
from reservation_core.runtime.wiring import Runtime
from reservation_core.usecases.jobs.extend import extend
from reservation_core.usecases.nodes.update_inventory import update_inventory
from tests.faults.systems.invariants import assert_never_doubled, assert_nothing_left, outcomes
from tests.faults.systems.system import LONGEST, System, mixed
from tests.faults.systems.watched_runtime import watched
from tests.waiting import eventually


async def test_cancels_at_any_moment_of_the_start(system: System) -> None:
    """Create, cancel and delete of the same job meet in every order; some jobs never begin, none begins twice."""
    source = mixed(3)

    async def one(number: int) -> None:
        workload = system.records.workload(work="sleep 600" if number % 2 else ":")
        [job_id] = await system.submit(system.new(workload, nodes=1 + number % 2))
        # Not a wait for something: these are the moments that are tried.
        await asyncio.sleep(source.random() * 0.6)
        if number % 2 or source.random() < 0.5:
            try:
                await system.cancel(job_id)
            except AlreadyFinalError:
                return

    async with system.working(), asyncio.timeout(120):
        async with asyncio.TaskGroup() as group:
            for number in range(60):
                group.create_task(one(number))
        await eventually(system.all_final, timeout=300)
        await assert_nothing_left(system)
    assert {status for status, _ in (await outcomes(system)).values()} <= {JobStatus.CANCELLED, JobStatus.SUCCEEDED}
    await assert_never_doubled(system)


async def test_extending_races_with_the_end(system: System) -> None:
    """A user notified that a job lasts longer is told the truth: it is not expired before the end it was promised."""
    promised: dict[str, object] = {}

    async def extend_at_the_end(job_id: str) -> None:
        view = await system.reaches(job_id, JobStatus.RUNNING, JobStatus.ENDING, JobStatus.EXPIRED)
        ends_at = view.reservation.ends_at
        assert ends_at is not None
        await eventually(lambda: system.runtime.clock.now() >= ends_at - timedelta(milliseconds=20))
        try:
            async with system.runtime.uow() as uow:
                by = timedelta(seconds=2)
                answer = await extend(uow, system.owner, job_id, by, None, LONGEST, system.runtime.clock.now())
        except DomainError:
            return
        promised[job_id] = answer.reservation.ends_at

    async def all_expired() -> bool:
        await system.expire()
        return await system.all_final()

    async with system.working():
        ids = await system.submit(
            *(system.new(system.records.workload(work="sleep 600"), duration=3) for _ in range(8))
        )
        async with asyncio.TaskGroup() as group:
            for job_id in ids:
                group.create_task(extend_at_the_end(job_id))
            await eventually(all_expired)
        await assert_nothing_left(system)
    for job_id, ends_at in promised.items():
        [[ended]] = await system.rows(
            "SELECT at FROM events WHERE reservation_id = :id AND kind = 'end_reached'", id=job_id
        )
        assert ended >= ends_at
    assert {status for status, _ in (await outcomes(system)).values()} == {JobStatus.EXPIRED}
    await assert_never_doubled(system)


async def test_a_node_that_vanishes_gets_nothing_new_and_loses_nothing_live(system: System) -> None:
    """The updater no longer sees the node; its jobs run on, its cards are free for nobody, and return with it."""
    nodes = await system.runtime.cluster.list_nodes()
    async with system.working():
        ids = await system.submit(*(system.new(system.records.workload(work="sleep 600"), gpus=4) for _ in range(2)))
        for job_id in ids:
            await system.reaches(job_id, JobStatus.RUNNING)
        [gone] = {gpu.node for gpu in (await system.job(ids[0])).allocations}
        await update_inventory(system.runtime.uow, _Nodes([n for n in nodes if n.name != gone]), system.runtime.clock)
        # Each of its messages has been handled, and both jobs are as they were.
        [waiting] = await system.submit(system.new(system.records.workload(), gpus=4))
        await system.cancel(ids[0])
        await system.reaches(ids[0], JobStatus.CANCELLED)

        async def told() -> bool:
            reason = (await system.job(waiting)).reservation.reason.code
            return reason in (ReasonCode.WAITING_FOR_GPUS, ReasonCode.NODE_UNAVAILABLE)

        await eventually(told)
        assert await system.status(waiting) is JobStatus.QUEUED
        assert await system.status(ids[1]) is JobStatus.RUNNING
        await update_inventory(system.runtime.uow, _Nodes(nodes), system.runtime.clock)
        await system.reaches(waiting, JobStatus.SUCCEEDED)
        await system.cancel(ids[1])
        await system.reaches(ids[1], JobStatus.CANCELLED)
        await assert_nothing_left(system)
    await assert_never_doubled(system)


@dataclass(frozen=True, slots=True)
class _Nodes:
    """A cluster of which only the nodes are asked."""

    nodes: list[NodeReport]

    async def list_nodes(self) -> list[NodeReport]:
        return self.nodes

    async def list_pods(self, *, foreign: bool = False) -> object:
        return _NO_PODS


class _NoPods:
    pods = ()
    foreign = ()


_NO_PODS = _NoPods()


async def test_a_start_that_gets_stuck_is_given_up_with_a_reason(system: System) -> None:
    """The cluster takes no pod; the expiry ends the job, its cards go to the next."""
    stuck = True

    def refuse(moment: str) -> None:
        if stuck and moment == "before create_pod":
            raise ClusterUnavailableError("no pods today")

    async with system.working(watched(system.runtime, refuse)):
        [job_id] = await system.submit(system.new(system.records.workload(), gpus=4, nodes=2))
        await system.reaches(job_id, JobStatus.STARTING)

        async def given_up() -> bool:
            await system.expire(start_allowance_s=0.5)
            return await system.status(job_id) is JobStatus.FAILED

        await eventually(given_up)
        assert (await system.job(job_id)).reservation.reason.code is ReasonCode.START_TIMEOUT
        stuck = False
        [following] = await system.submit(system.new(system.records.workload(), gpus=4, nodes=2))
        await system.reaches(following, JobStatus.SUCCEEDED)
        await assert_nothing_left(system)
    assert job_id not in system.records.started()


async def test_a_lost_create_is_sent_again(system: System) -> None:
    """No message ever comes: only the comparison of the rows with the pods can start this job."""
    [job_id] = await system.submit(system.new(system.records.workload(work="sleep 600")))
    await lose_messages(system, job_id)
    async with system.working():
        await system.reaches(job_id, JobStatus.RUNNING)
        await system.cancel(job_id)
        await system.reaches(job_id, JobStatus.CANCELLED)
        await assert_nothing_left(system)


async def lose_messages(system: System, job_id: str) -> None:
    """Let a processor allocate and take the create away before anybody reads it."""

    def lost(moment: str) -> None:
        if moment == "before read of pod_operations committed":
            raise DatabaseUnavailableError("not this time")

    async with system.working(watched(system.runtime, lost)):
        await system.reaches(job_id, JobStatus.STARTING)
    await system.rows("DELETE FROM pgmq.q_pod_operations")


async def test_a_lost_pod_fails_its_job_and_an_orphan_is_removed(system: System) -> None:
    """Somebody deletes a pod behind our back; somebody leaves one that no reservation accounts for."""
    async with system.working(unknown_pods="end"):
        job_id, killed = await system.submit(*(system.new({"command": ["sleep", "600"]}) for _ in range(2)))
        await system.reaches(job_id, JobStatus.RUNNING)
        await system.reaches(killed, JobStatus.RUNNING)
        await system.runtime.cluster.delete_pod(str(PodName(job_id, 1, 0)), timedelta(seconds=5))
        view = await system.reaches(job_id, JobStatus.FAILED)
        # Whichever is seen first, that it was killed or that it is gone: nobody had asked for it.
        assert view.reservation.reason.code in (ReasonCode.KILLED_BY_SIGNAL, ReasonCode.POD_LOST)
        state = json.loads((system.home / "pods" / str(PodName(killed, 1, 0)) / "state.json").read_text())
        os.kill(state["supervisor_pid"], signal.SIGKILL)
        view = await system.reaches(killed, JobStatus.FAILED)
        assert view.reservation.reason.code is ReasonCode.POD_LOST
        for name in (PodName(job_id, 2, 0), PodName("job-nobody0s", 1, 0)):
            await system.runtime.cluster.create_pod(orphan(system, name))

        async def removed() -> bool:
            return not (await system.runtime.cluster.list_pods()).pods

        await eventually(removed)
        kinds = ("orphan_removed", "unknown_pod_end_requested")
        ended = await system.rows("SELECT kind, subject FROM events WHERE kind = ANY(:kinds)", kinds=list(kinds))
        assert {row.kind: row.subject for row in ended} == dict(
            zip(kinds, (str(PodName(job_id, 2, 0)), "job-nobody0s-1-0"), strict=True)
        )
        await assert_nothing_left(system)


def orphan(system: System, name: PodName) -> PodSpec:
    """A pod that nobody asked for."""
    return PodSpec(
        name=name,
        user="nobody",
        node="a",
        gpu_indices=(0,),
        gpu_uuids=(None,),
        workload=PodWorkload(("sleep", "600")),
        env=(),
        deadline=system.runtime.clock.now() + timedelta(hours=1),
        grace=timedelta(seconds=1),
    )


def failing(source: random.Random, share: float) -> object:
    """A listener that lets that share of the cluster's calls fail, before or after they did their work."""

    def heard(moment: str) -> None:
        if not moment.endswith("committed") and source.random() < share:
            raise ClusterUnavailableError(f"the cluster does not answer ({moment})")

    return heard


async def test_a_cluster_that_fails_at_random_ends_nothing_live(system: System) -> None:
    """A quarter of all calls fail, half of them after having worked; who runs goes on, who ends is told truly."""
    runtime: Runtime = watched(system.runtime, failing(mixed(4), 0.15))
    async with system.working(runtime):
        [long] = await system.submit(system.new(system.records.workload(11, work="sleep 6")))
        ids = await system.submit(
            *(
                system.new(system.records.workload(number % 2, work="sleep 0.1"), nodes=1 + number % 2)
                for number in range(16)
            )
        )
        for job_id in ids:
            await system.reaches(job_id, JobStatus.SUCCEEDED, JobStatus.FAILED, timeout=90)
        view = await system.reaches(long, JobStatus.FAILED)
        assert (view.reservation.exit_code, view.reservation.reason.code) == (11, ReasonCode.COMMAND_FAILED)
        await assert_nothing_left(system)
    seen = await outcomes(system)
    assert [seen[job_id][1] for job_id in ids] == [number % 2 for number in range(16)]
    await assert_never_doubled(system)


async def test_a_cluster_that_is_away_altogether_ends_nothing(system: System) -> None:
    """Whatever is asked, no answer comes: that is no word about any pod."""
    away = False

    def heard(moment: str) -> None:
        if away and not moment.endswith("committed"):
            raise ClusterUnavailableError("the cluster is away")

    async with system.working(watched(system.runtime, heard)):
        ids = await system.submit(*(system.new(system.records.workload(work="sleep 600")) for _ in range(3)))
        for job_id in ids:
            await system.reaches(job_id, JobStatus.RUNNING)
        away = True
        await system.cancel(ids[0])
        waiting = await system.submit(system.new(system.records.workload()))
        for _ in range(3):
            await system.expire()
            await asyncio.sleep(0.5)  # a while without a cluster: there is nothing to wait for
        assert [await system.status(job_id) for job_id in ids] == [
            JobStatus.ENDING,
            JobStatus.RUNNING,
            JobStatus.RUNNING,
        ]
        assert len(system.records.open()) == 3
        away = False
        await system.reaches(ids[0], JobStatus.CANCELLED)
        await system.reaches(waiting[0], JobStatus.SUCCEEDED)
        for job_id in ids[1:]:
            assert await system.status(job_id) is JobStatus.RUNNING
            await system.cancel(job_id)
            await system.reaches(job_id, JobStatus.CANCELLED)
        await assert_nothing_left(system)
    await assert_never_doubled(system)
