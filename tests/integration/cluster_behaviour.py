"""What every cluster does, whatever runs its pods. A cluster's own tests inherit this and provide two fixtures.

`cluster` is a Cluster with a node `NODE`; `make_spec(*command, **changes)` gives a PodSpec for it, of a fresh
reservation.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from signal import SIGUSR1

from reservation_core.domain.model import PodName, PodPhase, PodSpec, PodStatus
from reservation_core.domain.statuses import ReasonCode
from reservation_core.ports.cluster import Cluster
from tests.waiting import eventually

NODE = "node-a"
GRACE = timedelta(seconds=5)
AT_ONCE = timedelta(0)
SpecMaker = Callable[..., PodSpec]


async def status_of(cluster: Cluster, spec: PodSpec) -> PodStatus | None:
    """The pod's status now, None when it is gone."""
    pods = await cluster.find_pods(spec.name.reservation_id)
    return next((pod for pod in pods if pod.name == spec.name), None)


def reaches(cluster: Cluster, spec: PodSpec, phase: PodPhase) -> Callable[[], Awaitable[PodStatus | None]]:
    """A condition for `eventually`: the pod is in that phase. For `gone`, the answer is its absence."""

    async def condition() -> PodStatus | None:
        status = await status_of(cluster, spec)
        if phase is PodPhase.GONE:
            return PodStatus(spec.name, PodPhase.GONE) if status is None else None
        return status if status is not None and status.phase is phase else None

    return condition


async def finished(cluster: Cluster, spec: PodSpec) -> PodStatus:
    """Wait for the pod's end."""
    status = await eventually(reaches(cluster, spec, PodPhase.FINISHED))
    assert status is not None
    return status


async def log_of(cluster: Cluster, spec: PodSpec, *, follow: bool = False) -> str:
    """All that the pod has printed."""
    return b"".join([chunk async for chunk in cluster.pod_logs(str(spec.name), follow=follow)]).decode()


def until_told(says: str = "echo ready") -> tuple[str, str, str]:
    """A command that says something, and runs until it is told to end: then with 3."""
    return "sh", "-c", f"trap 'exit 3' USR1; {says}; while :; do sleep 0.05; done"


async def tell_to_end(cluster: Cluster, spec: PodSpec) -> None:
    """Tell it so, once it has said something."""
    await eventually(lambda: log_of(cluster, spec))
    await cluster.signal_pod(str(spec.name), "USR1")


@asynccontextmanager
async def watching(cluster: Cluster) -> AsyncIterator[list[PodStatus]]:
    """Everything that `watch` says while the block runs."""
    seen: list[PodStatus] = []

    async def watch() -> None:
        async for status in cluster.watch():
            seen.append(status)  # noqa: PERF401 -- each is to be seen as it comes

    task = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def phases(seen: list[PodStatus], spec: PodSpec) -> list[PodPhase]:
    """The phases of one pod in the order in which they were said."""
    return [status.phase for status in seen if status.name == spec.name]


