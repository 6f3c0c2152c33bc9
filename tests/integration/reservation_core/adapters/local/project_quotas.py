"""Disks of the local cluster on a file system with project quotas, with real pods. `test_disk_quotas` runs this.

It needs root and the folder PROJECT_QUOTAS, on ext4 or XFS mounted with prjquota.
"""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.local.cluster import LocalCluster
from reservation_core.adapters.local.disks import disk_quotas
from reservation_core.adapters.local.disks.disk_folders import DiskFolders
from reservation_core.adapters.local.disks.disk_quotas import FIRST_PROJECT, Quota, quota_of
from reservation_core.adapters.local.kernel import CAP_SYS_RESOURCE
from reservation_core.domain.disks.disk_uses import DiskUse
from reservation_core.domain.model import PodName, PodPhase, PodSpec, PodStatus, PodWorkload
from reservation_core.ports.disks.disks import DiskCopy
from tests.pods import end_all_pods
from tests.waiting import eventually

MIB = 2**20
SIZE = 8 * MIB
NOTHING = Quota(0, 0, 0)
_NUMBERS = count()
_FILL = 'cd "$GPU_DEV_DISK_FOLDER/data"; mkdir -p deep; dd if=/dev/zero of=deep/$0 bs=64k count=$1'


class KilledError(BaseException):
    """The process ends here."""


class Kernel:
    """Notes the projects that are used, and ends the process instead of the next call but `until`."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.projects = set[int]()
        self.until = -1
        for name in ("_quotactl", "_set_project"):
            patch.setattr(disk_quotas, name, partial(self._call, getattr(disk_quotas, name)))

    def _call(self, function: Callable[..., Any], opened: int, *arguments: Any, **named: Any) -> Any:
        self.until -= 1
        if self.until == -1:
            raise KilledError
        self.projects |= {number for number in arguments if isinstance(number, int) and number >= FIRST_PROJECT}
        return function(opened, *arguments, **named)


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
async def cluster(home: Path) -> AsyncIterator[LocalCluster]:
    cluster = LocalCluster(home, "node-a=h100:1", SystemClock())
    yield cluster
    await end_all_pods(cluster)
    await cluster.close()


@pytest.fixture
def disks(home: Path) -> DiskFolders:
    return DiskFolders(home)


async def fill(cluster: LocalCluster, disk_id: str, mebibytes: int, name: str = "file") -> tuple[PodStatus, str]:
    """Let a job write so much to a file of a disk: how it ended, and what it printed."""
    spec = PodSpec(
        name=PodName(f"job-q{next(_NUMBERS)}", 1, 0),
        user="ada",
        node="node-a",
        gpu_indices=(0,),
        gpu_uuids=(None,),
        workload=PodWorkload(
            command=("sh", "-c", _FILL, name, str(mebibytes * 16)),
            disks=(DiskUse("data", "/data", disk_id=disk_id),),
        ),
        env=(),
        deadline=datetime.now(UTC) + timedelta(hours=1),
        grace=timedelta(seconds=5),
    )
    await cluster.create_pod(spec)

    async def ended() -> PodStatus | None:
        pods = await cluster.find_pods(spec.name.reservation_id)
        return next((pod for pod in pods if pod.phase is PodPhase.FINISHED), None)

    status = await eventually(ended)
    assert status is not None
    return status, b"".join([part async for part in cluster.pod_logs(str(spec.name), follow=False)]).decode()


def on(folder: Path) -> int:
    """How much the files below a folder take."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def known_of(folder: Path, project: int | None = None) -> Quota:
    """What the file system knows of a project, by default the folder's."""
    with disk_quotas._opened(folder) as opened:
        return disk_quotas._quota(opened, disk_quotas._terms(opened)[3] if project is None else project)


async def test_a_job_writes_as_much_as_the_disk_has(cluster: LocalCluster, disks: DiskFolders, home: Path) -> None:
    await disks.make("disk-a", SIZE)
    await disks.make("disk-b", SIZE)
    status, printed = await fill(cluster, "disk-a", 64)
    assert status.exit_code != 0
    assert "No space left on device" in printed or "quota exceeded" in printed
    assert SIZE - MIB < on(home / "disks" / "disk-a") <= SIZE
    assert (await fill(cluster, "disk-b", 4))[0].exit_code == 0  # it has its own
    used = await disks.measure("disk-a", SIZE)
    assert used is not None
    assert SIZE - MIB < used <= SIZE


def test_no_program_gets_a_capability_back_that_was_dropped() -> None:
    """Root's programs get those of the bounding set, and those that their parent lets them inherit."""
    drop = f"""
import os
from reservation_core.adapters.local.kernel import drop_capability
drop_capability({CAP_SYS_RESOURCE})
os.execlp("grep", "grep", "^Cap", "/proc/self/status")
"""
    command = ["setpriv", "--inh-caps", "+sys_resource", sys.executable, "-c", drop]
    sets = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(sets) == 5
    assert not any(int(line.split()[1], 16) & 1 << CAP_SYS_RESOURCE for line in sets), sets


