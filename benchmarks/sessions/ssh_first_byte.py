"""`ssh JOB true` by the gateway beside OpenSSH's sshd, and the memory of an idle SSH session. Needs openssh-server."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import psutil

from benchmarks.measuring.figures import Figure
from benchmarks.measuring.references import against
from benchmarks.start_up import standalone
from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres

ROUNDS = 30
SESSIONS = 40
_PATIENCE_S = 60.0
_SSHD = "/usr/sbin/sshd"


def measure() -> list[Figure]:
    """Ask both in turn; then open idle sessions of the gateway's."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        key = folder / "key"
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
        port, other = _free_port(), _free_port()
        os.environ["GPU_DEV_SSH__LISTEN"] = f"127.0.0.1:{port}"
        try:
            with standalone(folder / "home") as (process, environment), _sshd(folder, key, other):
                user = _start_job(folder / "home", environment["GPU_DEV_LISTEN"], key)
                return _measured(process.pid, _client(folder, key, port, user), _client(folder, key, other, "root"))
        finally:
            EmbeddedPostgres(folder / "home").destroy()


def _measured(pid: int, gateway: list[str], sshd: list[str]) -> list[Figure]:
    for client in (gateway, sshd):
        _until(partial(_answers, client))
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(_seconds(gateway))
        theirs.append(_seconds(sshd))
    before = psutil.Process(pid).memory_full_info().uss
    sessions = [subprocess.Popen([*gateway, "-N", "-v"], stderr=subprocess.PIPE) for _ in range(SESSIONS)]
    for session in sessions:
        assert session.stderr is not None
        while b"Entering interactive session" not in session.stderr.readline():
            pass
    time.sleep(3)
    each = (psutil.Process(pid).memory_full_info().uss - before) / SESSIONS / 1024
    for session in sessions:
        session.kill()
        session.communicate()
    return [
        against("ssh JOB true, warm gateway", ours, theirs, 1.5, unit=" s", of="OpenSSH's sshd"),
        Figure("memory of an idle SSH session", " KiB", [each], 200, at_least=False),
    ]


def _answers(client: list[str]) -> bool:
    return subprocess.run([*client, "true"], check=False, capture_output=True).returncode == 0


def _seconds(client: list[str]) -> float:
    began = time.monotonic()
    subprocess.run([*client, "true"], check=True, capture_output=True)
    return time.monotonic() - began


def _client(folder: Path, key: Path, port: int, user: str) -> list[str]:
    options = {
        "KexAlgorithms": "curve25519-sha256",  # the same work for both
        "IdentitiesOnly": "yes", "IdentityAgent": "none", "StrictHostKeyChecking": "no",
        "UserKnownHostsFile": str(folder / "known_hosts"), "LogLevel": "ERROR",
    }  # fmt: skip
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    return ["ssh", "-F", "none", "-i", str(key), "-p", str(port), *words, f"{user}@127.0.0.1"]


@contextmanager
def _sshd(folder: Path, key: Path, port: int) -> Iterator[None]:
    _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "host"))
    keys = folder / "authorized_keys"
    shutil.copy(key.with_suffix(".pub"), keys)
    Path("/run/sshd").mkdir(exist_ok=True)
    options = [f"AuthorizedKeysFile={keys}", "StrictModes=no", "PermitRootLogin=yes", "PidFile=none", "UsePAM=no"]
    options += [f"SetEnv=HOME={folder}"]  # both without the ~/.bashrc of this user
    words = [word for option in options for word in ("-o", option)]
    command = [_SSHD, "-D", "-f", "/dev/null", "-h", str(folder / "host"), "-p", str(port), *words]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _start_job(home: Path, listen: str, key: Path) -> str:
    """Add the key and start a session; returns its id."""
    token = (home / "admin-token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"http://{listen}", headers=headers, trust_env=False) as client:
        client.post("/v1/keys", json={"public_key": key.with_suffix(".pub").read_text()}).raise_for_status()
        answer = client.post(
            "/v1/jobs", json={"gpus": 1, "duration": 120, "workload": {"env": {"HOME": str(key.parent)}}}
        ).raise_for_status()
        job: str = answer.json()["id"]
        _until(lambda: client.get(f"/v1/jobs/{job}").json()["status"] == "running")
    return job


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.1)


def _run(*words: str) -> None:
    subprocess.run(words, check=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
