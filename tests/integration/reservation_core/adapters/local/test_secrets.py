"""Secrets of local pods: in the environment and in files of the job, and gone with it, whoever is killed."""

import os
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from reservation_core.adapters.clock import SystemClock
from reservation_core.adapters.local.cluster import LocalCluster
from reservation_core.adapters.local.machine_times import MachineTimes
from reservation_core.adapters.local.pod_directories import PodDirectories
from reservation_core.domain.model import PodPhase, PodSecret, PodSpec
from reservation_core.domain.sessions.secret_uses import SecretUse
from reservation_core.domain.statuses import ReasonCode
from tests.integration.cluster_behaviour import GRACE, NODE, SpecMaker, finished, log_of, reaches
from tests.integration.reservation_core.adapters.local.test_crashes import prepared, supervisor_of
from tests.waiting import eventually

VALUE = "hunter2 in\nconfidence=ä"
SHOW = 'printf %s "$TOKEN" | od -An -tx1; cat "$GPU_DEV_SECRET_FILES/run/a/token" | od -An -tx1; '
LAST_ACCESS = "exec sleep 600"


def with_secrets(spec: PodSpec) -> PodSpec:
    uses = (SecretUse("t", env="TOKEN"), SecretUse("t", path="/run/a/token"), SecretUse("t", path="/run/b"))
    return replace(spec, secrets=tuple(PodSecret(use, VALUE) for use in uses))


def files_with_secrets(home: Path) -> list[str]:
    """The files below the home that hold the value."""
    found = []
    for folder, _, names in os.walk(home):
        for name in names:
            path = Path(folder, name)
            if path.is_file() and b"hunter2" in path.read_bytes():
                found.append(str(path.relative_to(home)))
    return sorted(found)


async def test_a_job_gets_its_secrets_and_leaves_none(home: Path, cluster: LocalCluster, make_spec: SpecMaker) -> None:
    spec = with_secrets(make_spec("sh", "-c", SHOW))
    await cluster.create_pod(spec)
    assert (await finished(cluster, spec)).exit_code == 0
    shown = bytes.fromhex((await log_of(cluster, spec)).replace(" ", "").replace("\n", ""))
    assert shown == VALUE.encode() * 2
    assert files_with_secrets(home) == []
    assert not (home / "pods" / str(spec.name) / "secrets").exists()


async def test_while_it_runs_the_values_are_in_files_of_the_user_alone(
    home: Path, cluster: LocalCluster, make_spec: SpecMaker
) -> None:
    spec = with_secrets(make_spec("sh", "-c", f"echo up; {LAST_ACCESS}"))
    await cluster.create_pod(spec)
    await eventually(lambda: log_of(cluster, spec))
    secrets = home / "pods" / str(spec.name) / "secrets"
    # The variable's file is gone once its value is in the process.
    files = [secrets / "files" / "run" / name for name in ("a/token", "b")]
    assert files_with_secrets(home) == [str(file.relative_to(home)) for file in files]
    for path in [secrets, *secrets.rglob("*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
    supervisor = supervisor_of(home, spec)
    for process in [supervisor, *supervisor.children(recursive=True)]:
        assert "hunter2" not in " ".join(process.cmdline())
    await cluster.delete_pod(str(spec.name), timedelta(0))
    await eventually(reaches(cluster, spec, PodPhase.GONE))
    assert files_with_secrets(home) == []


async def test_files_that_the_job_puts_beside_them_and_links_do_no_harm(
    home: Path, cluster: LocalCluster, make_spec: SpecMaker, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    (precious / "deep").mkdir(parents=True)
    (precious / "deep" / "file").write_text("stays")
    script = 'cd "$GPU_DEV_SECRET_FILES"; ln -s "$0" run/link; ln -s "$0/deep/file" here; mkdir more; echo x >more/x'
    spec = with_secrets(make_spec("sh", "-c", script, str(precious)))
    await cluster.create_pod(spec)
    assert (await finished(cluster, spec)).exit_code == 0
    assert not (home / "pods" / str(spec.name) / "secrets").exists()
    assert (precious / "deep" / "file").read_text() == "stays"


async def test_they_are_removed_when_the_supervisor_was_killed(
    home: Path, cluster: LocalCluster, make_spec: SpecMaker
) -> None:
    spec = with_secrets(make_spec("sh", "-c", f"echo up; {LAST_ACCESS}"))
    await cluster.create_pod(spec)
    await eventually(lambda: log_of(cluster, spec))
    assert files_with_secrets(home)
    supervisor_of(home, spec).kill()
    status = await finished(cluster, spec)
    assert status.reason is not None
    assert status.reason.code is ReasonCode.POD_LOST
    assert files_with_secrets(home) == []


async def test_a_pod_that_never_started_leaves_none(home: Path, cluster: LocalCluster, make_spec: SpecMaker) -> None:
    spec = with_secrets(make_spec("true"))
    prepared(home).publish(spec)
    assert len(files_with_secrets(home)) == 3
    await cluster.delete_pod(str(spec.name), GRACE)
    await eventually(reaches(cluster, spec, PodPhase.GONE))
    assert files_with_secrets(home) == []


async def test_a_restart_removes_what_killed_processes_have_left(home: Path, make_spec: SpecMaker) -> None:
    spec, other = with_secrets(make_spec("true")), with_secrets(make_spec("true"))
    pods = prepared(home)
    pods.publish(spec)
    pods.publish(other)
    shutil.move(home / "pods" / str(spec.name), home / "tombstones" / str(spec.name))  # killed before it was emptied
    staged = home / "staging" / "job-x-1-0.abc"
    shutil.move(home / "pods" / str(other.name), staged)  # killed before it was published
    PodDirectories(home, MachineTimes(SystemClock(), SystemClock())).prepare(SystemClock().now())
    # Another process may just be about to publish it.
    assert {path.split("/")[0] for path in files_with_secrets(home)} == {"staging"}
    os.utime(staged, (0, 0))
    restarted = LocalCluster(home, f"{NODE}=h100:4", SystemClock())
    await restarted.list_pods()
    await restarted.close()
    assert files_with_secrets(home) == []
