"""The tests' own promise: what a test starts is gone when it is over."""

from collections.abc import Iterator
from datetime import timedelta

import psutil
import pytest

from reservation_core.adapters.local.processes import MARKER
from reservation_core.domain.model import PodName, PodPhase, PodSpec, PodWorkload
from reservation_core.runtime.wiring import Runtime
from tests.waiting import eventually

_POD = PodName("job-left0ver", 1, 0)


def running() -> list[int]:
    """The processes of the pod, wherever they are."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARKER) == str(_POD):
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def left_behind() -> Iterator[None]:
    """Looks after everything else has been torn down: it is set up first."""
    yield
    assert running() == []


async def test_a_pod_that_a_test_forgets_ends_with_it(left_behind: None, runtime: Runtime) -> None:
    [node] = await runtime.cluster.list_nodes()
    # Deaf to SIGTERM, as the worst of them are.
    stubborn = PodWorkload(command=("sh", "-c", "trap '' TERM; sleep 1000 & sleep 1000"))
    now = runtime.clock.now()
    await runtime.cluster.create_pod(
        PodSpec(_POD, "ada", node.name, (0,), (None,), stubborn, (), now + timedelta(hours=1), timedelta(seconds=60))
    )

    async def runs() -> bool:
        return [pod.phase for pod in await runtime.cluster.find_pods(_POD.reservation_id)] == [PodPhase.RUNNING]

    await eventually(runs)
    assert running()