async def test_a_resized_disk_has_more_room(cluster: LocalCluster, disks: DiskFolders, home: Path) -> None:
    await disks.make("disk-a", SIZE)
    await fill(cluster, "disk-a", 64)
    await disks.make("disk-a", 2 * SIZE)
    assert (await fill(cluster, "disk-a", 6, "more"))[0].exit_code == 0
    assert (await fill(cluster, "disk-a", 64, "most"))[0].exit_code != 0
    assert 2 * SIZE - MIB < on(home / "disks" / "disk-a") <= 2 * SIZE


async def test_a_clone_has_a_bound_of_its_own(cluster: LocalCluster, disks: DiskFolders, home: Path) -> None:
    await disks.make("disk-a", SIZE)
    await fill(cluster, "disk-a", 4)
    copy = DiskCopy("disk-a", SIZE, "the clone", is_still=True, clone_id="disk-b")
    assert await disks.copy(copy) == SIZE
    assert await disks.copy(copy) == SIZE  # as after a kill
    assert (await fill(cluster, "disk-b", 64, "more"))[0].exit_code != 0
    assert SIZE - MIB < on(home / "disks" / "disk-b") <= SIZE
    assert (await fill(cluster, "disk-a", 3, "more"))[0].exit_code == 0


async def test_a_disk_from_before_is_bounded_once_it_is_measured(
    cluster: LocalCluster, disks: DiskFolders, home: Path
) -> None:
    folder = home / "disks" / "disk-a"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "old").write_bytes(b"x" * 4 * MIB)
    (folder / "link").symlink_to("/etc")
    os.mkfifo(folder / "pipe")
    assert quota_of(folder).limit == 0
    used = await disks.measure("disk-a", SIZE)
    assert used is not None
    assert 4 * MIB <= used < 5 * MIB
    assert (await fill(cluster, "disk-a", 64))[0].exit_code != 0
    assert SIZE - MIB < on(folder) <= SIZE


async def test_a_disk_that_an_earlier_version_made_larger_has_its_size_once_it_is_measured(
    disks: DiskFolders, home: Path
) -> None:
    await disks.make("disk-a", SIZE)
    await disks.measure("disk-a", 2 * SIZE)
    await disks.measure("disk-a", SIZE)  # read before another loop made it larger
    assert quota_of(home / "disks" / "disk-a").limit == 2 * SIZE


async def test_what_was_moved_out_of_a_disk_still_counts(disks: DiskFolders, home: Path) -> None:
    await disks.make("disk-a", SIZE)
    (home / "disks" / "disk-a" / "file").write_bytes(b"x" * MIB)
    (home / "disks" / "disk-a" / "file").rename(home / "file")
    used = await disks.measure("disk-a", SIZE)
    assert used is not None
    assert used >= MIB


@pytest.mark.parametrize("step", ["make", "measure", "resize", "copy", "remove"])
async def test_a_process_that_is_killed_at_any_call_leaves_no_harm(
    disks: DiskFolders, home: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The step is completed when it is done again, and no limit is left once the disks are removed."""
    kernel = Kernel(monkeypatch)
    folder, copied = home / "disks" / "disk-a", home / "disks" / "disk-b"
    copy = DiskCopy("disk-a", SIZE, "the clone", is_still=True, clone_id="disk-b")
    do: Callable[[], Any] = {
        "make": lambda: disks.make("disk-a", SIZE),
        "measure": lambda: disks.measure("disk-a", SIZE),
        "resize": lambda: disks.make("disk-a", 2 * SIZE),
        "copy": lambda: disks.copy(copy),
        "remove": lambda: disks.remove("disk-a"),
    }[step]
    for kills in count():
        if step not in ("make", "measure"):
            await disks.make("disk-a", SIZE)
        if step != "make":
            (folder / "deep").mkdir(parents=True)
            (folder / "deep" / "file").write_bytes(b"x" * MIB)
        kernel.until, was_killed = kills, False
        try:
            await do()
        except KilledError:
            was_killed = True
        kernel.until = -1
        await do()
        if step != "remove":
            bounded = known_of(copied if step == "copy" else folder)
            assert bounded.limit == (2 * SIZE if step == "resize" else SIZE)
            assert bounded.files == (1 if step == "make" else 3)
        await disks.remove("disk-a")
        await disks.remove("disk-b")
        # XFS counts files for a moment after they were removed.
        await eventually(lambda: {known_of(home, project) for project in kernel.projects} == {NOTHING})
        if not was_killed:
            break
    assert kills >= 4
