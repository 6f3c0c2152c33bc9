"""The program around a job's command: signals come once, and answers that break off are asked for again."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from os import killpg
from pathlib import Path

import pytest

from gpu_dev.sync import inside
from gpu_dev.sync.inside import JobServer, keep_files
from reservation_core.domain.sync.frames import framed

AROUND = "import os, sys; from gpu_dev.sync.inside import run_command; sys.exit(run_command(sys.argv[1:], os.environ))"
COMMAND = """
import signal, sys
def say(number, frame):
    print(signal.Signals(number).name, flush=True)
    if number == signal.SIGUSR1:
        sys.exit(7)
for number in (signal.SIGTERM, signal.SIGQUIT, signal.SIGALRM, signal.SIGUSR1):
    signal.signal(number, say)
print("ready", flush=True)
while True:
    signal.pause()
"""


def test_a_command_gets_signals_once() -> None:
    """The parent signals the whole group; others signal the first process alone."""
    words = [sys.executable, "-c", AROUND, sys.executable, "-c", COMMAND]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as around:
        try:
            assert around.stdout is not None
            assert around.stdout.readline() == "ready\n"
            killpg(around.pid, signal.SIGTERM)
            assert around.stdout.readline() == "SIGTERM\n"
            for name in ("QUIT", "ALRM", "TERM", "USR1"):
                subprocess.run(["kill", f"-{name}", str(around.pid)], check=True)
                assert around.stdout.readline() == f"SIG{name}\n"
            assert around.wait() == 7
        finally:
            with suppress(ProcessLookupError):
                killpg(around.pid, signal.SIGKILL)


class Breaking(BaseHTTPRequestHandler):
    """Breaks every second answer off in its middle."""

    protocol_version = "HTTP/1.1"
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        content = framed(sha256(b"abc").digest(), b"abc") if self.path.startswith("/data") else b'{"a": 1}'
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        part = content[: len(content) // 2] if self.asked % 2 else content
        self.wfile.write(b"%x\r\n%s" % (len(content), part))
        if part == content:
            self.wfile.write(b"\r\n0\r\n\r\n")
        self.close_connection = True

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[JobServer]:
    monkeypatch.setattr(inside, "_PAUSES_S", (0, 0))
    with HTTPServer(("127.0.0.1", 0), Breaking) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield JobServer({
            "GPU_DEV_JOB_SERVER": f"http://127.0.0.1:{serving.server_port}", "GPU_DEV_JOB_TOKEN": "x",
            "GPU_DEV_JOB_ID": "job-1",
        })  # fmt: skip
        serving.shutdown()
        thread.join()


def test_an_answer_that_breaks_off_is_asked_for_again(server: JobServer) -> None:
    assert list(server.chunks("/data", 1)) == [(sha256(b"abc").digest(), b"abc")]
    assert server.call("GET", "/fields") == {"a": 1}


class Keeping(JobServer):
    """Notes the paths that are sent."""

    def __init__(self) -> None:
        super().__init__({"GPU_DEV_JOB_SERVER": "", "GPU_DEV_JOB_TOKEN": "", "GPU_DEV_JOB_ID": ""})
        self.paths: list[str] = []

    def put(self, path: str, fields: dict[str, list[dict[str, str]]]) -> object:
        self.paths += [entry["path"] for entry in fields.get("entries", [])]
        return {"id": "x", "missing": []}


def test_what_is_of_git_is_not_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out" / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "out" / ".git" / "hooks" / "post-checkout").touch()
    (tmp_path / "out" / "x").touch()
    keeping = Keeping()
    keep_files(keeping, tmp_path, ["out"])
    assert keeping.paths == ["out", "out/x"]
    assert "not kept: out/.git is of Git" in capfd.readouterr().err
