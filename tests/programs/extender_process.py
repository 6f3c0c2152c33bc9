"""The scheduler extender as a process of its own."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.programs.prepared_processes import started
from tests.waiting import PATIENCE_S, eventually_sync

START_S = 120.0


class ExtenderProcess:
    """`python -m gpu_admission` on free ports. `url` is known once it listens.

    Without `forked` it is started as delivered: only then is its memory its own.
    """

    def __init__(self, log: Path, kubeconfig: Path, *options: str, forked: bool = True, **variables: str) -> None:
        self._log = log
        command = ["gpu_admission", "--address=127.0.0.1:0", "--pprofAddress=127.0.0.1:0"]
        command += ["--kubeconfig", str(kubeconfig), *options]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GPU_DEV_")}
        kept.pop("LOG_LEVEL", None)
        environment = {**kept, "GPU_DEV_ADMISSION__DRAIN_S": "0"} | variables
        self.process = started(command, environment, log, forked=forked)

    @property
    def url(self) -> str:
        """Where schedulers ask."""
        return self._address("listening")

    @property
    def debug_url(self) -> str:
        """Where profiles are."""
        return self._address("debug_listening")

    def await_ready(self) -> "ExtenderProcess":
        """Returns once it has read the cluster."""
        eventually_sync(self.ready, START_S)
        return self

    def ready(self) -> bool:
        """Whether schedulers may be sent here."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the extender ended. It said: {self.text()[-3000:]}")
        if not any(line["event"] == "listening" for line in self.log()):
            return False
        return httpx.get(f"{self.url}/ready", trust_env=False, timeout=60).status_code == 200

    def log(self) -> list[dict[str, Any]]:
        """What it said, line by line."""
        lines = self.text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]

    def text(self) -> str:
        """What it said."""
        return self._log.read_text()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def stop(self) -> int:
        """End it at once, where it still runs; returns its exit code."""
        self.process.send_signal(signal.SIGKILL)
        return self.process.wait(PATIENCE_S)

    def _address(self, event: str) -> str:
        return next(str(line["address"]) for line in self.log() if line["event"] == event)


@contextmanager
def extender_process(
    log: Path, kubeconfig: Path, *options: str, forked: bool = True, **variables: str
) -> Iterator[ExtenderProcess]:
    """One that is ready, until the block's end."""
    process = ExtenderProcess(log, kubeconfig, *options, forked=forked, **variables)
    try:
        yield process.await_ready()
    finally:
        process.stop()
