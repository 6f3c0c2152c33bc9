"""Whatever is killed, whenever: a pod runs at most once, nothing of it stays behind, and what is said of it is true."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.local import supervisor
from reservation_core.adapters.local.cluster import LocalCluster
from reservation_core.adapters.local.kernel import boot_id, start_ticks
from reservation_core.adapters.local.machine_times import MachineTimes
from reservation_core.adapters.local.pod_directories import PodDirectories
from reservation_core.domain.model import PodPhase, PodSpec
from reservation_core.domain.statuses import ReasonCode
from reservation_core.ports.cluster import ClusterUnavailableError
from tests.integration.cluster_behaviour import (
    AT_ONCE,
    NODE,
    SpecMaker,
    finished,
    log_of,
    phases,
    reaches,
    status_of,
    watching,
)
from tests.integration.reservation_core.adapters.local.conftest import processes_below
from tests.integration.reservation_core.adapters.local.test_workloads import daemon_command
from tests.waiting import eventually, eventually_sync

CONTROL_PLANE = """
import asyncio, sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.local.cluster import LocalCluster
from reservation_core.domain.model import PodName, PodSpec, PodWorkload

async def main():
    home, node, name, *command = sys.argv[1:]
    cluster = LocalCluster(Path(home), f"{node}=h100:4", SystemClock())
    await cluster.create_pod(PodSpec(
        PodName.parse(name), "ada", node, (0,), (None,), PodWorkload(tuple(command)), (),
        datetime.now(UTC) + timedelta(hours=1), timedelta(seconds=5)))
    print("created", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def control_plane(home: Path, spec: PodSpec) -> subprocess.Popen[str]:
    """Another process that creates the pod and says so."""
    return subprocess.Popen(
        [sys.executable, "-c", CONTROL_PLANE, str(home), NODE, str(spec.name), *spec.workload.command],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def launch(home: Path, name: str) -> subprocess.Popen[bytes]:
    """A supervisor, started as the cluster starts them."""
    arguments = [str(home / "pods" / name), str(home / "tombstones" / name), str(home / "logs" / f"{name}.log")]
    return subprocess.Popen(
        [sys.executable, "-I", "-S", supervisor.__file__, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={},
        start_new_session=True,
    )


def supervisor_of(home: Path, spec: PodSpec) -> psutil.Process:
    return next(
        process
        for process in processes_below(home)
        if supervisor.__file__ in process.cmdline() and str(spec.name) in " ".join(process.cmdline())
    )


def lives(process: psutil.Process) -> bool:
    """Whether it has not ended; one that nobody has collected has."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def prepared(home: Path) -> PodDirectories:
    pods = PodDirectories(home, MachineTimes(SystemClock(), SystemClock()))
    pods.prepare(SystemClock().now())
    return pods


async def test_a_pod_outlives_the_control_plane_and_is_adopted(
    home: Path, cluster: LocalCluster, make_spec: SpecMaker, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    spec = make_spec("sh", "-c", 'echo up; while [ ! -e "$0" ]; do sleep 0.01; done; exit 9', str(gate))
    plane = control_plane(home, spec)
    assert plane.stdout is not None
    assert await asyncio.to_thread(plane.stdout.readline) == "created\n"
    os.killpg(plane.pid, signal.SIGKILL)
    plane.wait()
    plane.stdout.close()
    status = await status_of(cluster, spec)
    assert status is not None
    assert status.phase is PodPhase.RUNNING
    gate.touch()
    assert (await finished(cluster, spec)).exit_code == 9
    assert await log_of(cluster, spec) == "up\n"


async def test_an_end_that_nobody_watched_is_known_afterwards(
    home: Path, cluster: LocalCluster, make_spec: SpecMaker
) -> None:
    spec = make_spec("sh", "-c", "exit 5")
    plane = control_plane(home, spec)
    assert plane.stdout is not None
    assert await asyncio.to_thread(plane.stdout.readline) == "created\n"
    os.killpg(plane.pid, signal.SIGKILL)
    plane.wait()
    plane.stdout.close()
    await asyncio.to_thread(eventually_sync, lambda: not processes_below(home))
    assert (await finished(cluster, spec)).exit_code == 5


async def test_a_pod_without_its_supervisor_is_lost_and_nothing_is_left(
    home: Path, cluster: LocalCluster, make_spec: SpecMaker, tmp_path: Path
) -> None:
    pid_file = tmp_path / "pid"
    # Besides the daemon: a child without our variables in a session of its own that still prints into the log.
    bare = "env -i setsid sleep 601 & "
    spec = make_spec(*daemon_command(pid_file, bare + "echo up; exec sleep 600"))
    await cluster.create_pod(spec)
    await eventually(lambda: log_of(cluster, spec))
    supervisor = supervisor_of(home, spec)

    def asleep() -> list[psutil.Process]:
        """All of them, once both are no shells any more."""
        found = supervisor.children(recursive=True)
        with suppress(psutil.NoSuchProcess):
            return found if {" ".join(process.cmdline()) for process in found} >= {"sleep 600", "sleep 601"} else []
        return []

    family = await eventually(asleep)
    async with watching(cluster) as seen:
        await eventually(lambda: phases(seen, spec) == [PodPhase.RUNNING])
        supervisor_of(home, spec).kill()
        await eventually(lambda: PodPhase.FINISHED in phases(seen, spec))
    assert [process for process in family if lives(process)] == []
    status = await finished(cluster, spec)
    assert (status.exit_code, status.started_at is not None) == (None, True)
    assert status.reason is not None
    assert status.reason.code is ReasonCode.POD_LOST
    await cluster.delete_pod(str(spec.name), AT_ONCE)
    await eventually(reaches(cluster, spec, PodPhase.GONE))


async def test_the_command_dies_with_its_supervisor_even_if_nobody_looks(
    home: Path, cluster: LocalCluster, make_spec: SpecMaker
) -> None:
    spec = make_spec("sleep", "600")
    await cluster.create_pod(spec)
    (command,) = await eventually(supervisor_of(home, spec).children)
    supervisor_of(home, spec).kill()
    await eventually(lambda: not lives(command))


async def test_a_creation_that_was_cut_short_can_be_repeated(
    home: Path, cluster: LocalCluster, make_spec: SpecMaker
) -> None:
    spec = make_spec("echo", "once")
    assert prepared(home).publish(spec)  # and no supervisor came
    status = await status_of(cluster, spec)
    assert status is not None
    assert status.phase is PodPhase.PENDING
    await cluster.create_pod(spec)
    await finished(cluster, spec)
    assert await log_of(cluster, spec) == "once\n"


async def test_a_creation_that_was_cut_short_can_be_deleted_and_then_never_runs(
    home: Path, cluster: LocalCluster, make_spec: SpecMaker
) -> None:
    spec = make_spec("echo", "once")
    prepared(home).publish(spec)
    await cluster.delete_pod(str(spec.name), AT_ONCE)
    assert await status_of(cluster, spec) is None
    await cluster.create_pod(spec)
    assert await status_of(cluster, spec) is None
    assert await log_of(cluster, spec) == ""


async def test_what_may_have_run_never_runs_again(home: Path, cluster: LocalCluster, make_spec: SpecMaker) -> None:
    spec = make_spec("echo", "once")
    prepared(home).publish(spec)
    (home / "pods" / str(spec.name) / "started").touch()  # its supervisor was killed right after
    await cluster.create_pod(spec)
    status = await finished(cluster, spec)
    assert status.reason is not None
    assert status.reason.code is ReasonCode.POD_LOST
    assert await log_of(cluster, spec) == ""


async def test_a_directory_made_after_the_removal_is_never_started(
    home: Path, cluster: LocalCluster, make_spec: SpecMaker
) -> None:
    """A create that looked for the tombstone before there was one, and published after."""
    spec = make_spec("echo", "once")
    prepared(home).publish(spec)
    (home / "tombstones" / str(spec.name)).mkdir()
    launched = await asyncio.to_thread(launch(home, str(spec.name)).communicate)
    assert launched[0] == b"gone"
    assert await status_of(cluster, spec) is None
    assert await log_of(cluster, spec) == ""


async def test_many_supervisors_for_one_pod_run_it_once(
    home: Path, cluster: LocalCluster, make_spec: SpecMaker
) -> None:
    spec = make_spec("sh", "-c", "echo once; exec sleep 600")
    prepared(home).publish(spec)
    launched = [launch(home, str(spec.name)) for _ in range(6)]
    answers = [(await asyncio.to_thread(process.communicate))[0] for process in launched]
    assert sorted(answers) == [b"exists"] * 5 + [b"started"]
    await eventually(lambda: log_of(cluster, spec))
    assert await log_of(cluster, spec) == "once\n"
    await eventually(lambda: len(processes_below(home)) == 2)  # the others may still be about to end


async def test_a_deletion_that_was_cut_short_is_carried_out(
    home: Path, cluster: LocalCluster, make_spec: SpecMaker
) -> None:
    running, ended = make_spec("sleep", "600"), make_spec("true")
    for spec in (running, ended):
        await cluster.create_pod(spec)
    await eventually(reaches(cluster, running, PodPhase.RUNNING))
    await finished(cluster, ended)
    for spec in (running, ended):
        (home / "pods" / str(spec.name) / "delete").write_text("0")  # asked, and killed before the signal
        await eventually(reaches(cluster, spec, PodPhase.GONE))


async def test_a_supervisor_ended_from_outside_says_so(home: Path, cluster: LocalCluster, make_spec: SpecMaker) -> None:
    spec = make_spec("sleep", "600")
    await cluster.create_pod(spec)
    await eventually(reaches(cluster, spec, PodPhase.RUNNING))
    supervisor_of(home, spec).terminate()
    status = await finished(cluster, spec)
    assert status.exit_code == 143
    assert status.reason is not None
    assert status.reason.code is ReasonCode.KILLED_BY_SIGNAL


async def test_kills_at_any_moment_of_the_start(
    home: Path, cluster: LocalCluster, make_spec: SpecMaker, tmp_path: Path
) -> None:
    """Launcher and supervisor are killed after 0, 2, 4 … ms, and creation is repeated."""
    witness = tmp_path / "runs"
    specs = [make_spec("sh", "-c", f'echo {n} >> "$0"; exec sleep 600', str(witness)) for n in range(20)]
    pods = prepared(home)
    for number, spec in enumerate(specs):
        pods.publish(spec)
        process = launch(home, str(spec.name))
        threading.Event().wait(number * 0.002)
        for victim in processes_below(home):
            with suppress(psutil.Error):  # it may have ended meanwhile
                if str(spec.name) in " ".join(victim.cmdline()):
                    victim.kill()
        process.communicate()
        await cluster.create_pod(spec)
    for spec in specs:
        await cluster.delete_pod(str(spec.name), AT_ONCE)
        await eventually(reaches(cluster, spec, PodPhase.GONE))
    runs = witness.read_text().split() if witness.exists() else []
    assert len(runs) == len(set(runs))
    await eventually(lambda: not processes_below(home))


async def test_another_process_of_the_same_home_is_seen(
    home: Path, cluster: LocalCluster, make_spec: SpecMaker
) -> None:
    other = LocalCluster(home, f"{NODE}=h100:4", SystemClock())
    spec = make_spec("sleep", "600")
    async with watching(cluster) as seen:
        await other.create_pod(spec)
        await eventually(lambda: PodPhase.RUNNING in phases(seen, spec))
        await other.delete_pod(str(spec.name), AT_ONCE)
        await eventually(lambda: PodPhase.GONE in phases(seen, spec))
    await other.close()


async def test_a_home_that_cannot_be_read_says_nothing_about_pods(
    home: Path, cluster: LocalCluster, make_spec: SpecMaker
) -> None:
    spec = make_spec("sleep", "600")
    await cluster.create_pod(spec)
    (home / "pods").rename(home / "unmounted")
    try:
        for question in (cluster.find_pods(spec.name.reservation_id), cluster.list_pods(), anext(cluster.watch())):
            with pytest.raises(ClusterUnavailableError):
                await question
    finally:
        (home / "unmounted").rename(home / "pods")
    assert await status_of(cluster, spec) is not None


async def test_whoever_holds_the_lock_is_not_dead(home: Path, cluster: LocalCluster, make_spec: SpecMaker) -> None:
    """Where a supervisor can't be found in the process table, it is its lock that says that it lives."""
    spec = make_spec("sleep", "600")
    await cluster.create_pod(spec)
    await eventually(reaches(cluster, spec, PodPhase.RUNNING))
    state_file = home / "pods" / str(spec.name) / "state.json"
    state = json.loads(state_file.read_text())
    state_file.write_text(json.dumps(state | {"supervisor_ticks": 1}))
    newcomer = LocalCluster(home, f"{NODE}=h100:4", SystemClock())
    status = await status_of(newcomer, spec)
    await newcomer.close()
    state_file.write_text(json.dumps(state))
    assert status is not None
    assert status.phase is PodPhase.RUNNING
    assert supervisor_of(home, spec).is_running()


@pytest.mark.parametrize("same", ["boot", "start"])
async def test_pids_are_not_enough_to_be_adopted(
    home: Path, cluster: LocalCluster, make_spec: SpecMaker, same: str
) -> None:
    """After a reboot the pids of a pod may be somebody else's: who must be neither believed nor killed."""
    spec = make_spec("sleep", "600")
    prepared(home).publish(spec)
    directory = home / "pods" / str(spec.name)
    bystander = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        (directory / "started").touch()
        ticks = start_ticks(bystander.pid) if same == "start" else 1
        (directory / "state.json").write_text(
            json.dumps(
                {
                    "supervisor_pid": bystander.pid,
                    "supervisor_ticks": ticks,
                    "workload_pid": bystander.pid,
                    "workload_ticks": ticks,
                    "boot_id": boot_id() if same == "boot" else "another",
                    "contained": True,
                    "started_at": 1.5,
                }
            )
        )
        status = await finished(cluster, spec)
        assert status.reason is not None
        assert status.reason.code is ReasonCode.POD_LOST
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


async def test_tombstones_are_kept_for_a_day(home: Path, make_spec: SpecMaker) -> None:
    pods = prepared(home)
    old, fresh = home / "tombstones" / "job-old-1-0", home / "tombstones" / "job-new-1-0"
    for tombstone in (old, fresh):
        tombstone.mkdir()
        (tombstone / "exit.json").touch()
    yesterday = time.time() - timedelta(hours=25).total_seconds()
    os.utime(old, (yesterday, yesterday))
    pods.prune(datetime.now(UTC))
    assert (old.exists(), fresh.exists()) == (False, True)
    shutil.rmtree(home)