class ClusterBehaviour:
    """The port's promises, one by one."""

    async def test_nodes_have_cards_in_the_order_of_their_indices(self, cluster: Cluster) -> None:
        nodes = {node.name: node for node in await cluster.list_nodes()}
        indices = [gpu.index for gpu in nodes[NODE].gpus]
        assert indices == sorted(set(indices))
        assert indices
        assert nodes[NODE].ready
        assert nodes[NODE].schedulable

    async def test_a_command_runs_to_its_end_and_leaves_its_exit_code(
        self, cluster: Cluster, make_spec: SpecMaker
    ) -> None:
        spec = make_spec("sh", "-c", "echo out; echo err >&2; exit 7")
        await cluster.create_pod(spec)
        status = await finished(cluster, spec)
        assert (status.exit_code, status.reason) == (7, None)
        assert status.started_at is not None
        assert status.finished_at is not None
        assert status.started_at <= status.finished_at
        assert sorted((await log_of(cluster, spec)).split()) == ["err", "out"]

    async def test_success_is_exit_code_0(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        spec = make_spec("true")
        await cluster.create_pod(spec)
        assert (await finished(cluster, spec)).exit_code == 0

    async def test_a_signal_is_128_and_its_number(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        spec = make_spec("sh", "-c", "kill -9 $$")
        await cluster.create_pod(spec)
        assert (await finished(cluster, spec)).exit_code == 137

    async def test_a_command_that_is_not_there_is_a_failed_start(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        spec = make_spec("there-is-no-such-command")
        await cluster.create_pod(spec)
        status = await finished(cluster, spec)
        assert status.exit_code == 127
        assert status.reason is not None
        assert status.reason.code is ReasonCode.START_FAILED
        assert "there-is-no-such-command" in status.reason.detail

    async def test_a_pod_says_what_it_holds_as_long_as_it_exists(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        now = datetime.now(UTC)
        spec = replace(make_spec(*until_told()), pods=2, starts_at=now, ends_at=now + timedelta(hours=2))
        await cluster.create_pod(spec)
        running = await eventually(reaches(cluster, spec, PodPhase.RUNNING))
        assert running is not None
        await tell_to_end(cluster, spec)
        for holding in (running.holding, (await finished(cluster, spec)).holding):
            assert holding is not None
            assert (holding.node, holding.gpu_indices, holding.pods) == (spec.node, spec.gpu_indices, 2)
            assert abs(holding.starts_at - now) < timedelta(seconds=1)
            assert abs(holding.ends_at - holding.starts_at - timedelta(hours=2)) < timedelta(seconds=1)

    async def test_a_pod_may_hold_no_gpu(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        now = datetime.now(UTC)
        none = {"gpu_indices": (), "gpu_uuids": (), "env": (("CUDA_VISIBLE_DEVICES", ""),)}
        made = make_spec(*until_told('printf "<%s>" "$CUDA_VISIBLE_DEVICES"'))
        spec = replace(made, **none, starts_at=now, ends_at=now + timedelta(hours=2))
        await cluster.create_pod(spec)
        running = await eventually(reaches(cluster, spec, PodPhase.RUNNING))
        assert running is not None
        assert running.holding is not None
        assert (running.holding.node, running.holding.gpu_indices) == (spec.node, ())
        await cluster.create_pod(spec)  # it is the same pod
        await tell_to_end(cluster, spec)
        assert await log_of(cluster, spec, follow=True) == "<>"

    async def test_creating_again_does_nothing(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        spec = make_spec("sh", "-c", "echo once; sleep 600")
        await asyncio.gather(*(cluster.create_pod(spec) for _ in range(4)))
        await eventually(reaches(cluster, spec, PodPhase.RUNNING))
        await eventually(lambda: log_of(cluster, spec))
        await cluster.create_pod(spec)
        assert await log_of(cluster, spec) == "once\n"
        assert len(await cluster.find_pods(spec.name.reservation_id)) == 1

    async def test_creating_again_after_the_end_does_nothing(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        spec = make_spec("echo", "once")
        await cluster.create_pod(spec)
        before = await finished(cluster, spec)
        await cluster.create_pod(spec)
        assert await finished(cluster, spec) == before
        assert await log_of(cluster, spec) == "once\n"

    async def test_creating_after_the_removal_does_nothing(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        spec = make_spec("echo", "once")
        await cluster.create_pod(spec)
        await finished(cluster, spec)
        await cluster.delete_pod(str(spec.name), GRACE)
        await eventually(reaches(cluster, spec, PodPhase.GONE))
        await cluster.create_pod(spec)
        assert await status_of(cluster, spec) is None
        assert await log_of(cluster, spec) == "once\n"

    async def test_a_running_pod_is_deleted_with_sigterm(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        spec = make_spec("sh", "-c", "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.01; done")
        await cluster.create_pod(spec)
        await eventually(lambda: log_of(cluster, spec))
        await cluster.delete_pod(str(spec.name), timedelta(seconds=60))
        await eventually(reaches(cluster, spec, PodPhase.GONE))
        assert "bye" in (await log_of(cluster, spec)).splitlines()

    async def test_one_that_ignores_sigterm_is_killed(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        spec = make_spec("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.01; done")
        await cluster.create_pod(spec)
        await eventually(lambda: log_of(cluster, spec))
        await cluster.delete_pod(str(spec.name), timedelta(seconds=0.2))
        await eventually(reaches(cluster, spec, PodPhase.GONE))

    async def test_deleting_twice_or_what_never_was_is_nothing(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        spec = make_spec("sleep", "600")
        await cluster.delete_pod(str(spec.name), GRACE)
        await cluster.create_pod(spec)
        await asyncio.gather(*(cluster.delete_pod(str(spec.name), GRACE) for _ in range(3)))
        await eventually(reaches(cluster, spec, PodPhase.GONE))
        await cluster.delete_pod(str(spec.name), GRACE)
        assert await status_of(cluster, spec) is None

    async def test_a_session_holds_until_it_is_deleted(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        spec = make_spec()
        await cluster.create_pod(spec)
        await eventually(reaches(cluster, spec, PodPhase.RUNNING))
        await cluster.delete_pod(str(spec.name), GRACE)
        await eventually(reaches(cluster, spec, PodPhase.GONE))

    async def test_the_deadline_ends_a_pod(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        soon = datetime.now(UTC) + timedelta(seconds=0.3)
        spec = make_spec("sleep", "600", deadline=soon, grace=AT_ONCE)
        await cluster.create_pod(spec)
        status = await finished(cluster, spec)
        assert status.reason is not None
        assert status.reason.code is ReasonCode.DURATION_REACHED

    async def test_a_moved_deadline_is_the_one_that_counts(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        first = datetime.now(UTC)
        while first <= datetime.now(UTC):  # anew where a busy machine has made it and moved it too late
            first = datetime.now(UTC) + timedelta(seconds=4)
            spec = make_spec("sleep", "600", deadline=first, grace=AT_ONCE)
            await cluster.create_pod(spec)
            moved = first + timedelta(seconds=1)
            await cluster.extend_deadline(str(spec.name), moved)
        status = await finished(cluster, spec)
        assert status.finished_at is not None
        assert status.finished_at >= moved
        assert status.reason is not None
        assert status.reason.code is ReasonCode.DURATION_REACHED

    async def test_moving_the_deadline_of_nothing_is_nothing(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        spec = make_spec("true")
        await cluster.extend_deadline(str(spec.name), datetime.now(UTC))
        assert await status_of(cluster, spec) is None

    async def test_a_signal_comes_to_the_command(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        spec = make_spec("sh", "-c", "trap 'exit 7' USR1; while :; do sleep 0.05; done")
        await cluster.create_pod(spec)
        await eventually(reaches(cluster, spec, PodPhase.RUNNING))

        async def ended() -> int | None:
            await cluster.signal_pod(str(spec.name), "USR1")  # again and again: the shell may not have begun
            status = await status_of(cluster, spec)
            return None if status is None else status.exit_code

        assert await eventually(ended) in (7, 128 + SIGUSR1)

    async def test_a_signal_to_nothing_is_nothing(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        spec = make_spec("true")
        await cluster.signal_pod(str(spec.name), "USR1")
        await cluster.create_pod(spec)
        await finished(cluster, spec)
        await cluster.signal_pod(str(spec.name), "USR1")
        assert (await status_of(cluster, spec)).exit_code == 0  # type: ignore[union-attr]

    async def test_find_pods_knows_reservations_apart(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        one, other = make_spec("sleep", "600"), make_spec("sleep", "600")
        longer = replace(other, name=PodName(one.name.reservation_id + "0", 1, 0))
        second = replace(one, name=PodName(one.name.reservation_id, 2, 1))
        for spec in (one, other, longer, second):
            await cluster.create_pod(spec)
        names = {pod.name for pod in await cluster.find_pods(one.name.reservation_id)}
        assert names == {one.name, second.name}
        everything = {pod.name for pod in (await cluster.list_pods()).pods}
        assert everything == {one.name, other.name, longer.name, second.name}

    async def test_watch_tells_what_is_and_what_comes(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        old, new = make_spec("sleep", "600"), make_spec(*until_told())
        await cluster.create_pod(old)
        await eventually(reaches(cluster, old, PodPhase.RUNNING))
        async with watching(cluster) as seen:
            await eventually(lambda: phases(seen, old) == [PodPhase.RUNNING])
            await cluster.create_pod(new)
            await eventually(lambda: PodPhase.RUNNING in phases(seen, new))
            await tell_to_end(cluster, new)
            await eventually(lambda: PodPhase.FINISHED in phases(seen, new))
            await cluster.delete_pod(str(old.name), AT_ONCE)
            await cluster.delete_pod(str(new.name), AT_ONCE)
            await eventually(lambda: PodPhase.GONE in phases(seen, old) and PodPhase.GONE in phases(seen, new))
        assert phases(seen, new)[-3:] == [PodPhase.RUNNING, PodPhase.FINISHED, PodPhase.GONE]
        assert phases(seen, old)[0] is PodPhase.RUNNING
        assert phases(seen, old)[-1] is PodPhase.GONE
        assert [status.exit_code for status in seen if status.name == new.name][-2:] == [3, 3]

    async def test_logs_can_be_followed_to_the_end(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        spec = make_spec("sh", "-c", "for i in 1 2 3 4 5; do echo $i; sleep 0.1; done")
        await cluster.create_pod(spec)
        assert await log_of(cluster, spec, follow=True) == "1\n2\n3\n4\n5\n"

    async def test_a_long_log_comes_whole(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        spec = make_spec("sh", "-c", "seq 1 50000")
        await cluster.create_pod(spec)
        assert await log_of(cluster, spec, follow=True) == "".join(f"{n}\n" for n in range(1, 50_001))

    async def test_a_pod_that_never_was_has_no_log(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        spec = make_spec("true")
        assert await log_of(cluster, spec) == ""
        assert await log_of(cluster, spec, follow=True) == ""

    async def test_a_workload_has_the_environment_of_its_spec(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        env = (("CUDA_VISIBLE_DEVICES", "1,3"), ("TEXT", "spaces, 'quotes' and\nlines: äöü"))
        spec = make_spec("sh", "-c", 'printf "%s|%s" "$CUDA_VISIBLE_DEVICES" "$TEXT"', env=env)
        await cluster.create_pod(spec)
        assert await log_of(cluster, spec, follow=True) == "1,3|spaces, 'quotes' and\nlines: äöü"

    async def test_many_pods_at_once(self, cluster: Cluster, make_spec: SpecMaker) -> None:
        specs = [make_spec("sh", "-c", f"exit {number}") for number in range(20)]
        await asyncio.gather(*(cluster.create_pod(spec) for spec in specs))
        ends = [await finished(cluster, spec) for spec in specs]
        assert [end.exit_code for end in ends] == list(range(20))
        await asyncio.gather(*(cluster.delete_pod(str(spec.name), AT_ONCE) for spec in specs))
        assert (await cluster.list_pods()).pods == ()
