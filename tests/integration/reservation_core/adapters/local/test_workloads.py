"""What a workload sees of its world, what of ours it doesn't, and that nothing of it stays behind."""

import os
import stat
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from reservation_core.adapters.local.cluster import LocalCluster
from reservation_core.domain.model import PodPhase
from reservation_core.domain.statuses import ReasonCode
from reservation_core.ports.cluster import PodRefusedError
from tests.integration.cluster_behaviour import AT_ONCE, SpecMaker, finished, log_of, reaches, status_of
from tests.integration.reservation_core.adapters.local.conftest import processes_below
from tests.waiting import eventually

# A daemon as programs make them: forked twice, in a session of its own, deaf to SIGTERM, and here even without the
# variables it was born with. It says who it is, then waits.
DAEMON = """
import os, signal, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
null = os.open(os.devnull, os.O_RDWR)
for fd in (0, 1, 2): os.dup2(null, fd)
os.chdir("/")
if "bare" in sys.argv: os.execve(sys.executable, [sys.executable, "-c", sys.argv[2], sys.argv[1]], {})
exec(sys.argv[2])
"""
WAIT = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)"


def daemon_command(pid_file: Path, then: str, *, bare: bool = False) -> tuple[str, ...]:
    """A command that starts the daemon, waits until it runs, and goes on with `then`."""
    start = f'\'{sys.executable}\' -c "$0" "$1" "$2" {"bare" if bare else ""}'
    return "sh", "-c", f'{start}; while [ ! -s "$1" ]; do sleep 0.01; done; {then}', DAEMON, str(pid_file), WAIT


