"""The whole system as a process of its own, as a person would start it."""

import os
import signal
import subprocess
from pathlib import Path

import httpx
import psutil

from reservation_core.adapters.postgres.embedded.server import EmbeddedPostgres
from tests.database.pools import FEW, PATIENT_S
from tests.programs.prepared_processes import PreparedProcess, started
from tests.waiting import PATIENCE_S, eventually_sync

ROOT = Path(__file__).parents[3]
FINAL = ("succeeded", "failed", "cancelled", "expired")


class SystemProcess:
    """`python -m standalone` with a home of its own, four simulated cards and a free port.

    Where its start is not what is tried, it is `forked` from a process that has loaded it.
    """

    def __init__(self, home: Path, *, forked: bool = False, **settings: str) -> None:
        self.home = home
        self.jobs: list[str] = []
        self._settings = settings
        self._forked = forked
        self._process: PreparedProcess | subprocess.Popen[bytes] | None = None
        self._log = home.with_name(f"{home.name}.log")
        self.url = ""

    def launch(self) -> "PreparedProcess | subprocess.Popen[bytes]":
        """Start the process without waiting for anything."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DEV_")}
        environment |= {"GPU_DEV_HOME": str(self.home), "GPU_DEV_LOCAL_GPUS": "h100:4"}
        environment |= {
            "GPU_DEV_LISTEN": "127.0.0.1:0",
            "GPU_DEV_SSH__LISTEN": "",
            "GPU_DEV_DATABASE_POOL": str(FEW),
            "GPU_DEV_DATABASE_PATIENCE_S": str(PATIENT_S),
            "PYTHONUNBUFFERED": "1",
            **self._settings,
        }
        self._process = started(("standalone",), environment, self._log, forked=self._forked)
        return self._process

    def start(self) -> httpx.Client:
        """Start, wait until it says that it is up, and return an administrator's client."""
        written = len(self.log) if self._log.exists() else 0
        process = self.launch()

        def address() -> str | None:
            assert process.poll() is None, f"the system did not start:\n{self.log}"
            lines = self.log[written:].splitlines(keepends=True)
            return next((line.split()[1] for line in lines if line.startswith("  URL") and line.endswith("\n")), None)

        self.url = eventually_sync(address) or ""
        return self.client()

    def client(self) -> httpx.Client:
        """A client with the token of the admin-token file."""
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S, trust_env=False)

    @property
    def token(self) -> str:
        """What the admin-token file holds."""
        return (self.home / "admin-token").read_text().strip()

    @property
    def log(self) -> str:
        """What it wrote, over all starts."""
        return self._log.read_text()

    @property
    def process(self) -> "PreparedProcess | subprocess.Popen[bytes]":
        """The process."""
        assert self._process is not None
        return self._process

    def submit(self, http: httpx.Client, gpus: int, *command: str) -> str:
        """Submit a job; returns its id."""
        answer = http.post("/v1/jobs", json={"gpus": gpus, "duration": 300, "workload": {"command": command}})
        assert answer.status_code == 202, answer.text
        self.jobs.append(answer.json()["id"])
        return self.jobs[-1]

    def end(self, number: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the process's end; returns its exit code."""
        return self.process.wait(120)

    def job_processes(self) -> list[psutil.Process]:
        """Live processes of the jobs submitted through this object."""
        return [process for process in psutil.process_iter() if _job_of(process) in self.jobs]

    def clear(self) -> None:
        """Leave nothing behind, whatever the test did."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self.wait()
        for process in self.job_processes():
            process.kill()
        EmbeddedPostgres(self.home).destroy()


def ended(http: httpx.Client, job: str) -> dict[str, object]:
    """Wait for a job's end; returns it."""

    def look() -> dict[str, object] | None:
        found: dict[str, object] = http.get(f"/v1/jobs/{job}").raise_for_status().json()
        return found if found["status"] in FINAL else None

    return eventually_sync(look)  # type: ignore[return-value]


def _job_of(process: psutil.Process) -> str | None:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.environ().get("GPU_DEV_JOB_ID")
    except (psutil.Error, OSError):
        return None
