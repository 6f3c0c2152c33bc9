"""Ctrl-C at a real terminal (a pseudo one): cancel, detach, go on, and a second Ctrl-C."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta

from tests.integration.gpu_dev.conftest import ROOT, System
from tests.waiting import PATIENCE_S, eventually_sync

SCRIPT = "echo up; while [ ! -e go ]; do sleep 0.05; done; echo done"


class AtTerminal:
    """`gpu-dev run` with a terminal for stdin and stderr and a pipe for stdout."""

    def __init__(self, system: System, *words: str, who: str = "alice") -> None:
        self.master, slave = pty.openpty()
        os.set_blocking(self.master, False)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpu_dev", *words],
            env={**system.environment(who), "TERM": "xterm"},
            cwd=ROOT,
            stdin=slave,
            stderr=slave,
            stdout=subprocess.PIPE,
            text=True,
        )
        os.close(slave)
        self.shown = ""

    def shows(self, text: str) -> None:
        """Wait until the terminal shows it; what was shown up to then is done with."""

        def found() -> bool:
            with suppress(OSError):  # nothing there yet, or the other end is closed
                self.shown += os.read(self.master, 65_536).decode(errors="replace")
            return text in self.shown

        eventually_sync(found)
        self.shown = self.shown.partition(text)[2]

    def prints(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def answer(self, text: str) -> None:
        os.write(self.master, text.encode())


@contextmanager
def running(system: System) -> Iterator[AtTerminal]:
    folder = system.folder / "work"
    folder.mkdir()
    folder.chmod(0o777)
    at = AtTerminal(system, "run", "-g", "1", "-d", "10m", "--working-dir", str(folder), "--", "sh", "-c", SCRIPT)
    try:
        assert at.prints() == "up\n"
        at.interrupt()
        at.shows("[g]o on?")
        yield at
    finally:
        at.process.kill()
        at.process.communicate()
        os.close(at.master)


def status_of_the_job(system: System) -> str:
    [job] = json.loads(system.cli("list", "--all", "-o", "json").stdout)["items"]
    return str(job["status"])


def test_cancel(system: System) -> None:
    with running(system) as at:
        at.answer("c\n")
        at.shows("is cancelled")
        assert at.process.wait(PATIENCE_S) == 130
    eventually_sync(lambda: status_of_the_job(system) == "cancelled")


def test_a_second_ctrl_c_detaches(system: System) -> None:
    with running(system) as at:
        at.interrupt()
        at.shows("gpu-dev logs -f job-")
        assert at.process.wait(PATIENCE_S) == 130
    assert status_of_the_job(system) == "running"


def test_go_on_loses_and_repeats_nothing(system: System) -> None:
    with running(system) as at:
        at.answer("x\n")
        at.shows("[g]o on?")
        at.answer("\n")
        (system.folder / "work" / "go").touch()
        assert at.prints() == "done\n"
        assert at.process.wait(PATIENCE_S) == 0
        assert at.prints() == ""


def test_what_is_missing_is_asked_for_and_only_the_answer_is_on_stdout(system: System) -> None:
    at = AtTerminal(system, "submit", "--", "true")
    at.shows("How many GPUs?")
    at.answer("1\n")
    at.shows("For how long")
    at.answer("5x\n")
    at.shows("not a duration")
    at.answer("5m\n")
    assert at.prints().startswith("job-")
    assert at.process.wait(PATIENCE_S) == 0
    at.process.communicate()
    os.close(at.master)


def test_who_disables_somebody_is_told_how_many_of_theirs_wait(system: System) -> None:
    assert system.cli("users", "add", "fred", who="admin").returncode == 0
    token = system.cli("tokens", "create", "--user", "fred", who="admin").stdout.strip()
    for _ in range(3):
        assert system.cli("submit", "-g", "64", "-d", "1h", "--", "true", GPU_DEV_TOKEN=token).returncode == 0
    start = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="minutes")
    booked = system.cli("book", "create", "-g1", "--start", start, "-d1h", GPU_DEV_TOKEN=token)
    assert booked.returncode == 0, booked.stderr
    for options, kept in (((), "go on (1 booking)."), (("--end",), "end (1 booking).")):
        at = AtTerminal(system, "users", "disable", "fred", *options, who="admin")
        at.shows(f"waiting jobs and requests are cancelled (3 jobs); running jobs and bookings {kept}")
        at.answer("n\n")
        assert at.process.wait(PATIENCE_S) == 1
        at.process.communicate()
        os.close(at.master)
    assert system.cli("users", "me", GPU_DEV_TOKEN=token).returncode == 0


def test_the_end_of_a_project_is_asked_for_with_what_is_lost(system: System) -> None:
    system.cli("projects", "create", "vision", "--member", "alice", who="admin")
    system.cli("policy", "set", "project:vision", "max_gpus=2", who="admin")
    refused = system.cli("projects", "end", "vision", who="admin")
    assert (refused.returncode, "try: gpu-dev projects end vision --yes" in refused.stderr) == (2, True)
    assert "vision" in system.cli("projects", "list", who="admin").stdout
    at = AtTerminal(system, "projects", "end", "vision", who="admin")
    at.shows("End vision for good? Its 1 member can ask for nothing more for it; its jobs and bookings go on.")
    at.shows("Its rules are deleted: project:vision.")
    at.answer("n\n")
    assert at.process.wait(PATIENCE_S) == 1
    at.process.communicate()
    os.close(at.master)
    assert system.cli("projects", "end", "vision", "--yes", who="admin").stdout == "vision has ended\n"
