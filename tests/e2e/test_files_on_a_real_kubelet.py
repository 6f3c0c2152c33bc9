"""Files of jobs by the chart's processes on a real kubelet, in images without Python: `tests/kubernetes/README.md`."""

import json
import os
import signal
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.e2e.systems.real_kubelet_system import RealKubeletSystem, missing_for_system, real_kubelet_system
from tests.kubernetes.api_server import ApiServer
from tests.waiting import eventually_sync

pytestmark = pytest.mark.skipif(bool(missing_for_system()), reason=missing_for_system() or "all is there")

RUN = ("run", "--gpus", "1", "--for", "10m")


@pytest.fixture(scope="module")
def system(
    api_server: ApiServer, module_database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RealKubeletSystem]:
    with real_kubelet_system(api_server, module_database_url, tmp_path_factory.mktemp("system")) as opened:
        yield opened


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "größe.txt").write_text("42\n")
    (folder / "link").symlink_to("src/größe.txt")
    (folder / "run.sh").write_text(
        "#!/bin/sh\ncat link; mkdir -p out/sub; cp link out/sub/größe; ln -s sub out/l; exit 7\n"
    )
    (folder / "run.sh").chmod(0o755)
    return folder


def test_a_job_works_in_its_files_and_brings_others_back(system: RealKubeletSystem, project: Path) -> None:
    done = system.gpu_dev(*RUN, "--sync", str(project), "--fetch", "out", "--", "./run.sh")
    assert (done.returncode, done.stdout) == (7, b"42\n"), done.stderr.decode()
    assert (project / "out" / "sub" / "größe").read_text() == "42\n"
    assert str((project / "out" / "l").readlink()) == "sub"


def test_a_pod_shows_no_token_and_the_logs_are_the_commands_alone(system: RealKubeletSystem, project: Path) -> None:
    script = "echo ${GPU_DEV_JOB_TOKEN%%.*}; echo $GPU_DEV_SYNC_FOLDER; pwd; cat link; exec sleep 300"
    words = ("submit", "-g1", "-d10m", "--sync", str(project), "--", "sh", "-c", script)
    job = system.gpu_dev(*words).stdout.decode().strip()
    eventually_sync(lambda: b"42" in system.gpu_dev("logs", job).stdout)
    assert system.gpu_dev("logs", job).stdout.decode().split() == ["gpudev-job", "/gpu-dev", "/gpu-dev", "42"]
    [pod] = [pod for pod in system.pods() if pod["metadata"]["name"].startswith(job)]
    assert "gpudev-job" not in json.dumps(pod)
    assert system.gpu_dev("cancel", job).returncode == 0


def test_a_cancelled_jobs_files_are_kept_within_its_grace(system: RealKubeletSystem, project: Path) -> None:
    script = "trap 'echo asked >asked; exit 3' TERM; echo ready; while :; do sleep 0.1; done"
    words = ("submit", "-g1", "-d10m", "--sync", str(project), "--fetch", "asked")
    job = system.gpu_dev(*words, "--", "sh", "-c", script).stdout.decode().strip()
    eventually_sync(lambda: system.gpu_dev("logs", job).stdout == b"ready\n")
    assert system.gpu_dev("cancel", job).returncode == 0
    system.reaches(job, "cancelled")
    fetched = system.gpu_dev("fetch", job, "--to", str(project))
    assert fetched.returncode == 0, fetched.stderr.decode()
    assert (project / "asked").read_text() == "asked\n"


def test_a_session_begins_with_files_and_keeps_others(system: RealKubeletSystem, project: Path) -> None:
    session = system.session("--sync", str(project), "--fetch", "out")
    eventually_sync(lambda: b"The folder is complete." in system.gpu_dev("logs", session).stdout)
    assert system.gpu_dev("exec", session, "--", "cat", "link").stdout == b"42\n"
    done = system.gpu_dev(
        "exec", session, "--", "sh", "-c", "mkdir out; echo $GPU_DEV_SYNC_FOLDER >out/where; rsync --version"
    )
    assert done.returncode == 0, done.stderr.decode()
    assert system.gpu_dev("cancel", session).returncode == 0
    system.reaches(session, "cancelled")
    fetched = system.gpu_dev("fetch", session, "--to", str(project))
    assert fetched.returncode == 0, fetched.stderr.decode()
    assert (project / "out" / "where").read_text() == "/gpu-dev\n"


def test_a_job_whose_files_come_while_the_api_is_killed_is_not_lost(system: RealKubeletSystem, tmp_path: Path) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    names = "abcdefgh"
    for name in names:
        (folder / name).write_bytes(os.urandom(24 * 2**20))
    words = ("submit", "-g1", "-d10m", "--sync", str(folder), "--", "sh", "-c", "sha256sum *")
    job = system.gpu_dev(*words).stdout.decode().strip()
    root = system.kubelet.folder / "root"

    def has(name: str) -> bool:
        return any(root.glob(f"pods/*/volumes/kubernetes.io~empty-dir/gpu-dev-folder/{name}"))

    eventually_sync(lambda: has("a"))
    system.processes["api_service"].send_signal(signal.SIGKILL)
    system.processes["api_service"].wait()
    assert not has("h")
    system.start_again("api_service")
    system.reaches(job, "succeeded")
    lines = system.gpu_dev("logs", job).stdout.decode().splitlines()
    assert lines == [f"{sha256((folder / name).read_bytes()).hexdigest()}  {name}" for name in names]
