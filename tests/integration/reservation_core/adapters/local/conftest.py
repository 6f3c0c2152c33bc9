"""A local cluster in a folder with a space in its name; whatever it started is gone at the end of each test."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import psutil
import pytest

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.local.cluster import LocalCluster
from reservation_core.domain.model import PodName, PodSpec, PodWorkload

pytest.register_assert_rewrite("tests.integration.cluster_behaviour")

from tests.integration.cluster_behaviour import NODE, SpecMaker  # noqa: E402
from tests.waiting import eventually  # noqa: E402

_NUMBERS = count()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "a home"


@pytest.fixture
async def cluster(home: Path) -> AsyncIterator[LocalCluster]:
    cluster = LocalCluster(home, f"{NODE}=h100:4", SystemClock())
    yield cluster
    for pod in (await cluster.list_pods()).pods:
        await cluster.delete_pod(str(pod.name), timedelta(0))

    async def nothing_left() -> bool:
        return not (await cluster.list_pods()).pods and not processes_below(home)

    await eventually(nothing_left)
    await cluster.close()


@pytest.fixture
def make_spec(tmp_path: Path) -> SpecMaker:
    def make(
        *command: str,
        env: tuple[tuple[str, str], ...] = (),
        deadline: datetime | None = None,
        grace: timedelta = timedelta(seconds=5),
        working_dir: str | None = None,
        node: str = NODE,
    ) -> PodSpec:
        return PodSpec(
            name=PodName(f"job-t{next(_NUMBERS)}x", 1, 0),
            user="ada",
            node=node,
            gpu_indices=(0,),
            gpu_uuids=(None,),
            workload=PodWorkload(command=command, working_dir=working_dir),
            env=env,
            deadline=deadline or datetime.now(UTC) + timedelta(hours=1),
            grace=grace,
        )

    return make


def processes_below(home: Path) -> list[psutil.Process]:
    """Supervisors of this home, and processes that work or print in it."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd", "environ", "status"]):
        if process.pid == psutil.Process().pid or process.info["status"] == psutil.STATUS_ZOMBIE:
            continue
        if any(str(home) in text for text in [*(process.info["cmdline"] or []), process.info["cwd"] or ""]):
            found.append(process)
    return found
