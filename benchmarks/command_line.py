"""The processor time of a command, against that of Python with TLS and JSON: a user waits for it at every call."""

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measuring.figures import Figure
from benchmarks.measuring.references import against
from benchmarks.start_up import standalone
from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres

ROUNDS = 5
JOBS = 20
PYTHON = "`python -c 'import ssl, json'`"
_GPU_DEV = (sys.executable, "-m", "gpu_dev")
_JOB = ("submit", "--gpus", "4", "--for", "1h", "--", "sleep", "3600")
_CPU_JOB = (
    "submit",
    "-g",
    "0",
    "--cpus",
    "0.5",
    "--memory",
    "64Mi",
    "--retries",
    "1",
    "--for",
    "1h",
    "--",
    "sleep",
    "3600",
)
_REQUEST = '{"gpus": 4, "duration": "PT1H", "workload": {"command": ["sleep", "3600"]}}'
_SLOT = ("book", "create", "--gpus", "1", "--start", "in 1000h", "--for", "1h", "--dry-run")
_NODE = socket.gethostname().partition(".")[0]
_WINDOW = ("maintenance", "plan", _NODE, "--reason", "New fans.", "--for", "1h", "--dry-run")
_COMMANDS = {
    "gpu-dev --help": ((*_GPU_DEV, "--help"), 5),
    "gpu-dev --version": ((*_GPU_DEV, "--version"), 5),
    "gpu-dev list": ((*_GPU_DEV, "list"), 5),
    "gpu-dev gpus": ((*_GPU_DEV, "gpus"), 5),
    "gpu-dev status": ((*_GPU_DEV, "status"), 5),
    "gpu-dev submit": ((*_GPU_DEV, *_JOB), 5),
    "gpu-dev submit --gpus 0 --cpus": ((*_GPU_DEV, *_CPU_JOB), 5),
    "gpu-dev submit --json-file": ((*_GPU_DEV, "submit", "--json-file", "{home}/job.json"), 5),
    "gpu-dev book create": ((*_GPU_DEV, *_SLOT), 5),
    "gpu-dev book create --rrule": ((*_GPU_DEV, *_SLOT, "--rrule", "FREQ=DAILY;COUNT=3"), 5),
    "gpu-dev policy set": ((*_GPU_DEV, "policy", "set", "default", "max_gpus=400", "max_duration=7d"), 5),
    "gpu-dev notify add": ((*_GPU_DEV, "notify", "add", "webhook", "https://example.org/hook"), 5),
    "gpu-dev notify set": ((*_GPU_DEV, "notify", "set", "ended=none"), 5),
    "gpu-dev maintenance plan": ((*_GPU_DEV, *_WINDOW), 5),
    "gpu-dev tokens create --gpu-hours": ((*_GPU_DEV, "tokens", "create", "--gpu-hours", "5"), 5),
    "gpu-dev login": ((*_GPU_DEV, "login", "--token-stdin"), 5),
    "gpu-dev events": ((*_GPU_DEV, "events", "watched"), 5),
    "gpu-dev config-ssh": ((*_GPU_DEV, "config-ssh", "--dry-run"), 5),
    "gpu-dev audit export": ((*_GPU_DEV, "audit", "export"), 5),
    "gpu-dev psql": ((*_GPU_DEV, "psql", "-c", "SELECT 1"), 8),
}


def measure() -> list[Figure]:
    """Commands against a system with some jobs, after one call of each that is not counted."""
    measured: dict[str, list[float]] = {name: [] for name in _COMMANDS}
    bare: list[float] = []
    with tempfile.TemporaryDirectory() as home:
        try:
            with standalone(Path(home)) as (_, environment):
                environment.pop("PYTHONDONTWRITEBYTECODE", None)
                environment["XDG_CONFIG_HOME"] = home  # what `login` writes
                Path(home, "job.json").write_text(_REQUEST, encoding="utf-8")
                _cpu_ms((*_GPU_DEV, *_JOB[:1], "--name", "watched", *_JOB[1:]), environment)
                for _ in range(JOBS):
                    _cpu_ms((*_GPU_DEV, *_JOB), environment)
                for command, _ in _COMMANDS.values():
                    _cpu_ms(command, environment)
                for _ in range(ROUNDS):
                    bare.append(_cpu_ms((sys.executable, "-c", "import ssl, json"), environment))
                    for name, (command, _) in _COMMANDS.items():
                        measured[name].append(_cpu_ms(command, environment))
        finally:
            EmbeddedPostgres(Path(home)).destroy()
    return [
        against(f"processor time of `{name}`", measured[name], bare, target, unit=" ms", of=PYTHON)
        for name, (_, target) in _COMMANDS.items()
    ]


def _cpu_ms(command: tuple[str, ...], environment: dict[str, str]) -> float:
    """Milliseconds of processor time of a process and its children, which read the administrator's token on stdin.

    Raises RuntimeError when it fails.
    """
    home = environment["GPU_DEV_HOME"]
    words = [word.replace("{home}", home) for word in command]
    with Path(home, "admin-token").open("rb") as token:
        process = subprocess.Popen(
            words, env=environment, stdin=token, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}: {said.decode()[-500:]}")
    return (usage.ru_utime + usage.ru_stime) * 1000
