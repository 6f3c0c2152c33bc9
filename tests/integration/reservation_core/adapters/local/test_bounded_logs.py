"""What pods print does not fill the disk, neither one pod's output nor that of all together."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.local import log_reading
from reservation_core.adapters.local.bounded_log import SMALLEST_LIMIT
from reservation_core.adapters.local.cluster import LocalCluster
from reservation_core.domain.model import PodPhase, PodSpec
from reservation_core.ports.cluster import OmittedOutput
from tests.integration.cluster_behaviour import NODE, SpecMaker, log_of, reaches
from tests.waiting import eventually

MIB = 2**20
BOUND = MIB


@pytest.fixture
async def bounded(home: Path, cluster: LocalCluster) -> AsyncIterator[LocalCluster]:
    """Another control plane on the same home, which keeps less; `cluster` ends its pods."""
    assert not (await cluster.list_pods()).pods
    bounded = LocalCluster(home, f"{NODE}=h100:4", SystemClock(), log_bytes_per_job=BOUND)
    yield bounded
    await bounded.close()


def on_disk(home: Path, spec: PodSpec) -> int:
    """The bytes of a pod's output that are kept."""
    return log_reading.size_and_time(home / "logs" / f"{spec.name}.log")[0]


def with_times(home: Path, *specs: PodSpec) -> int:
    """The bytes that are kept of pods, with the times of their output."""
    return sum(on_disk(home, spec) + log_reading.times_size(home / "logs" / f"{spec.name}.log") for spec in specs)


async def test_a_burst_stays_within_its_bound_all_the_time(
    home: Path, bounded: LocalCluster, make_spec: SpecMaker
) -> None:
    spec = make_spec("sh", "-c", "echo begin; yes | head -c 200000000; echo end; sleep 0.01")
    await bounded.create_pod(spec)
    most, followed, left_out = 0, b"", 0
    async for chunk in bounded.pod_logs(str(spec.name), follow=True):
        most = max(most, on_disk(home, spec))
        followed += chunk
        left_out += chunk.left_out if isinstance(chunk, OmittedOutput) else 0
    assert BOUND // 2 <= most <= BOUND
    lines = followed.decode().splitlines()
    notes = [line for line in lines if line.startswith("gpu-dev:")]
    assert set(lines) == {"begin", "y", "end", *notes}
    assert (lines[0], lines[-1]) == ("begin", "end")
    assert len(followed) - sum(len(note) + 1 for note in notes) + left_out == len("begin\nend\n") + 200_000_000
    whole = (await log_of(bounded, spec)).splitlines()
    assert (whole[0], whole[-1]) == ("begin", "end")
    assert len([line for line in whole if line.startswith("gpu-dev:")]) == 1


async def test_the_pods_of_one_job_share_its_bound(home: Path, bounded: LocalCluster, make_spec: SpecMaker) -> None:
    spec = replace(make_spec("sh", "-c", "yes | head -c 5000000"), pods=4)
    await bounded.create_pod(spec)
    async for _ in bounded.pod_logs(str(spec.name), follow=True):
        assert on_disk(home, spec) <= BOUND // 4


async def test_the_oldest_logs_go_first_and_those_of_running_pods_are_cut(
    home: Path, bounded: LocalCluster, make_spec: SpecMaker, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    ended = [make_spec("sh", "-c", "yes | head -c 100000") for _ in range(3)]
    for spec in ended:
        await bounded.create_pod(spec)
        async for _ in bounded.pod_logs(str(spec.name), follow=True):
            pass
        await bounded.delete_pod(str(spec.name), timedelta(0))
        await eventually(reaches(bounded, spec, PodPhase.GONE))
    running = make_spec(
        "sh", "-c", 'yes | head -c 600000; while [ ! -e "$0" ]; do sleep 0.01; done; yes no | head -c 600000', str(gate)
    )
    await bounded.create_pod(running)
    await eventually(reaches(bounded, running, PodPhase.RUNNING))
    await eventually(lambda: on_disk(home, running) == 600_000)

    oldest, kept = with_times(home, ended[0]), with_times(home, *ended[1:], running)
    trimmed = await bounded.trim_logs(written_before=None, most_bytes=850_000)
    assert (trimmed.removed, trimmed.removed_bytes, trimmed.kept_bytes) == (1, oldest, kept)
    assert await log_of(bounded, ended[0]) == ""
    assert len(await log_of(bounded, ended[1])) == 100_000

    trimmed = await bounded.trim_logs(written_before=None, most_bytes=100_000)
    assert (trimmed.removed, trimmed.kept_bytes) == (2, with_times(home, running))
    gate.touch()
    await eventually(lambda: on_disk(home, running) <= 100_000)
    text = ""
    async for chunk in bounded.pod_logs(str(running.name), follow=True):
        text += chunk.decode()
    assert with_times(home, running) <= 100_000
    assert text.startswith("y\ny\n")
    assert text.endswith("no\nno\n")
    assert text.count("gpu-dev: ") == 1
    assert {pod.exit_code for pod in (await bounded.list_pods()).pods} == {0}


async def test_the_times_of_a_running_pod_take_room_from_its_output_once(
    home: Path, bounded: LocalCluster, make_spec: SpecMaker, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    script = 'yes | head -c 600000; while [ ! -e "$0" ]; do sleep 0.01; done; yes | head -c 600000'
    running = make_spec("sh", "-c", script, str(gate))
    await bounded.create_pod(running)
    await eventually(lambda: on_disk(home, running) == 600_000)
    record = (1).to_bytes(8, "big") + (1).to_bytes(8, "big")
    (home / "logs" / f"{running.name}.log.times").write_bytes(record * 12_000)
    limit = home / "pods" / str(running.name) / "log_limit"
    await bounded.trim_logs(written_before=None, most_bytes=300_000)
    assert int(limit.read_text()) == 300_000 - 262_144
    await bounded.trim_logs(written_before=None, most_bytes=200_000)
    assert int(limit.read_text()) == SMALLEST_LIMIT
    gate.touch()
    await eventually(lambda: on_disk(home, running) <= SMALLEST_LIMIT)
    limit.unlink()
    trimmed = await bounded.trim_logs(written_before=None, most_bytes=200_000)
    assert trimmed.kept_bytes > 200_000
    assert not limit.exists()


async def test_logs_go_when_they_are_old_but_not_those_of_pods_that_exist(
    bounded: LocalCluster, make_spec: SpecMaker
) -> None:
    over, there = make_spec("echo", "over"), make_spec("echo", "there")
    for spec in (over, there):
        await bounded.create_pod(spec)
        async for _ in bounded.pod_logs(str(spec.name), follow=True):
            pass
    await bounded.delete_pod(str(over.name), timedelta(0))
    await eventually(reaches(bounded, over, PodPhase.GONE))
    later = datetime.now(UTC) + timedelta(seconds=5)
    assert (await bounded.trim_logs(written_before=later - timedelta(days=1), most_bytes=None)).removed == 0
    trimmed = await bounded.trim_logs(written_before=later, most_bytes=None)
    assert trimmed.removed == 1
    assert trimmed.oldest_at is not None
    assert await log_of(bounded, over) == ""
    assert await log_of(bounded, there) == "there\n"


async def test_a_busy_printer_is_ended_when_it_is_asked_to(bounded: LocalCluster, make_spec: SpecMaker) -> None:
    spec = make_spec("yes")
    await bounded.create_pod(spec)
    await eventually(reaches(bounded, spec, PodPhase.RUNNING))
    await bounded.delete_pod(str(spec.name), timedelta(seconds=1))
    await eventually(reaches(bounded, spec, PodPhase.GONE))
