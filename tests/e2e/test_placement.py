"""On which nodes jobs start is what the setting says, in the whole system on the local cluster."""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.systems.system_process import SystemProcess
from tests.waiting import eventually_sync

NODES = "a=h100:4;b=h100:4"


@pytest.fixture
def system(database_url: str, tmp_path: Path) -> Iterator[Callable[[str | None], SystemProcess]]:
    """Makes a system with a policy, not started yet; None sets none."""
    made: list[SystemProcess] = []

    def make(policy: str | None) -> SystemProcess:
        settings = {"GPU_DEV_DATABASE_URL": database_url, "GPU_DEV_LOCAL_GPUS": NODES}
        policies = {} if policy is None else {"GPU_DEV_PLACEMENT__POLICY": policy}
        made.append(SystemProcess(tmp_path / "home", forked=True, **settings, **policies))
        return made[-1]

    yield make
    for process in made:
        process.clear()


def node_of(http: httpx.Client, job: str) -> str | None:
    """Where a job runs."""
    found = http.get(f"/v1/jobs/{job}").raise_for_status().json()
    return found["allocations"][0]["node"] if found["status"] == "running" else None


@pytest.mark.parametrize(
    ("policy", "nodes"), [(None, ["a", "a"]), ("binpack", ["a", "a"]), ("spread", ["a", "b"]), ("fgd", ["a", "a"])]
)
def test_jobs_start_where_the_policy_says(
    system: Callable[[str | None], SystemProcess], policy: str | None, nodes: list[str]
) -> None:
    it = system(policy)
    with it.start() as http:
        for node in nodes:
            job = it.submit(http, 1)
            assert eventually_sync(lambda job=job: node_of(http, job)) == node


def test_a_policy_that_nobody_knows_is_refused_with_those_that_are(
    system: Callable[[str | None], SystemProcess],
) -> None:
    it = system("random")
    it.launch()
    assert it.wait() == 2
    last = it.log.splitlines()[-1]
    assert "PLACEMENT" in last
    assert all(word in last for word in ("binpack", "spread", "fgd", "priced"))
