"""The cluster to try things on, and that nothing of it outlives the process that started it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.kubernetes.api_client import ApiClient
from tests.read_yaml import read_yaml
from tests.waiting import eventually, eventually_sync

_REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def by_hand(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # killed, it leaves its folder
    command = [sys.executable, "-m", "tests.kubernetes.by_hand", "--nodes", "1"]
    started = subprocess.Popen(command, cwd=_REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True)
    yield started
    started.kill()
    started.communicate()


def kubeconfig_of(by_hand: subprocess.Popen[str]) -> Path:
    """What it prints once it works."""
    assert by_hand.stdout is not None
    return Path(by_hand.stdout.readline().strip().removeprefix("KUBECONFIG="))


async def sleeper(kubeconfig: Path) -> None:
    """A pod whose process runs."""
    read = read_yaml(kubeconfig.read_text())
    cluster, user = read["clusters"][0]["cluster"], read["users"][0]["user"]
    ca = cluster.get("certificate-authority")
    container = {"name": "main", "image": "image", "command": ["sleep", "600"]}
    body = {"metadata": {"name": "sleeper"}, "spec": {"containers": [container]}}
    async with ApiClient(cluster["server"], user["token"], Path(ca).read_bytes() if ca else None) as client:
        path = "/api/v1/namespaces/gpu-dev/pods"
        await client.call("POST", path, body)

        async def runs() -> bool:
            return bool((await client.call("GET", f"{path}/sleeper"))["status"]["phase"] == "Running")

        await eventually(runs)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_nothing_outlives_it(by_hand: subprocess.Popen[str], how: signal.Signals) -> None:
    await sleeper(kubeconfig_of(by_hand))
    children = psutil.Process(by_hand.pid).children(recursive=True)
    assert any(child.name() == "sleep" for child in children)
    by_hand.send_signal(how)
    eventually_sync(lambda: not any(is_alive(child) for child in children))


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs; one that has ended may wait for its parent to take note of it."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