async def test_the_environment_is_the_specs_and_a_minimum(
    cluster: LocalCluster, make_spec: SpecMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPU_DEV_DATABASE_URL", "postgresql://u:hunter2@db/x")
    monkeypatch.setenv("SOME_TOKEN", "hunter2")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    spec = make_spec("env", env=(("CUDA_VISIBLE_DEVICES", "3"), ("HOME", "/theirs")))
    await cluster.create_pod(spec)
    lines = (await log_of(cluster, spec, follow=True)).splitlines()
    env = dict(line.split("=", 1) for line in lines)
    assert set(env) == {"CUDA_VISIBLE_DEVICES", "HOME", "PATH", "LANG", "USER", "GPU_DEV_POD"}
    assert env["HOME"] == "/theirs"
    assert env["PATH"] == "/usr/bin:/bin"
    assert env["GPU_DEV_POD"] == str(spec.name)


async def test_secrets_are_in_no_argument_and_no_foreign_environment(
    cluster: LocalCluster, make_spec: SpecMaker, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("GPU_DEV_DATABASE_URL", "postgresql://u:hunter2@db/x")
    spec = make_spec("sleep", "600", env=(("WANDB_API_KEY", "swordfish"),))
    await cluster.create_pod(spec)
    await eventually(reaches(cluster, spec, PodPhase.RUNNING))
    pod = processes_below(home)
    supervisor = next(process for process in pod if "supervisor.py" in " ".join(process.cmdline()))
    assert len(pod) == 2
    assert "swordfish" not in " ".join(word for process in pod for word in process.cmdline())
    assert "hunter2" not in str([process.environ() for process in pod])
    assert "swordfish" not in str(supervisor.environ())
    for path in home.rglob("*"):
        with suppress(FileNotFoundError):  # it was put in the place of another
            mode = path.stat().st_mode
            assert stat.S_IMODE(mode) == (0o700 if stat.S_ISDIR(mode) else 0o600), path


async def test_no_file_of_the_control_plane_is_open_in_a_workload(cluster: LocalCluster, make_spec: SpecMaker) -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    try:
        spec = make_spec("sh", "-c", "ls -l /proc/self/fd")
        await cluster.create_pod(spec)
        text = await log_of(cluster, spec, follow=True)
    finally:
        os.close(read)
        os.close(write)
    opened = [line.split(" -> ")[1] for line in text.splitlines() if " -> " in line]
    assert len(opened) == 4  # input, output twice, and the folder that ls itself reads
    assert opened[0] == "/dev/null"
    assert not [target for target in opened if target.startswith("pipe:")]


async def test_a_workload_starts_in_a_folder_of_its_own(
    cluster: LocalCluster, make_spec: SpecMaker, tmp_path: Path, home: Path
) -> None:
    spec = make_spec("sh", "-c", "pwd; touch there; ls")
    await cluster.create_pod(spec)
    folder, listing = (await log_of(cluster, spec, follow=True)).splitlines()
    assert folder == str(home / "pods" / str(spec.name) / "scratch")
    assert listing == "there"
    await cluster.delete_pod(str(spec.name), AT_ONCE)
    assert [path.name for path in (home / "tombstones" / str(spec.name)).rglob("*")] == ["exit.json"]
    elsewhere = make_spec("pwd", working_dir=str(tmp_path))
    await cluster.create_pod(elsewhere)
    assert await log_of(cluster, elsewhere, follow=True) == f"{tmp_path}\n"


async def test_what_cannot_start_says_why(cluster: LocalCluster, make_spec: SpecMaker, tmp_path: Path) -> None:
    not_executable = tmp_path / "data.txt"
    not_executable.write_text("not a program")
    for spec, code, word in (
        (make_spec("true", working_dir=str(tmp_path / "none")), 126, "working directory"),
        (make_spec("true", working_dir=str(not_executable)), 126, "working directory"),
        (make_spec(str(not_executable)), 126, "data.txt"),
        (make_spec(str(tmp_path / "none")), 127, "none"),
        (make_spec(str(tmp_path)), 126, str(tmp_path)),
        (make_spec("true", "x" * 200_000), 126, "Argument list too long"),
    ):
        await cluster.create_pod(spec)
        status = await finished(cluster, spec)
        assert status.exit_code == code
        assert status.reason is not None
        assert status.reason.code is ReasonCode.START_FAILED
        assert word in status.reason.detail
        assert status.reason.detail in await log_of(cluster, spec)


@pytest.mark.parametrize("bare", [False, True])
async def test_a_daemon_does_not_outlive_the_command(
    cluster: LocalCluster, make_spec: SpecMaker, tmp_path: Path, bare: bool
) -> None:
    spec = make_spec(*daemon_command(tmp_path / "pid", "exit 4", bare=bare))
    await cluster.create_pod(spec)
    assert (await finished(cluster, spec)).exit_code == 4
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


async def test_a_daemon_does_not_outlive_the_deletion(
    cluster: LocalCluster, make_spec: SpecMaker, tmp_path: Path
) -> None:
    spec = make_spec(*daemon_command(tmp_path / "pid", "exec sleep 600", bare=True))
    await cluster.create_pod(spec)
    pid_file = tmp_path / "pid"
    await eventually(lambda: pid_file.exists() and pid_file.read_text())
    assert psutil.pid_exists(int(pid_file.read_text()))
    await cluster.delete_pod(str(spec.name), AT_ONCE)
    await eventually(reaches(cluster, spec, PodPhase.GONE))
    assert not psutil.pid_exists(int(pid_file.read_text()))


async def test_less_patience_counts_when_deletion_is_asked_again(cluster: LocalCluster, make_spec: SpecMaker) -> None:
    spec = make_spec("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.01; done")
    await cluster.create_pod(spec)
    await eventually(lambda: log_of(cluster, spec))
    await cluster.delete_pod(str(spec.name), timedelta(hours=1))
    assert await status_of(cluster, spec) is not None
    await cluster.delete_pod(str(spec.name), AT_ONCE)
    await eventually(reaches(cluster, spec, PodPhase.GONE))


async def test_a_stopped_workload_can_be_deleted(cluster: LocalCluster, make_spec: SpecMaker) -> None:
    spec = make_spec("sh", "-c", "echo ready; kill -STOP $$")
    await cluster.create_pod(spec)
    await eventually(lambda: log_of(cluster, spec))
    await cluster.delete_pod(str(spec.name), timedelta(hours=1))
    await eventually(reaches(cluster, spec, PodPhase.GONE))


async def test_what_no_process_can_be_given_is_refused(cluster: LocalCluster, make_spec: SpecMaker) -> None:
    for spec in (make_spec("a\0b"), make_spec("true", env=(("A", "\0"),)), make_spec("\ud800"), make_spec(node="x")):
        with pytest.raises(PodRefusedError) as refused:
            await cluster.create_pod(spec)
        assert refused.value.reason.code is ReasonCode.START_FAILED
        assert await status_of(cluster, spec) is None


async def test_names_that_are_not_pods_reach_no_file(cluster: LocalCluster, home: Path) -> None:
    await cluster.list_pods()
    (home / "secret.log").write_text("hunter2")
    for name in ("../secret", "..", "", "/etc/passwd", "a/b-1-0", "job-x-1-0\n"):
        await cluster.delete_pod(name, AT_ONCE)
        assert [chunk async for chunk in cluster.pod_logs(name, follow=True)] == []
    assert (home / "secret.log").exists()
